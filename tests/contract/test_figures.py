"""What `make house` counts, on a small tree, and when it fails."""

from __future__ import annotations

from pathlib import Path

import house
import pytest

_MODULE = '''\
"""Two words."""

from typing import Any, TypeAlias, cast

# One comment of five words.
Open: TypeAlias = Any
LIST = (
    1,
    2,
)  # fmt: skip


class Settings:
    port: int = 1
    host: str = ""


class _Hidden: ...


@operation("GET", "/x")
def found(given: Open, *, text: object) -> None:
    shown, feed = cast("Any", given), text
    self.listed = deactivated = shown  # noqa: X


@group.command("y")
def command(): ...
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "src/muniment/service/http/operation.py": _MODULE,
        "src/muniment/service/context.py": "class Settings:\n    port: int\n",
        "src/muniment/protocol/log/tree.py": "1\n",
        "src/muniment/outgoing/client.py": "x = 1\n",
        "src/muniment/a.sql": "SELECT 1;\nSELECT 2;\n",
        "tests/api/test_a.py": "a = 1\nb = 2  # noqa: X\n",
        "tests/e2e/node_modules/a.js": "1\n",
        "tests/e2e/a.mjs": "1\n",
        "bench/run.py": "pass\n",
        "docs/a.md": "# Two words\n",
        "README.md": "one", "CONTRIBUTING.md": "", "SECURITY.md": "",
        "docs/develop/participles.txt": "# Names\nfound\ngiven\nshown\n-feed\n=deactivated why\n",
        "pyproject.toml": "[project.optional-dependencies]\nserver = []\n",
    }.items():  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_tree_has_these_figures(root: Path) -> None:
    lines = len(_MODULE.splitlines())
    figures = house.figures(root)
    expected = {
        "any": 4,  # the value of the alias, its use, `object`, and the text of `cast`
        "bench_lines": 1, "class_names_of_several": 1, "commands": 1, "core_lines": lines + 3, "docs_words": 4,
        "extras": 1, "fmt_skips": 1, "javascript_lines": 1, "largest_file": lines, "longest_function": 3,
        "operations": 1, "participles": 4, "settings": 3, "sql_lines": 2, "src_lines": lines + 4,
        "src_outgoing_lines": 1, "src_protocol_lines": 1, "src_service_context_lines": 2,
        "src_service_http_lines": lines, "src_service_http_statements": 11, "src_words": 11, "suppressions": 2,
        "tests_api_statements": 2,
    }  # fmt: skip
    assert {name: figures[name] for name in expected} == expected
    assert list(figures) == sorted(figures)


def test_a_figure_that_differs_from_its_ceiling_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert house.main([], root) == 1
    assert house.main(["--raise"], root) == 0
    assert house.main([], root) == 0
    assert "src_lines " in capsys.readouterr().out
    assert house.main(["--quiet"], root) == 0
    assert capsys.readouterr().out == ""
    (root / "bench" / "run.py").write_text("pass\npass\n")
    assert house.main(["--quiet"], root) == 1
    assert "bench_lines 2 (ceiling 1)  above its ceiling" in capsys.readouterr().out
    house.main(["--lower"], root)
    assert house.main(["--quiet"], root) == 1  # a ceiling is never raised by the way
    (root / "bench" / "run.py").write_text("")
    assert house.main(["--quiet"], root) == 1
    assert "bench_lines 0 (ceiling 1)  below its ceiling" in capsys.readouterr().out
    house.main(["--lower"], root)
    assert house.main(["--quiet"], root) == 0


def test_the_names_that_are_fixed_are_few() -> None:
    lines = (house.ROOT / "docs/develop/participles.txt").read_text("utf-8").splitlines()
    fixed = [line for line in lines if line.startswith("=")]
    assert 0 < len(fixed) <= 40
    assert [line for line in fixed if len(line.split()) < 2] == []  # each has its place
