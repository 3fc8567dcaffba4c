"""`muniment pins`, and the queue of pins in a registry that is restored."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backing_up import done, run
from builders import Bundle, deploy
from copying_world import Place, served
from muniment.service.pins import queue

OLD_MS = 1_700_000_000_000
LATE_MS = 32_503_680_000_000  # in the year 3000


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A registry with three bundles: the first is pinned, the second waits after failures, the third is taken."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else "sqlite:///muniment.db"
    return filled(Place.at(url, tmp_path / "data"))


def filled(made: Place) -> Place:
    async def nothing(_: object) -> None: ...

    async def fill() -> None:
        async with served(made) as client:
            await three(client)

    made.do(nothing)  # which migrates
    asyncio.run(fill())
    return made


async def three(client: httpx2.AsyncClient) -> None:
    for number in range(3):
        await deploy(client, Bundle(version=f"1.0.{number}"))


def fill_queue(made: Place) -> list[str]:
    """Add the rows; the CIDs in the order of the registration."""

    async def fill(context: Any) -> list[str]:
        await queue.add_missing(context.database, OLD_MS)
        rows = await context.database.fetch("SELECT digest, record FROM functions ORDER BY seq")
        changes = (
            f"pinned_at_ms = {OLD_MS + 1000}",
            f"failures = 7, error = 'no space', due_at_ms = {LATE_MS}",
            f"taken = 1, turn = 1, due_at_ms = {LATE_MS}",
        )
        for (digest, _), change in zip(rows, changes, strict=True):
            sql = f"UPDATE pins SET {change} WHERE digest = ?"
            await context.database.write(lambda tx, sql=sql, digest=digest: tx.execute(sql, (digest,)))
        return [json.loads(record)["CID"] for _, record in rows]

    return made.do(fill, migrates=False)


def pins(made: Place, *words: str) -> Any:
    return run("pins", *words, data=made.settings.data_dir, MUNIMENT_DATABASE_URL=made.url)


def test_the_list_shows_what_waits_and_why_and_what_is_pinned(place: Place) -> None:
    first, second, third = fill_queue(place)
    lines = pins(place, "list").stdout.splitlines()
    since = "waiting since 2023-11-14T22:13:20.000Z"
    assert sorted(lines) == sorted([
        f"{second}  {since}, failed 7 times, next try 3000-01-01T00:00:00.000Z: no space", f"{third}  {since}",
    ])  # fmt: skip
    assert pins(place, "list", "--pinned").stdout == f"{first}  pinned 2023-11-14T22:13:21.000Z\n"
    told = {each["cid"]: each for each in json.loads(pins(place, "list", "--json").stdout)}
    assert told[second] == {
        "cid": second, "state": "waiting", "since": "2023-11-14T22:13:20.000Z", "due": "3000-01-01T00:00:00.000Z",
        "failures": 7, "error": "no space",
    }  # fmt: skip
    assert told[third]["state"] == "taken"
    assert json.loads(pins(place, "list", "--json", "--pinned").stdout) == [
        {"cid": first, "state": "pinned", "since": "2023-11-14T22:13:21.000Z", "due": None, "failures": 0,
         "error": None}
    ]  # fmt: skip
    assert len(pins(place, "list", "--limit", "1").stdout.splitlines()) == 1


def test_a_retry_is_for_bundles_that_wait_all_or_some(place: Place) -> None:
    _, second, third = fill_queue(place)
    assert pins(place, "retry", third).stdout == "0 bundles are due now\n"
    assert pins(place, "retry", second, third).stdout == "1 bundle is due now\n"
    (row,) = [each for each in place.rows()["pins"] if each[6] == "no space"]
    assert row[5] == 0
    assert abs(row[2] - time.time() * 1000) < 60_000
    assert pins(place, "retry").stdout == "1 bundle is due now\n"


def test_a_retry_refuses_what_is_no_cid_and_changes_nothing(place: Place) -> None:
    fill_queue(place)
    before = place.rows()
    result = pins(place, "retry", "Qm")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: neither a CIDv0")
    assert place.rows() == before


def test_a_recheck_lets_pinned_bundles_wait_again(place: Place) -> None:
    fill_queue(place)
    assert pins(place, "recheck").stdout == "1 bundle is due now\n"
    assert [row[7] for row in place.rows()["pins"]] == [None] * 3
    assert pins(place, "recheck").stdout == "0 bundles are due now\n"


@pytest.mark.parametrize("command", ["list", "retry", "recheck"])
def test_without_a_registry_the_status_is_2(tmp_path: Path, command: str) -> None:
    assert run("pins", command, data=tmp_path / "absent").exit_code == 2
    assert not (tmp_path / "absent").exists()


def test_a_new_epoch_rechecks_every_pin(place: Place) -> None:
    fill_queue(place)
    url = {"MUNIMENT_DATABASE_URL": place.url}
    assert run("epoch", "renew", data=place.settings.data_dir, **url).exit_code == 0
    assert [row[7] for row in place.rows()["pins"]] == [None] * 3


def test_the_queue_is_in_a_backup_and_a_restore_rechecks_every_pin(tmp_path: Path) -> None:
    old = filled(Place.at("sqlite:///muniment.db", tmp_path / "data"))
    _, second, _ = fill_queue(old)
    done("backup", tmp_path / "backup", data=old.settings.data_dir)
    new = Place.at("sqlite:///muniment.db", tmp_path / "new")
    done("restore", tmp_path / "backup", "--no-rotate", data=new.settings.data_dir)
    assert [row[7] for row in new.rows()["pins"]] == [None] * 3
    told = {each["cid"]: each for each in json.loads(pins(new, "list", "--json").stdout)}
    assert len(told) == 3
    assert told[second]["error"] == "no space"
