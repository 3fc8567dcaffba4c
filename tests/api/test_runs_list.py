"""GET /executions: filters, order, both ways of paging, and the newest run of each trigger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from standing_world import ENGINES, standing_registry

from answers import ok, target_of
from builders import Wallet
from conftest import Clock
from muniment.service.context import Context
from muniment.service.resources.runs import listing
from runs_world import Relayer, hash_of, listed, read, registered, relayer, run_body, skipped, stopped, with_intents

MINUTE = 60_000
EVERY_MINUTE = {"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": 0}
RESULTS: list[dict[str, Any]] = [{}, stopped(), skipped(), with_intents("0x" + "11" * 32)]


@dataclass(frozen=True)
class Shelf:
    """Runs of relayers and triggers of a registry that its readers share."""

    client: httpx2.AsyncClient
    relayers: list[Relayer]
    triggers: list[dict[str, Any]]
    runs: list[dict[str, Any]]


async def shelf_of(context: Context, client: httpx2.AsyncClient, clock: Clock) -> Shelf:
    """A run for each result, relayer and trigger but the last, oldest first, as a listing shows them."""
    relayers = [await relayer(context, client, f"r{number}", number) for number in (1, 2)]
    triggers = [await registered(client, wallet=Wallet(number), config=EVERY_MINUTE) for number in (1, 2, 3)]
    recorded: list[dict[str, Any]] = []
    clock.now_ms = (clock.now_ms // MINUTE + 1) * MINUTE
    for result, by, trigger in product(RESULTS, relayers, triggers[:2]):
        recorded.append(await by.record(run_body(trigger, clock.now_ms, **result)))
        clock.advance(minutes=1)
    assert [each["hash"] for each in ok(await client.get("/executions", params={"limit": 100, "sort": 1})).json()] == [
        each["hash"] for each in recorded
    ]
    return Shelf(client, relayers, triggers, recorded)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def shelf(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with standing_registry(request) as standing:
        yield await shelf_of(standing.context, standing.client, standing.clock)


reads_the_shelf = pytest.mark.asyncio(loop_scope="module")


def hashes(runs: list[dict[str, Any]], **wanted: Any) -> list[str]:
    """The hashes of those that have these members, newest first."""
    found = [each["hash"] for each in runs if all(each[name] == value for name, value in wanted.items())]
    return found[::-1]


@reads_the_shelf
async def test_every_combination_of_filters_finds_its_runs(shelf: Shelf) -> None:
    client = shelf.client
    choices: dict[str, list[str]] = {
        "triggerSig": ["", shelf.triggers[0]["sig"], shelf.triggers[2]["sig"]],  # the last has no run
        "relayer": ["", shelf.relayers[1].address, Wallet(9).address],
        "result": ["", "nothing", "stopped", "skipped", "intents", "missed"],
    }
    for values in product(*choices.values()):
        query = {name: value for name, value in zip(choices, values, strict=True) if value}
        expected = hashes(shelf.runs, **query)
        assert await listed(client, limit=100, **query) == expected, query
        assert await listed(client, limit=100, sort=1, **query) == expected[::-1], query
        assert await listed(client, limit=1, offset=1, **query) == expected[1:2], query


@reads_the_shelf
async def test_a_page_shows_the_runs_as_they_are(shelf: Shelf) -> None:
    assert ok(await shelf.client.get("/executions", params={"limit": 100})).json() == shelf.runs[::-1]


@reads_the_shelf
async def test_times_bound_a_page(shelf: Shelf) -> None:
    since = shelf.runs[0]["timestamp"]
    expected = hashes(shelf.runs)
    after, before = since + 3 * MINUTE, since + 9 * MINUTE
    assert await listed(shelf.client, createdAfter=after, createdBefore=before, limit=100) == expected[-10:-4]
    assert await listed(shelf.client, createdAfter=before, createdBefore=after) == []


@reads_the_shelf
async def test_cursors_lead_through_all_runs_once(shelf: Shelf) -> None:
    for sort, filters in product((1, -1), ({}, {"result": "stopped"})):
        url, found = f"/executions?limit=3&sort={sort}" + "".join(f"&{k}={v}" for k, v in filters.items()), list[str]()
        for _ in range(len(shelf.runs)):
            page = ok(await shelf.client.get(url))
            found += [each["hash"] for each in page.json()]
            following = target_of(page)
            if following is None or not page.json():
                break
            url = following
        assert found == hashes(shelf.runs, **filters)[::-sort], (sort, filters)


async def test_a_follower_sees_what_comes_later(client: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    shelf = await shelf_of(context, client, clock)
    newest = ok(await client.get("/executions", params={"limit": 1}))
    assert [each["hash"] for each in newest.json()] == hashes(shelf.runs)[:1]
    body = run_body(shelf.triggers[2], clock.now_ms)
    await shelf.relayers[0].record(body)
    later = [each["hash"] for each in ok(await client.get(target_of(newest, "prev") or "")).json()]
    assert later[-1] == hash_of(body)


@reads_the_shelf
async def test_a_cursor_of_another_listing_is_refused(shelf: Shelf) -> None:
    link = target_of(ok(await shelf.client.get("/triggers?limit=1&sort=1"))) or ""
    refused = await shelf.client.get(link.replace("/triggers", "/executions"))
    assert (refused.status_code, refused.json()["errors"][0]["parameter"]) == (400, "cursor")


@reads_the_shelf
async def test_the_newest_run_of_each_trigger(shelf: Shelf) -> None:
    client, runs, sigs = shelf.client, shelf.runs, [each["sig"] for each in shelf.triggers]
    unknown = "0x" + "2" * 128 + "1b"

    def newest(**wanted: Any) -> list[str]:
        found = [hashes(runs, triggerSig=sig, **wanted)[:1] for sig in sigs]
        return [each for each in hashes(runs) if [each] in found]

    for filters in ({}, {"result": "stopped"}, {"relayer": runs[0]["relayer"]}, {"result": "missed"}):
        query = {"triggerSigs": ",".join([*sigs, unknown]), "latest": "1", **filters}
        assert await listed(client, **query) == newest(**filters), filters
        assert await listed(client, **query, sort=1) == newest(**filters)[::-1]
        assert await listed(client, **query, limit=1, offset=1) == newest(**filters)[1:2]
    assert await listed(client, triggerSigs=sigs[2], latest="1") == []
    assert await listed(client, triggerSigs=unknown, latest="1") == []
    assert await listed(client, triggerSigs=sigs[0], latest="1", offset=2_000) == []


@reads_the_shelf
async def test_a_long_offset_ends_the_listing(shelf: Shelf) -> None:
    assert await listed(shelf.client, offset=1_001) == []
    assert await listed(shelf.client, offset=2**63 - 1, result="intents") == []


@reads_the_shelf
async def test_a_run_is_found_by_its_hash_in_any_letter_case(shelf: Shelf) -> None:
    found = await read(shelf.client, "0x" + shelf.runs[0]["hash"][2:].upper())
    assert found["hash"] == shelf.runs[0]["hash"]


async def test_a_page_ends_before_it_is_too_long(
    client: httpx2.AsyncClient, context: Context, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_BYTES_MAX", 100_000)
    monkeypatch.setattr(listing, "_GROUP_BYTES_MAX", 60_000)
    own, trigger = await relayer(context, client), await registered(client, config=EVERY_MINUTE)
    clock.now_ms = (clock.now_ms // MINUTE + 1) * MINUTE
    bodies = [run_body(trigger, clock.now_ms + n * MINUTE, logs=["x" * 4_000] * 10) for n in range(4)]
    clock.advance(minutes=3)
    for body in bodies:
        await own.record(body)
    page = ok(await client.get("/executions"))
    assert [each["hash"] for each in page.json()] == [hash_of(body) for body in bodies[:1:-1]]
    assert len(page.content) <= 100_000
    rest = ok(await client.get(target_of(page) or ""))
    assert [each["hash"] for each in rest.json()] == [hash_of(body) for body in bodies[1::-1]]


SIG = "0x" + "1" * 128 + "1b"
REFUSED: list[tuple[dict[str, str], str]] = [
    ({"latest": "1"}, "latest"), ({"triggerSigs": SIG}, "latest"),
    ({"latest": "0"}, "latest"), ({"latest": "1", "triggerSigs": ""}, "triggerSigs"),
    ({"latest": "1", "triggerSigs": ",".join([SIG] * 101)}, "triggerSigs"),
    ({"triggerSig": "0x12"}, "triggerSig"), ({"triggerSig": "0x" + "f" * 130}, "triggerSig"),
    ({"latest": "1", "triggerSigs": SIG, "triggerSig": SIG}, "triggerSig"),
    ({"relayer": "0x"}, "relayer"), ({"relayer": "' OR 1=1 --"}, "relayer"), ({"result": "valid"}, "result"),
    ({"createdAfter": "-1"}, "createdAfter"), ({"createdBefore": str(2**60)}, "createdBefore"),
    ({"sort": "0"}, "sort"), ({"limit": "0"}, "limit"), ({"limit": "101"}, "limit"), ({"offset": "-1"}, "offset"),
    ({"cursor": "x"}, "cursor"), ({"cursor": "ci0x", "offset": "1"}, "cursor"),
]  # fmt: skip


@pytest.mark.one_engine
async def test_a_bad_query_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for query, parameter in REFUSED:
        with subtests.test(parameter, query=str(query)[:80]):
            refused = await client.get("/executions", params=query)
            assert refused.status_code == 400
            assert parameter in refused.json()["errors"][0]["parameter"]


@pytest.mark.one_engine
async def test_an_unknown_or_malformed_hash(client: httpx2.AsyncClient) -> None:
    unknown = await client.get(f"/executions/0x{'00' * 32}")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "execution-not-found")
    for text in ("0x12", "x", "0x" + "0" * 63, "0x" + "0" * 65):
        assert (await client.get(f"/executions/{text}")).status_code == 400
