"""Registries to back up and restore, and checks of both commands."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import cache
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
from without_server import InProcess

Work = Callable[[httpx2.AsyncClient], Awaitable[None]]

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


def fill(data: Path, work: Work, secret: str = "") -> None:
    """Let a client use the registry in `data`, which is created if needed."""

    async def filled() -> None:
        context = build_context(Settings(data_dir=data, log_level="warning", secret=secret))
        try:
            await context.database.migrate()
            transport = InProcess(Application(context))
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


def fill_by_copy(data: Path, *works: Work) -> None:
    """Put into `data` the registry that `works` make: each is done once, and its outcome copied."""
    copy_files(_kept(works), data)


@cache
def _kept(works: tuple[Work, ...]) -> Path:
    *before, work = works
    kept = Path(tempfile.mkdtemp(dir=_directory())) / "data"
    if before:
        copy_files(_kept(tuple(before)), kept)
    fill(kept, work)
    return kept


@cache
def _directory() -> Path:
    made = tempfile.TemporaryDirectory(prefix="registries-")
    atexit.register(made.cleanup)
    return Path(made.name)


def copy_files(directory: Path, to: Path) -> None:
    """Copy the files of a registry or of a backup. Of a block store's 257 directories only those with a block come."""
    to.mkdir(mode=0o700)
    shutil.copystat(directory, to)
    for folder, _, names in os.walk(directory):
        for name in names:
            source = Path(folder, name)
            target = to / source.relative_to(directory)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copystat(source.parent, target.parent)
            shutil.copy2(source, target)


def files(directory: Path) -> list[Path]:
    """Every file under `directory`, in the order of its path; `rglob` takes five times as long."""
    return sorted(Path(folder, name) for folder, _, names in os.walk(directory) for name in names)


def tree(directory: Path) -> dict[str, bytes]:
    """Every file under `directory`, except the empty lock."""
    return {str(path): content for path in files(directory) if (content := path.read_bytes())}


def rows(data: Path) -> list[str]:
    """All rows of a database, except the epoch, which every restore renews."""
    with closing(sqlite3.connect(f"{(data / 'muniment.db').as_uri()}?mode=ro", uri=True)) as connection:
        return [line for line in connection.iterdump() if not line.startswith('INSERT INTO "epoch"')]


def blocks(directory: Path) -> list[Path]:
    return files(directory / "blocks")


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
    fill_by_copy(tmp_path / "data", at_first)
    return tmp_path / "data"


@cache
def _backup_at_first() -> Path:
    folder = Path(tempfile.mkdtemp(dir=_directory()))
    fill_by_copy(folder / "data", at_first)
    done("backup", folder / "backup", data=folder / "data")
    return folder / "backup"


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    """A backup of it."""
    copy_files(_backup_at_first(), tmp_path / "backup")
    (data / "last-backup").touch(mode=0o600)
    return tmp_path / "backup"
