"""`muniment backup`: an incomplete backup replaces no earlier one, and foreign files in the directory stay."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backing_up import (
    backup,
    blocks,
    corrupt_index,
    data,
    describe,
    done,
    fill,
    refused,
    run,
    snapshot,
    tree,
    with_more,
)
from builders import Bundle, deploy
from muniment.operate import backup as making

__all__ = ["backup", "data"]  # the fixtures


@pytest.mark.parametrize("words", [["backup"], ["restore", "--rotate"]], ids=" ".join)
@pytest.mark.parametrize("url", ["postgresql://muniment:hidden@127.0.0.1:9/x", "mysql://x"])
def test_another_engine_has_tools_of_its_own(tmp_path: Path, words: list[str], url: str) -> None:
    said = refused(*words, tmp_path / "backup", "--database-url", url, data=tmp_path / "data")
    assert "this command is for SQLite; " in said
    assert "PostgreSQL" in said
    assert "hidden" not in said
    assert list(tmp_path.iterdir()) == []


def test_where_no_registry_is_nothing_is_made(tmp_path: Path) -> None:
    result = run("backup", tmp_path / "backup", data=tmp_path / "data")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no registry here: " in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["data", "documents"])
def test_a_directory_that_holds_something_else_is_left_alone(data: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/letter").write_text("dear")
    before = tree(tmp_path)
    assert "which is not part of a backup" in refused("backup", tmp_path / place, data=data)
    assert tree(tmp_path) == before


def test_blocks_are_not_backed_up_to_themselves(data: Path, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    (data / "blocks").rename(tmp_path / "backup/blocks")
    said = refused("backup", tmp_path / "backup", data=data, MUNIMENT_BLOCKS_URL=f"file://{tmp_path}/backup/blocks")
    assert "where the service keeps its own blocks" in said


def test_a_damaged_registry_is_not_backed_up_and_an_earlier_backup_stays(
    data: Path, backup: Path, tmp_path: Path
) -> None:
    fill(data, with_more)
    before = {name: content for name, content in tree(backup).items() if "/blocks/" not in name}
    kept = {path.name for path in blocks(backup)}
    healthy = {each: each.read_bytes() for each in (data / "secrets", data / "muniment.db")}
    fresh = next(path for path in blocks(data) if path.name not in kept)
    healthy[fresh] = fresh.read_bytes()
    damages: list[tuple[Callable[[], Any], str]] = [
        (lambda: fresh.write_bytes(b"x"), "1 of 2 functions have missing or damaged blocks; no backup was made"),
        (fresh.unlink, "1 of 2 functions have missing"),
        (lambda: (data / "secrets").write_text("c0ffee\n"), "cannot be read as a ring of secrets"),
        (lambda: corrupt_index(data / "muniment.db"), "the database is damaged: "),
        (lambda: (data / "muniment.db").write_bytes(b"no database" * 1000), "file is not a database"),
    ]
    for damage, reason in damages:
        damage()
        assert reason in refused("backup", backup, data=data)
        assert {name: content for name, content in tree(backup).items() if "/blocks/" not in name} == before
        for path, content in healthy.items():
            path.write_bytes(content)
    assert done("restore", backup, "--no-rotate", data=tmp_path / "old")["functions"] == 1
    assert done("backup", backup, data=data)["functions"] == 2


def test_a_block_that_was_copied_in_time_is_not_asked_for_again(data: Path, backup: Path, tmp_path: Path) -> None:
    for path in blocks(data):
        path.write_bytes(b"x")
    assert done("backup", backup, data=data)["blocksCopied"] == 0
    done("restore", backup, "--no-rotate", data=tmp_path / "new")
    assert run("verify", data=tmp_path / "new").exit_code == 0


def test_a_block_that_was_damaged_in_the_backup_is_mended(data: Path, backup: Path) -> None:
    blocks(backup)[1].write_bytes(b"x")
    assert done("backup", backup, data=data)["blocksCopied"] == 1
    assert [path.read_bytes() for path in blocks(backup)] == [path.read_bytes() for path in blocks(data)]


def test_what_a_killed_backup_left_makes_room_first(data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (backup / f"snapshot-{'0' * 16}").mkdir()
    (backup / ".backup.json.1.part").write_text("{")
    take, current = making.take_snapshot, snapshot(backup)

    def take_where_there_is_room(source: Path, target: Path, advance: Callable[[int, int], None]) -> None:
        assert {path.name for path in backup.iterdir()} == {
            "backup.json", "blocks", "lock", current.name, target.parent.name,
        }  # fmt: skip
        take(source, target, advance)

    monkeypatch.setattr(making, "take_snapshot", take_where_there_is_room)
    done("backup", backup, data=data)


def test_a_backup_that_this_release_cannot_read_is_left_alone(data: Path, backup: Path) -> None:
    for changes, reason in (({"format": 2}, "newer release, in format 2"), ({"format": "1"}, "is damaged: ")):
        describe(backup, **changes)
        before = tree(backup)
        assert reason in refused("backup", backup, data=data)
        assert tree(backup) == before


def test_only_one_backup_runs_at_a_time(data: Path, backup: Path, tmp_path: Path) -> None:
    before = tree(backup)
    with (backup / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)  # as a restore does
        assert "another command is using" in refused("backup", backup, data=data)
        done("restore", backup, "--no-rotate", data=tmp_path / "one")
    with (backup / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another command is using" in refused("backup", backup, data=data)
        assert "is being made" in refused("restore", backup, "--no-rotate", data=tmp_path / "two")
    assert tree(backup) == before
    assert not (tmp_path / "two").exists()


def test_deploying_again_repairs_the_block_that_a_backup_complained_of(data: Path, tmp_path: Path) -> None:
    blocks(data)[0].unlink()
    assert "Upload these bundles again to repair them" in refused("backup", tmp_path / "backup", data=data)

    async def again(client: httpx2.AsyncClient) -> None:
        await deploy(client, Bundle())

    fill(data, again)
    done("backup", tmp_path / "backup", data=data)


@pytest.mark.parametrize("place", ["data", "database", "blocks"])
def test_a_backup_is_not_made_the_registry_itself(data: Path, backup: Path, tmp_path: Path, place: str) -> None:
    before = tree(tmp_path)
    settings = {
        "data": {},
        "database": {"MUNIMENT_DATABASE_URL": f"sqlite:///{backup}/other.db"},
        "blocks": {"MUNIMENT_BLOCKS_URL": f"file://{backup}/blocks"},
    }
    target = backup.parent / "link" if place == "data" else tmp_path / "new"
    (tmp_path / "link").symlink_to(backup)
    said = refused("restore", backup, "--rotate", data=target, **settings[place])
    assert "the backup keeps its blocks" in said if place == "blocks" else "is the backup itself" in said
    (tmp_path / "link").unlink()
    assert tree(tmp_path) == before
    assert not (tmp_path / "new").exists()
    done("backup", backup, data=data)
