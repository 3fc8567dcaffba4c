"""The loops of docs/use/following.md, run as they are printed, one on each engine."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest

import warm
from builders import TriggerDraft, Wallet, deploy, register
from crashing import Site, on_postgres, on_sqlite
from follow_command import until_at_the_end

PAGE = Path(__file__).parents[2] / "docs" / "use" / "following.md"
SECONDS_MAX = 60.0
OWNER = Wallet(9)


def example(language: str) -> str:
    """The last example of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[-1]


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    make: Callable[[Path], AbstractContextManager[Site]] = request.param
    with make(tmp_path) as made:
        yield made


def started(language: str, folder: Path, url: str) -> subprocess.Popen[bytes] | warm.WarmProcess:
    name = "loop.py" if language == "python" else "loop.mjs"
    (folder / name).write_text(example(language))
    with (folder / "out").open("a") as out:
        if language == "python":
            return warm.popen([url], os.environ, [name], stdout=out.fileno(), directory=folder)
        return subprocess.Popen(["node", name, url], cwd=folder, stdout=out)


def until_lines(folder: Path, expected: list[str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while (said := (folder / "out").read_text().splitlines()) != expected:
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def until_there(path: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# The loops see a registry by HTTP alone: each is run on one engine.
@pytest.mark.parametrize(
    ("language", "site"),
    [("python", on_postgres), pytest.param("js", on_sqlite, marks=pytest.mark.node)],
    indirect=["site"], ids=["python", "js"],
)  # fmt: skip
async def test_the_loop_of_the_page_starts_and_stops_triggers_and_goes_on_after_its_own_end(
    site: Site, tmp_path: Path, language: str
) -> None:
    folder = tmp_path / "loop"
    folder.mkdir()
    url = site.urls[0]
    process = started(language, folder, url)
    try:
        until_there(folder / "position")
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            until_lines(folder, ["list"])  # at the first start
            cid = await deploy(client)
            first = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
            until_lines(folder, ["list", f"start {first}"])
            until_at_the_end(url, folder / "position")
            process.kill()
            process.wait()
            body = {"triggerSigs": [first], "signature": OWNER.sign_deactivation([first])}
            assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
            process = started(language, folder, url)
            until_lines(folder, ["list", f"start {first}", f"stop {first}"])
            site.command("epoch", "renew")
            until_lines(folder, ["list", f"start {first}", f"stop {first}", "list"])  # nothing after this is missed
            second = (await register(client, TriggerDraft(cid, OWNER, version="2.0.0")))["sig"]
            until_lines(folder, ["list", f"start {first}", f"stop {first}", "list", f"start {second}"])
    finally:
        process.kill()
        process.wait()
