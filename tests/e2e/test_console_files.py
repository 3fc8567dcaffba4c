"""The files of the pages as they are sent: without comments, and otherwise the same programs and styles."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from muniment.service.console.page import without_comments
from muniment.service.http.html.frame import style_sheet
from node_program import NODE
from proving import ASSETS

HERE = Path(__file__).parent
VENDORED = {"crypto.js", "qr-code.js"}
_MINIFY = """
import { transformSync } from "esbuild";
import { readFileSync } from "node:fs";
const options = (loader) => ({ loader, minify: true, legalComments: "none" });
const pairs = JSON.parse(readFileSync(0, "utf8"));
const differing = pairs.filter(([loader, ...texts]) =>
  new Set(texts.map((text) => transformSync(text, options(loader)).code)).size !== 1);
console.log(JSON.stringify(differing.map(([, text]) => text.slice(0, 200))));
"""


def test_what_is_sent_differs_from_what_is_written_by_comments_alone() -> None:
    if not NODE or not (HERE / "vendored" / "node_modules" / "esbuild").exists():
        pytest.skip("esbuild is not there: run tests/e2e/install.py tests/e2e/vendored")
    written = [("js", each.read_bytes()) for each in sorted(ASSETS.rglob("*.js")) if each.name not in VENDORED]
    written += [("css", (ASSETS / "console.css").read_bytes()), ("css", style_sheet())]
    pairs = [[kind, text.decode(), without_comments(text).decode()] for kind, text in written]
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", _MINIFY], cwd=HERE / "vendored", input=json.dumps(pairs),
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == []
    assert all("/**" not in sent and "\n//" not in sent for _, _, sent in pairs)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (b"/** @type {A} */ (a).b();\nc();\n", b"(a).b();\nc();\n"),
        (b"f((/** @type {A} */ a) => a);\n", b"f((a) => a);\n"),
        (b"/**\n * @param {A} a\n */\n  f(a);\n\n// No\ng();\n", b"f(a);\ng();\n"),
        (b"// @license MIT\n/* kept */ f();\n", b"// @license MIT\n/* kept */ f();\n"),
    ],
)
def test_comments_go_and_code_beside_them_stays(written: bytes, sent: bytes) -> None:
    assert without_comments(written) == sent
