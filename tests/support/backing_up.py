"""Registries to back up and restore, and checks of both commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from builders import SAMPLES, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.cli.main import main
from muniment.service.app import Application, build_context
from muniment.service.auth.secrets import RingFile, Secret
from muniment.service.running.settings import Settings

SECRET = "0a" * 32
BIG = [("file", (name, (SAMPLES / "own-big" / name).read_bytes())) for name in ("manifest.json", "function.wasm")]


def run(*words: str | Path, data: Path, **environ: str) -> Result:
    return CliRunner().invoke(main, [*map(str, words), "--data-dir", str(data)], env=environ)


def done(*words: str | Path, data: Path, **environ: str) -> Any:
    """Run a command that must succeed; its JSON summary."""
    result = run(*words, "--json", data=data, **environ)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*words: str | Path, data: Path, **environ: str) -> str:
    """The line of a refusal, after the lines that name damaged parts."""
    result = run(*words, data=data, **environ)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    *named, line = result.stderr.splitlines()
    assert all(each.startswith("WRONG function ") for each in named), result.stderr
    assert line.startswith("Error: ")
    return line


def fill(data: Path, work: Callable[[httpx2.AsyncClient], Any], secret: str = "") -> None:
    """Let a client use the registry in `data`, which is created if needed."""

    async def filled() -> None:
        context = build_context(Settings(data_dir=data, log_level="warning", secret=secret))
        try:
            await context.database.migrate()
            transport = httpx2.ASGITransport(app=Application(context))
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                await work(client)
        finally:
            await context.outgoing.close()
            await context.database.close()

    asyncio.run(filled())


async def at_first(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    for number in range(3):
        await register(client, TriggerDraft(cid, version=f"1.0.{number}"))


async def with_more(client: httpx2.AsyncClient) -> None:
    """Add a second function, whose module has several blocks."""
    headers = {"x-api-key": await api_key_of(client, Wallet())}
    assert (await client.post("/functions", files=BIG, headers=headers)).status_code == 200


def tree(directory: Path) -> dict[str, bytes]:
    """Every file under `directory`, except the empty lock."""
    return {
        str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size
    }


def rows(data: Path) -> list[str]:
    """All rows of a database, except the epoch, which every restore renews."""
    with closing(sqlite3.connect(f"{(data / 'muniment.db').as_uri()}?mode=ro", uri=True)) as connection:
        return [line for line in connection.iterdump() if not line.startswith('INSERT INTO "epoch"')]


def blocks(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "blocks").rglob("*") if path.is_file())


def description(backup: Path) -> dict[str, Any]:
    return json.loads((backup / "backup.json").read_text())


def snapshot(backup: Path) -> Path:
    return backup / description(backup)["snapshot"]


def describe(backup: Path, **changes: Any) -> None:
    (backup / "backup.json").write_text(json.dumps(description(backup) | changes))


def ids(data: Path) -> list[str]:
    assert (data / "secrets").exists()  # a ring that is not there would be made
    return [Secret.derived_from(raw).id for raw in RingFile(data)()]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def corrupt_index(path: Path) -> None:
    """Swap two entries of an index; only SQLite's integrity check finds it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'triggers_by_signer'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(path.read_bytes())
    start = (page - 1) * size
    content[start + 8 : start + 10], content[start + 10 : start + 12] = (
        content[start + 10 : start + 12],
        content[start + 8 : start + 10],
    )
    path.write_bytes(content)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A registry with a function and three triggers."""
    fill(tmp_path / "data", at_first)
    return tmp_path / "data"


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    done("backup", tmp_path / "backup", data=data)
    return tmp_path / "backup"
