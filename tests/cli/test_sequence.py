"""`muniment sequence`: the way in which a registry numbers its rows, and a copy into such a registry."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from backing_up import run
from builders import TriggerDraft, Wallet, deploy, register
from copying_world import Place, copy_all, new_database, read_page, served
from muniment.storage.postgres.admin.numbering import Numbering
from postgres import Cluster

FIRST = "/triggers?sort=1&limit=100"


@pytest.fixture
def place(cluster: Cluster, tmp_path: Path) -> Place:
    """A registry without rows, in a database of its own."""
    return asyncio.run(new_database(cluster, f"sequence-{tmp_path.name}", tmp_path / "data"))


async def fill(client: httpx2.AsyncClient, wallet: int) -> list[str]:
    cid = await deploy(client)
    drafts = [TriggerDraft(cid, Wallet(wallet), version=f"1.0.{number}") for number in range(3)]
    return [(await register(client, draft))["sig"] for draft in drafts]


async def follow(client: httpx2.AsyncClient, target: str = FIRST) -> tuple[list[str], str]:
    """The names behind a link, and the next link."""
    rows, link = await read_page(client, target)
    assert link
    return [row["sig"] for row in rows], link


def told(place: Place, *arguments: str) -> str:
    result = run("sequence", *arguments, data=place.settings.data_dir, MUNIMENT_DATABASE_URL=place.url)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_the_commands_show_and_change_the_way(place: Place) -> None:
    assert told(place, "show") == "transactions"
    assert told(place, "use", "sequencer") == "rows are numbered by sequencer from now on"
    assert told(place, "show") == "sequencer"
    assert told(place, "use", "sequencer") == "sequencer is in use already"
    assert told(place, "use", "transactions") == "rows are numbered by transactions from now on"


def test_a_running_service_and_its_cursors_go_on_after_a_change(place: Place) -> None:
    async def change() -> None:
        numbering = Numbering(place.url)
        async with served(place) as client:
            seen, link = await fill(client, 3), FIRST
            for wallet, way in ((4, "sequencer"), (5, "transactions")):
                found, link = await follow(client, link)
                assert found == seen
                assert await numbering.use("sequencer" if way == "sequencer" else "transactions")
                seen = await fill(client, wallet)
            assert (await follow(client, link))[0] == seen

    asyncio.run(change())


@pytest.mark.parametrize("command", [["show"], ["use", "sequencer"]])
def test_sqlite_has_one_way(tmp_path: Path, command: list[str]) -> None:
    place = Place.at("sqlite:///muniment.db", tmp_path / "data")
    assert run("migrate", data=place.settings.data_dir).exit_code == 0
    result = run("sequence", *command, data=place.settings.data_dir)
    assert result.exit_code == 1
    assert "SQLite has one writer at a time" in result.output


def test_a_way_that_does_not_exist_is_refused(place: Place) -> None:
    result = run("sequence", "use", "clock", data=place.settings.data_dir, MUNIMENT_DATABASE_URL=place.url)
    assert result.exit_code == 2
    assert told(place, "show") == "transactions"


@pytest.mark.parametrize("way", ["transactions", "sequencer"])
def test_a_copy_keeps_the_way_of_its_target_and_new_rows_come_behind_the_copied_ones(
    place: Place, cluster: Cluster, tmp_path: Path, way: str
) -> None:
    async def fill_first() -> list[str]:
        async with served(place) as client:
            return await fill(client, 3)

    async def go_on(target: Place) -> tuple[list[str], list[str]]:
        async with served(target) as client:
            _, link = await follow(client)
            added = await fill(client, 4)
            return added, (await follow(client, link))[0]

    told(place, "use", "sequencer" if way == "transactions" else "transactions")
    asyncio.run(fill_first())
    target = asyncio.run(new_database(cluster, f"target-{tmp_path.name}", tmp_path / "target"))
    told(target, "use", way)
    assert "earlier cursors" not in copy_all(place, target).stdout
    assert told(target, "show") == way
    added, found = asyncio.run(go_on(target))
    assert found == added
