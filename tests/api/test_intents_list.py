"""GET /intents: every filter, every pair of filters and many mixes, against a plain Python model of the same rows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from intents_model import FILTERS, STATUSES, Row, Shelf, draw_body, draw_generation
from intents_world import HOUR, SETTLERS, USERS, intent_body, record, record_at
from trigger_world import check_refusal, next_of, walk

from answers import cursor_at, ok
from conftest import NOW_MS, Clock
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.wire import UINT256_MAX
from muniment.service.context import Context
from muniment.service.http import paging
from muniment.service.http.paging import OFFSET_MAX
from muniment.service.resources.intents import listing
from muniment.service.resources.intents.store import mark_expired

ROWS = 110
MIXES = 30


@pytest.fixture
async def shelf(context: Context, clock: Clock) -> Shelf:
    """Intents of every kind and both forms; some created in the same millisecond, some with the clock set back."""
    chance = random.Random(11)
    rows: list[Row] = []
    timed: list[tuple[int, dict[str, Any]]] = []
    now_ms, created_ms = NOW_MS - 4 * HOUR * 1_000, 0
    for number in range(ROWS):
        now_ms += chance.choice([0, 1, 60_000, -500])
        said = chance.choice(STATUSES[:-1])
        created_ms = max(created_ms, now_ms)
        row = Row(draw_body(chance, number, said), said, created_ms)
        timed.append((now_ms, row.record))
        rows.append(row)
    for row, name in zip(rows, await record_at(context, *timed), strict=True):
        row.record["hash"] = name
    assert clock.now_ms == NOW_MS
    return Shelf(rows)


NO_SWEEP, RIGHT = None, (0, HOUR)
# Seconds that the clock of a sweep is ahead, and its grace.
AHEAD, IMPATIENT = (5 * HOUR, HOUR), (0, 0)


@pytest.fixture(
    params=[
        (NO_SWEEP, 500), (RIGHT, 20), (AHEAD, 5),
        *(pytest.param(each, marks=pytest.mark.long) for each in [(NO_SWEEP, 5), (AHEAD, 500), (IMPATIENT, 20)]),
    ],
    ids=str,
)  # fmt: skip
async def world(
    request: pytest.FixtureRequest, context: Context, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> Shelf:
    """Before and after a sweep, also one of another time or grace than this one's.

    With a walk that reaches everything, and with shorter ones, which give up sooner. Each is asked something else.
    """
    sweep, rows_walked_max = request.param
    monkeypatch.setattr(listing, "ROWS_WALKED_MAX", rows_walked_max)  # no argument of a request reaches it
    if sweep is not None:
        ahead_s, grace_s = sweep
        assert await context.database.write(lambda tx: mark_expired(tx, Moment(NOW_MS + ahead_s * 1_000, grace_s))) > 5
    return shelf


async def hashes(client: httpx2.AsyncClient, query: dict[str, Any]) -> list[str]:
    response = await client.get("/intents", params=query)
    assert response.status_code == 200, response.text
    return [intent["hash"] for intent in response.json()]


async def test_every_filter_and_every_pair_answers_what_the_model_answers(
    client: httpx2.AsyncClient, world: Shelf
) -> None:
    chance = random.Random(12 + listing.ROWS_WALKED_MAX)
    seen = 0
    for names in [(), *itertools.combinations(FILTERS, 1), *itertools.combinations(FILTERS, 2)]:
        for _ in range(1 if len(names) > 1 else 3):
            drawn = world.draw(chance)
            query = {**{name: drawn[name] for name in names}, "sort": chance.choice([1, -1]), **draw_generation(chance)}
            rows = world.expected(query, NOW_MS)
            seen += len(rows)
            assert await hashes(client, {**query, "limit": 100}) == rows[:100], query
            assert await hashes(client, {**query, "limit": 3, "offset": 2}) == rows[2:5], query
    assert seen > 200  # the queries do not all answer nothing


async def test_mixes_of_filters_answer_what_the_model_answers_on_every_page(
    client: httpx2.AsyncClient, world: Shelf
) -> None:
    chance = random.Random(13 + listing.ROWS_WALKED_MAX)
    seen = 0
    for _ in range(MIXES):
        drawn = {name: value for name, value in world.draw(chance).items() if chance.random() < 0.3}
        query = {**drawn, "sort": chance.choice([1, -1]), **draw_generation(chance)}
        rows = world.expected(query, NOW_MS)
        seen += len(rows)
        limit = chance.choice([2, 3, 10, 100])
        pages = await walk(client, f"/intents?{urlencode({**query, 'limit': limit})}")
        assert [intent["hash"] for intent in pages] == rows, query
    assert seen > MIXES


async def test_pages_after_a_long_offset_answer_what_the_model_answers(
    client: httpx2.AsyncClient, world: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "OFFSET_QUICK_MAX", 1)
    chance = random.Random(14 + listing.ROWS_WALKED_MAX)
    for generation, offset, sort in itertools.product(("1", "2", "all"), (2, 5, 30, 200), (1, -1)):
        drawn = {name: value for name, value in world.draw(chance).items() if chance.random() < 0.2}
        query = {**drawn, "generation": generation, "sort": sort}
        rows = world.expected(query, NOW_MS)
        assert await hashes(client, {**query, "limit": 7, "offset": offset}) == rows[offset : offset + 7], query


async def test_the_rows_of_a_listing_fulfil_its_filter(client: httpx2.AsyncClient, world: Shelf) -> None:
    for status, generation in itertools.product(STATUSES, ("1", "2", "all")):
        query = {"status": status, "generation": generation}
        page = ok(await client.get("/intents", params={**query, "limit": 100})).json()
        assert len(page) == len(world.expected(query, NOW_MS)) > 0
        assert {intent["status"] for intent in page} == {status}
        for intent in page[:3]:
            assert (await client.get(f"/intents/{intent['hash']}")).json() == intent


async def test_defaults_are_ten_newest_first(client: httpx2.AsyncClient, shelf: Shelf) -> None:
    response = await client.get("/intents")
    assert [intent["hash"] for intent in response.json()] == shelf.expected({}, NOW_MS)[:10]
    assert next_of(response) is not None


async def test_deadlines_are_compared_exactly(client: httpx2.AsyncClient, context: Context) -> None:
    deadlines = [0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**256 - 2, 2**256 - 1]
    await record(context, *(intent_body(n, deadline=str(deadline)) for n, deadline in enumerate(deadlines)))
    for bound in deadlines:
        for name, expected in (
            ("deadlineAfter", [each for each in deadlines if each > bound]),
            ("deadlineBefore", [each for each in deadlines if each <= bound]),
        ):
            page = ok(await client.get("/intents", params={name: bound, "sort": 1})).json()
            assert [int(intent["deadline"]) for intent in page] == expected, (name, bound)


async def test_no_deadline_is_after_what_it_is_not_after(client: httpx2.AsyncClient, context: Context) -> None:
    await record(context, intent_body(1, deadline="5"), intent_body(2, deadline=str(UINT256_MAX)))
    for after, before in [(5, 5), (6, 5), (UINT256_MAX, 0), (UINT256_MAX, UINT256_MAX)]:
        response = await client.get("/intents", params={"deadlineAfter": after, "deadlineBefore": before})
        assert (response.status_code, response.json()) == (200, []), (after, before)


async def test_filters_know_every_spelling_of_a_value(client: httpx2.AsyncClient, context: Context) -> None:
    await record(context, intent_body(1, user=USERS[1], settler=SETTLERS[1], configSig="0x" + "aB" * 65))
    (intent,) = (await client.get("/intents")).json()
    for query in (
        {"user": USERS[1].lower()},
        {"settler": "0x" + SETTLERS[1][2:].upper()},
        {"configSig": "0x" + "AB" * 65},
    ):
        assert (await client.get("/intents", params=query)).json() == [intent], query


REFUSED = {
    "sql-user": ("user", "0x' OR 1=1 --", "invalid-address"),
    "wrong-checksum": ("user", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "invalid-address"),
    "no-settler": ("settler", "", "invalid-address"),
    "short-sig": ("configSig", "0x12", "invalid-signature"),
    "66-bytes-sig": ("configSig", "0x" + "11" * 66, "invalid-signature"),
    "unknown-status": ("status", "done", "invalid-parameter"),
    "status-in-capitals": ("status", "Created", "invalid-parameter"),
    "empty-status": ("status", "", "invalid-parameter"),
    "op-4": ("op", "4", "invalid-parameter"),
    "op-negative": ("op", "-1", "invalid-parameter"),
    "op-in-words": ("op", "swap", "invalid-parameter"),
    "deadline-negative": ("deadlineAfter", "-1", "invalid-amount"),
    "deadline-exponent": ("deadlineBefore", "1e9", "invalid-amount"),
    "deadline-fraction": ("deadlineBefore", "1.5", "invalid-amount"),
    "deadline-leading-zero": ("deadlineAfter", "01", "invalid-amount"),
    "deadline-2^256": ("deadlineAfter", str(2**256), "invalid-amount"),
    "deadline-of-thousands-of-digits": ("deadlineAfter", "1" * 5000, "invalid-amount"),
    "deadline-in-ms": ("deadlineAfter", str(NOW_MS), "invalid-timestamp"),
    "deadline-10^12": ("deadlineBefore", str(10**12), "invalid-timestamp"),
    "deadline-10^14": ("deadlineBefore", str(10**14), "invalid-timestamp"),
    "created-negative": ("createdAfter", "-1", "invalid-parameter"),
    "created-a-date": ("createdBefore", "2026-11-20", "invalid-parameter"),
    "created-2^60": ("createdBefore", str(2**60), "invalid-parameter"),
    "limit-0": ("limit", "0", "invalid-parameter"),
    "limit-101": ("limit", "101", "invalid-parameter"),
    "limit-exponent": ("limit", "1e3", "invalid-parameter"),
    "limit-arabic": ("limit", "٣", "invalid-parameter"),
    "limit-space": ("limit", "10 ", "invalid-parameter"),
    "offset-negative": ("offset", "-1", "invalid-parameter"),
    "offset-2^63": ("offset", str(2**63), "invalid-parameter"),
    "sort-0": ("sort", "0", "invalid-parameter"),
    "cursor-of-nobody": ("cursor", "abc", "invalid-parameter"),
}


@pytest.mark.one_engine
async def test_a_bad_parameter_is_refused_by_name(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    for row, (name, value, code) in REFUSED.items():
        with subtests.test(row):
            async with nothing_stored():
                response = await client.get("/intents", params={name: value})
            check_refusal(response, 400, code, parameter=name)


@pytest.mark.one_engine
async def test_a_parameter_given_twice_is_refused(client: httpx2.AsyncClient, shelf: Shelf) -> None:
    given = {**shelf.draw(random.Random(1)), "limit": 5, "offset": 0, "sort": 1, "cursor": cursor_at("intents", 1)}
    for name, value in given.items():
        response = await client.get("/intents", params=[(name, value), (name, value)])
        check_refusal(response, 400, "invalid-parameter", parameter=name)


@pytest.mark.one_engine
async def test_a_deadline_in_milliseconds_is_refused_with_a_hint_but_may_be_later(client: httpx2.AsyncClient) -> None:
    response = await client.get("/intents", params={"deadlineAfter": NOW_MS})
    assert "milliseconds?" in check_refusal(response, 400, "invalid-timestamp")["detail"]
    for value in [10**12 - 1, 10**14 + 1, UINT256_MAX]:
        response = await client.get("/intents", params={"deadlineAfter": value})
        assert (response.status_code, response.json()) == (200, []), value


async def test_an_offset_after_the_last_row_is_an_empty_page(client: httpx2.AsyncClient, shelf: Shelf) -> None:
    queries: list[dict[str, Any]] = [{}, {"status": "expired"}, {"user": USERS[0], "op": 1}, {"deadlineAfter": 1}]
    for offset in (len(shelf.rows), 1_000, 1_001, 2**32, OFFSET_MAX):
        for query in queries:
            response = await client.get("/intents", params={**query, "offset": offset})
            assert (response.status_code, response.json(), next_of(response)) == (200, [], None), (query, offset)
