"""The store that a URL names, and refused URLs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from muniment.service.app import build_context
from muniment.service.blocks import open_blocks
from muniment.service.blocks.files import FileBlockStore
from muniment.service.blocks.store import BlockStore
from muniment.service.blocks.table import TableBlockStore
from muniment.service.running.settings import Settings

SQLITE, POSTGRES = "sqlite:///muniment.db", "postgresql://muniment:hidden@db/muniment"
DATABASE = cast("Any", None)  # it is not asked


def opened(url: str, database_url: str, data_dir: Path) -> BlockStore:
    return open_blocks(url, data_dir=data_dir, database=DATABASE, database_url=database_url, loop=None)


@pytest.mark.parametrize(
    ("url", "database_url"),
    [
        ("", POSTGRES), ("", "postgres://db/m"), ("database:", SQLITE), ("database:", POSTGRES),
        ("postgresql:", POSTGRES), ("postgresql:", "postgres://db/m"), ("sqlite:", SQLITE),
    ],
)  # fmt: skip
def test_the_table_has_its_own_url_and_is_the_default_with_postgresql(
    tmp_path: Path, url: str, database_url: str
) -> None:
    assert isinstance(opened(url, database_url, tmp_path), TableBlockStore)
    assert [path.name for path in tmp_path.iterdir()] == ["spools"]


@pytest.mark.parametrize(
    ("url", "database_url", "place"),
    [
        ("", SQLITE, "data/blocks"), ("file:", SQLITE, "data/blocks"), ("file:", POSTGRES, "data/blocks"),
        ("file:{}/other", POSTGRES, "other"), ("file://{}/other", SQLITE, "other"),
        ("file://localhost{}/other", SQLITE, "other"), ("file://{}/an%20other", SQLITE, "an other"),
    ],
)  # fmt: skip
def test_files_have_a_file_url_and_are_the_default_with_sqlite(
    tmp_path: Path, url: str, database_url: str, place: str
) -> None:
    assert isinstance(opened(url.format(tmp_path), database_url, tmp_path / "data"), FileBlockStore)
    assert (tmp_path / place / "tmp").is_dir()


@pytest.mark.parametrize(
    ("url", "database_url"),
    [
        ("postgresql:", SQLITE), ("sqlite:", POSTGRES), (POSTGRES, POSTGRES), (SQLITE, SQLITE), ("table:", SQLITE),
        ("database", SQLITE), ("database://x", SQLITE), ("/srv/blocks", SQLITE), ("blocks", SQLITE), (" ", SQLITE),
        ("file:blocks", SQLITE), ("file://host/blocks", SQLITE), ("file:///srv?x", SQLITE), ("s3:bucket", SQLITE),
        ("s3://", SQLITE), ("s3://key:hidden@bucket", SQLITE), ("s3://bucket/../other", SQLITE),
        ("s3://bucket?hidden", SQLITE),
    ],
)  # fmt: skip
def test_another_url_is_refused_and_not_repeated(tmp_path: Path, url: str, database_url: str) -> None:
    with pytest.raises(ValueError, match="blocks") as refused:
        opened(url, database_url, tmp_path)
    assert "hidden" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_the_setting_decides(tmp_path: Path) -> None:
    context = build_context(Settings(data_dir=tmp_path, blocks_url="database:"))
    assert isinstance(context.blocks, TableBlockStore)
    with pytest.raises(RuntimeError, match="without an event loop"):
        context.blocks.has(bytes(32))
    asyncio.run(context.database.close())


async def test_the_context_takes_the_loop_that_runs(tmp_path: Path) -> None:
    context = build_context(Settings(data_dir=tmp_path, blocks_url="database:"))
    with pytest.raises(RuntimeError, match="wait for itself"):
        context.blocks.has(bytes(32))
    await context.database.close()
