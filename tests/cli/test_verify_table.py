"""`muniment verify` where blocks are in a table, of either engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import LiteralString

import httpx2
import pytest
from click.testing import CliRunner, Result

from builders import Bundle, deploy
from muniment.cli.main import main
from muniment.protocol.ipfs.cid import decode_cid
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from without_server import InProcess


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    url = "sqlite:///muniment.db" if request.param == "SQLite" else str(request.getfixturevalue("postgres_url"))
    return Settings(data_dir=tmp_path, database_url=url, blocks_url="database:", log_level="warning")


@pytest.fixture
def cid(settings: Settings) -> str:
    """A function that is registered."""
    return work_in(settings, deployed)


def work_in(settings: Settings, work: Callable[[Context], Awaitable[str]]) -> str:
    async def run() -> str:
        context = build_context(settings)
        try:
            await context.database.migrate()
            return await work(context)
        finally:
            await context.database.close()

    return asyncio.run(run())


async def deployed(context: Context) -> str:
    transport = InProcess(Application(context))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await deploy(client, Bundle())


def changed(settings: Settings, sql: LiteralString, *parameters: object) -> None:
    async def change(context: Context) -> str:
        assert await context.database.write(lambda tx: tx.execute(sql, parameters)) == 1
        return ""

    work_in(settings, change)


def verify(settings: Settings) -> Result:
    return CliRunner().invoke(main, ["verify"], env=settings.environment())


def test_a_healthy_table_is_well(settings: Settings, cid: str) -> None:
    result = verify(settings)
    assert (result.exit_code, result.output.splitlines()[0]) == (0, "blocks: 3 checked"), cid


def test_a_damaged_row_is_named_with_its_function(settings: Settings, cid: str) -> None:
    root = decode_cid(cid).digest
    changed(settings, "UPDATE blocks SET data = ? WHERE digest = ?", b"wrong", root)
    result = verify(settings)
    assert result.exit_code == 1
    block, function = [line for line in result.output.splitlines() if line.startswith("WRONG")]
    assert block.startswith(f"WRONG block {root.hex()}: ")
    assert function.startswith(f"WRONG function {cid}: ")


def test_a_missing_row_is_named_with_its_function(settings: Settings, cid: str) -> None:
    root = decode_cid(cid).digest
    changed(settings, "DELETE FROM blocks WHERE digest = ?", root)
    (function,) = [line for line in verify(settings).output.splitlines() if line.startswith("WRONG")]
    assert function.startswith(f"WRONG function {cid}: ")
    assert root.hex() in function
