"""`muniment epoch renew`, and the epoch of a registry that is restored or copied."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from backing_up import done, run
from builders import TriggerDraft, Wallet, deploy, register
from copying_world import Place, copy_all, new_database, read_page, served
from postgres import Cluster

T = TypeVar("T")
FIRST = "/triggers?sort=1&limit=2"


def at(place: Place, work: Callable[[httpx2.AsyncClient], Awaitable[T]]) -> T:
    async def run_it() -> T:
        async with served(place) as client:
            return await work(client)

    return asyncio.run(run_it())


async def fill(client: httpx2.AsyncClient, count: int = 3) -> None:
    cid = await deploy(client)
    for number in range(count):
        await register(client, TriggerDraft(cid, Wallet(3), version=f"1.0.{number}"))


async def link_of(client: httpx2.AsyncClient) -> str:
    _, link = await read_page(client, FIRST)
    assert link
    return link


def status(place: Place, link: str) -> tuple[int, str | None]:
    async def ask(client: httpx2.AsyncClient) -> tuple[int, str | None]:
        answer = await client.get(link)
        return answer.status_code, answer.json().get("code") if answer.status_code != 200 else None

    return at(place, ask)


REFUSED = (410, "cursor-too-old")
GOOD = (200, None)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A registry with three triggers."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else "sqlite:///muniment.db"
    return filled(Place.at(url, tmp_path / "data"))


def filled(made: Place) -> Place:
    async def nothing(_: object) -> None: ...

    made.do(nothing)  # which migrates
    at(made, fill)
    return made


def test_renewing_refuses_every_cursor_of_before(place: Place) -> None:
    before = at(place, link_of)
    assert status(place, before) == GOOD
    url = {"MUNIMENT_DATABASE_URL": place.url}
    result = run("epoch", "renew", data=place.settings.data_dir, **url)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("a new epoch has begun: every earlier cursor is refused")
    assert status(place, before) == REFUSED
    between = at(place, link_of)
    assert status(place, between) == GOOD
    assert run("epoch", "renew", data=place.settings.data_dir, **url).exit_code == 0
    assert [status(place, link) for link in (before, between)] == [REFUSED] * 2


def test_the_help_says_when_it_is_needed() -> None:
    result = run("epoch", "renew", "--help", data=Path())
    assert "Litestream" in result.output


@pytest.mark.parametrize("rotate", ["--rotate", "--no-rotate"])
def test_a_restored_registry_refuses_cursors_of_before(tmp_path: Path, rotate: str) -> None:
    old = filled(Place.at("sqlite:///muniment.db", tmp_path / "data"))
    early = at(old, link_of)
    done("backup", tmp_path / "backup", data=old.settings.data_dir)
    at(old, lambda client: register_more(client, "lost"))
    late = at(old, lambda client: end_of(client, "/triggers?sort=1&limit=100"))
    new = Place.at("sqlite:///muniment.db", tmp_path / "new")
    result = run("restore", tmp_path / "backup", rotate, data=new.settings.data_dir)
    assert "Earlier cursors are refused (410 cursor-too-old)" in result.stdout
    at(new, lambda client: register_more(client, "new"))  # under the numbers of those that are lost
    assert [status(new, link) for link in (early, late)] == [REFUSED] * 2
    assert status(new, at(new, link_of)) == GOOD
    # Another restore of the same backup is another life again.
    third = Place.at("sqlite:///muniment.db", tmp_path / "third")
    done("restore", tmp_path / "backup", rotate, data=third.settings.data_dir)
    assert status(third, at(new, link_of)) == REFUSED


async def register_more(client: httpx2.AsyncClient, what: str) -> None:
    cid = await deploy(client)
    for number in range(3):
        await register(client, TriggerDraft(cid, Wallet(4), version=f"2.0.{number}-{what}"))


async def end_of(client: httpx2.AsyncClient, target: str) -> str:
    _, link = await read_page(client, target)
    assert link
    return link


def test_the_log_that_an_interrupted_restore_left_is_not_replayed(tmp_path: Path) -> None:
    old = filled(Place.at("sqlite:///muniment.db", tmp_path / "data"))
    done("backup", tmp_path / "backup", data=old.settings.data_dir)
    new = tmp_path / "new"
    new.mkdir()
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE stray (a)")
        connection.commit()
        shutil.copy(tmp_path / "other.db-wal", new / "muniment.db.restoring-wal")
    done("restore", tmp_path / "backup", "--no-rotate", data=new)
    assert {path.name for path in new.iterdir()} == {"muniment.db", "blocks", "secrets"}
    assert run("verify", data=new).exit_code == 0


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Place:
    """A place to copy to, with its schema and nothing else."""
    if request.param == "sqlite":
        return Place.at("sqlite:///target.db", tmp_path / "data")
    return asyncio.run(new_database(cluster, f"target-{tmp_path.name}", tmp_path / "data"))


def test_a_copy_goes_on_in_the_epoch_of_its_source(place: Place, target: Place) -> None:
    first = at(place, link_of)
    assert run("epoch", "renew", data=place.settings.data_dir, MUNIMENT_DATABASE_URL=place.url).exit_code == 0
    renewed = at(place, link_of)
    told = copy_all(place, target)
    assert "earlier cursors" not in told.stdout
    assert status(target, renewed) == GOOD
    assert status(target, first) == REFUSED
    assert at(target, link_of) == renewed


def test_a_copy_to_a_place_that_served_before_begins_another_epoch(place: Place, target: Place) -> None:
    at(filled(target), lambda client: register_more(client, "other"))
    theirs = at(target, lambda client: end_of(client, "/triggers?sort=1&limit=100"))
    for table in ("triggers", "function_creators", "functions", "users", "used_nonces", "events"):
        target.change((f"DELETE FROM {table}", ()))
    ours = at(place, link_of)
    told = copy_all(place, target)
    assert "TO held a registry: earlier cursors are refused (410 cursor-too-old)" in told.stdout
    assert [status(target, link) for link in (ours, theirs)] == [REFUSED] * 2
    assert status(target, at(target, link_of)) == GOOD
    assert status(place, ours) == GOOD, "FROM goes on"
