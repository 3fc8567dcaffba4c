"""`muniment blocks copy`: the same bytes in another store, also after interruptions and faults."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import warm
from muniment.cli.main import main
from muniment.operate.copy_blocks import Summary, copy_blocks
from muniment.protocol.errors import StorageUnavailable
from muniment.protocol.ipfs.block import Block, block_of
from muniment.service.blocks.files import FileBlockStore
from terminal import shown_on

BLOCKS = sorted(block_of(number.to_bytes(4, "big") * (1 + number * 500)) for number in range(60))
SQLITE = "sqlite:///blocks.db"


@pytest.fixture
def source(tmp_path: Path) -> FileBlockStore:
    store = FileBlockStore(tmp_path / "source")
    store.put_many(BLOCKS)
    return store


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that has been migrated."""
    url = SQLITE if request.param == "SQLite" else str(request.getfixturevalue("postgres_url"))
    assert run("migrate", "--database-url", url, data=tmp_path).exit_code == 0
    return url


def run(*arguments: str, data: Path, **environ: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data-dir", str(data)], env=environ)


def copy(source: str, target: str, *, data: Path, status: int = 0, **environ: str) -> dict[str, Any]:
    """The summary; the exit status is `status`."""
    result = run("blocks", "copy", source, target, "--json", data=data, **environ)
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def all_of(store: FileBlockStore) -> list[Block]:
    return [Block(digest, store.get(digest)) for digest in store.digests()]


def path_of(store: FileBlockStore, block: Block) -> Path:
    return store._root / block.digest.hex()[:2] / block.digest.hex()[2:]


def test_from_files_to_a_table_and_back_are_the_same_bytes(
    source: FileBlockStore, database: str, tmp_path: Path
) -> None:
    size = sum(len(block.data) for block in BLOCKS)
    copied = {"copied": 60, "bytes": size, "there": 0, "damaged": 0, "interrupted": False}
    assert copy(f"file://{source._root}", database, data=tmp_path) == copied
    assert copy(database, f"file:{tmp_path}/again", data=tmp_path) == copied
    assert all_of(FileBlockStore(tmp_path / "again")) == BLOCKS


def test_blocks_that_the_target_has_are_not_copied_again(source: FileBlockStore, database: str, tmp_path: Path) -> None:
    some = FileBlockStore(tmp_path / "some")
    some.put_many(BLOCKS[::3])
    other = block_of(b"of another registry")
    some.put_many([other])
    assert copy(f"file:{tmp_path}/some", database, data=tmp_path)["copied"] == 21
    summary = copy(f"file:{source._root}", database, data=tmp_path)
    assert (summary["copied"], summary["there"]) == (40, 20)
    assert copy(f"file:{source._root}", database, data=tmp_path)["there"] == 60
    assert copy(database, f"file:{tmp_path}/again", data=tmp_path)["copied"] == 61
    assert all_of(FileBlockStore(tmp_path / "again")) == sorted([*BLOCKS, other])


@pytest.mark.parametrize("damage", [b"", b"x"])
def test_a_damaged_block_is_named_and_the_others_are_copied(
    source: FileBlockStore, database: str, tmp_path: Path, damage: bytes
) -> None:
    path_of(source, BLOCKS[7]).write_bytes(damage)
    result = run("blocks", "copy", f"file:{source._root}", database, data=tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"WRONG block {BLOCKS[7].digest.hex()}: ")
    assert result.stderr.count("\n") == 1
    assert "59 blocks copied" in result.stdout
    assert "1 damaged" in result.stdout
    copy(database, f"file:{tmp_path}/again", data=tmp_path)
    assert all_of(FileBlockStore(tmp_path / "again")) == [*BLOCKS[:7], *BLOCKS[8:]]


def test_a_damaged_row_is_named_and_not_copied(source: FileBlockStore, tmp_path: Path) -> None:
    run("migrate", data=tmp_path)
    copy(f"file:{source._root}", "database:", data=tmp_path)
    with sqlite3.connect(tmp_path / "muniment.db") as connection:
        connection.execute("UPDATE blocks SET data = x'00' WHERE digest = ?", (BLOCKS[3].digest,))
    connection.close()
    summary = copy("sqlite:", f"file:{tmp_path}/again", data=tmp_path, status=1)
    assert (summary["copied"], summary["damaged"]) == (59, 1)
    assert not FileBlockStore(tmp_path / "again").has(BLOCKS[3].digest)


def stopping_after(count: int) -> Callable[[], bool]:
    calls: Iterator[int] = iter(range(10_000))
    return lambda: next(calls) >= count


def test_what_was_interrupted_is_counted_and_goes_on(source: FileBlockStore, tmp_path: Path) -> None:
    target = FileBlockStore(tmp_path / "target")
    seen: list[None] = []

    def once(is_stopping: Callable[[], bool]) -> Summary:
        return copy_blocks(
            source, target, on_block=lambda: seen.append(None), on_finding=pytest.fail, is_stopping=is_stopping,
            blocks_per_batch=7,
        )  # fmt: skip

    first = once(stopping_after(25))
    assert (first.copied, first.interrupted) == (25, True)
    assert all_of(target) == BLOCKS[:25], "what was counted is there"
    assert "run the command again" in str(first)
    second = once(lambda: False)
    assert (second.copied, second.there, second.interrupted) == (35, 25, False)
    assert all_of(target) == BLOCKS
    assert len(seen) == 25 + 60


class FullAtTheThird(FileBlockStore):
    """A store whose disk is full at the third batch."""

    puts = 0

    def put_many(self, blocks: Iterable[tuple[bytes, bytes]]) -> None:
        self.puts += 1
        if self.puts == 3:
            raise StorageUnavailable("the disk is full")
        super().put_many(blocks)


def test_a_target_that_fails_keeps_the_batches_before_and_the_next_copy_goes_on(
    source: FileBlockStore, tmp_path: Path
) -> None:
    with pytest.raises(StorageUnavailable, match="the disk is full"):
        copy_blocks(
            source, FullAtTheThird(tmp_path / "target"),
            on_block=lambda: None, on_finding=pytest.fail, is_stopping=lambda: False, blocks_per_batch=7,
        )  # fmt: skip
    assert all_of(FileBlockStore(tmp_path / "target")) == BLOCKS[:14]
    arguments = ("blocks", "copy", f"file:{source._root}", f"file:{tmp_path}/target")
    assert "46 blocks copied" in run(*arguments, data=tmp_path).stdout
    assert all_of(FileBlockStore(tmp_path / "target")) == BLOCKS


def test_a_target_that_fails_is_one_line(
    source: FileBlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable("the disk is full")

    monkeypatch.setattr(FileBlockStore, "put_many", fail)  # no test can fill the disk of its machine
    failed = run("blocks", "copy", f"file:{source._root}", f"file:{tmp_path}/target", data=tmp_path)
    assert (failed.exit_code, failed.stderr) == (1, "Error: the disk is full\n")


@pytest.mark.parametrize(("bad", "copied"), [({5}, 59), ({5, 6, 20, 21}, 56)], ids=["one", "two and two"])
def test_an_unreadable_block_does_not_stop_the_others(
    source: FileBlockStore, tmp_path: Path, bad: set[int], copied: int
) -> None:
    class Scratched(FileBlockStore):
        def get(self, digest: bytes) -> bytes:
            if digest in {BLOCKS[index].digest for index in bad}:
                raise StorageUnavailable("a bad sector")
            return super().get(digest)

    target, told = FileBlockStore(tmp_path / "target"), list[str]()
    summary = copy_blocks(
        Scratched(source._root), target, on_block=lambda: None, on_finding=told.append, is_stopping=lambda: False
    )
    assert (summary.copied, summary.damaged) == (copied, len(bad))
    assert told == [f"WRONG block {BLOCKS[index].digest.hex()}: a bad sector" for index in sorted(bad)]


def test_a_source_that_is_gone_ends_the_copy(source: FileBlockStore, tmp_path: Path) -> None:
    class Gone(FileBlockStore):
        def get(self, digest: bytes) -> bytes:
            raise StorageUnavailable(f"gone with {digest.hex()[:2]}")

    told: list[str] = []
    with pytest.raises(OSError, match="gone"):
        copy_blocks(
            Gone(source._root), FileBlockStore(tmp_path / "target"),
            on_block=lambda: None, on_finding=told.append, is_stopping=lambda: False,
        )  # fmt: skip
    assert len(told) == 2


def test_ctrl_c_ends_it_in_good_order_and_the_rest_follows_later(
    source: FileBlockStore, database: str, tmp_path: Path
) -> None:
    code = f"""
import functools, os, signal
from muniment.service.blocks.files import FileBlockStore
from muniment.cli.main import main
from muniment.operate import copy_blocks
copy_blocks.copy_blocks = functools.partial(copy_blocks.copy_blocks, blocks_per_batch=5)
get, reads = FileBlockStore.get, iter(range(1000))
def interrupted(self, digest):
    if next(reads) == 23:
        os.kill(os.getpid(), signal.SIGINT)
    return get(self, digest)
FileBlockStore.get = interrupted
main(["blocks", "copy", "file:{source._root}", {database!r}, "--data-dir", "{tmp_path}", "--json"])
"""
    done = warm.run(program=["-c", code])
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "")
    summary = json.loads(done.stdout)
    assert (summary["copied"], summary["interrupted"]) == (24, True)
    assert copy(f"file:{source._root}", database, data=tmp_path)["there"] == 24
    assert copy(database, f"file:{tmp_path}/again", data=tmp_path)["copied"] == 60


def test_a_terminal_is_shown_a_bar(source: FileBlockStore, tmp_path: Path) -> None:
    path_of(source, BLOCKS[7]).write_bytes(b"x")
    terminal, other_end = os.openpty()
    words = ["blocks", "copy", f"file:{source._root}", f"file:{tmp_path}/to", "--json"]
    process = warm.popen(words, os.environ | {"PYTHONPATH": str(warm.UNHURRIED)}, stdin=other_end, stderr=other_end)
    os.close(other_end)
    shown = shown_on(terminal).decode()
    told, _ = process.communicate()
    assert process.returncode == 1
    assert json.loads(told)["copied"] == 59
    assert "60/60" in shown
    assert f"WRONG block {BLOCKS[7].digest.hex()}" in shown


@pytest.mark.parametrize(
    ("source_url", "target_url", "said"),
    [
        ("file:/nowhere", "file:", "/nowhere is not a directory of blocks"),
        ("file:relative", "file:", "absolute path"),
        ("file://host/path", "file:", "absolute path"),
        ("database:", "file:", "lacks migrations"),
        ("file:", "postgresql:", "not in another 'postgresql' place"),
        ("file:", "ftp://user:hidden@host/x", "no database engine for 'ftp'"),
        ("file:", "", "no database engine for ''"),
    ],
)
def test_an_impossible_place_is_reported_in_one_line(
    tmp_path: Path, source_url: str, target_url: str, said: str
) -> None:
    FileBlockStore(tmp_path / "blocks")
    (tmp_path / "muniment.db").touch()
    if source_url == "file:":
        run("migrate", data=tmp_path)
    result = run("blocks", "copy", source_url, target_url, data=tmp_path)
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert "hidden" not in result.output
    assert not Path("/nowhere").exists()
