"""Pages of GET /intents: limit, offset, sort, cursors in the Link header, and how long a page may be."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from intents_world import USERS, intent_body, log_body, proposal_body, record, record_at
from trigger_world import check_refusal, next_of, read_page, walk

from answers import cursor_at
from applications import another_process, client_of, readers_held
from muniment.protocol.intents.types import FIRST, NEWEST_SHOWN
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.resources.intents import listing, store
from muniment.service.storage import open_database
from muniment.service.storage.database import DatabaseLimits

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
async def rows(client: httpx2.AsyncClient, context: Context) -> list[dict[str, Any]]:
    """Seven intents, oldest first."""
    names = await record(context, *(intent_body(number) for number in range(7)))
    return [(await client.get(f"/intents/{name}")).json() for name in names]


@pytest.mark.parametrize("sort", [1, -1])
async def test_links_followed_to_the_end_give_every_row_once(
    client: httpx2.AsyncClient, rows: list[dict[str, Any]], sort: int
) -> None:
    for limit in (1, 2, 3, 6, 7, 8, 100):
        assert await walk(client, f"/intents?limit={limit}&sort={sort}") == rows[::sort], limit
        assert await walk(client, f"/intents?limit={limit}&sort={sort}&offset=2") == rows[::sort][2:], limit


async def test_offsets_give_the_same_pages(client: httpx2.AsyncClient, rows: list[dict[str, Any]]) -> None:
    for sort in (1, -1):
        for offset in range(8):
            page = (await client.get(f"/intents?limit=3&sort={sort}&offset={offset}")).json()
            assert page == rows[::sort][offset : offset + 3], (sort, offset)


async def test_newest_first_has_a_link_only_while_rows_are_left(
    client: httpx2.AsyncClient, rows: list[dict[str, Any]]
) -> None:
    for limit, has_next in ((6, True), (7, False), (8, False), (100, False)):
        page, following = await read_page(client, f"/intents?limit={limit}")
        assert (len(page), following is not None) == (min(limit, len(rows)), has_next), limit


async def test_oldest_first_the_last_link_gives_what_comes_later(client: httpx2.AsyncClient, context: Context) -> None:
    empty, first = await read_page(client, "/intents?sort=1&limit=3")
    assert (empty, first is None) == ([], False)
    names = await record(context, *(intent_body(number) for number in range(4)))
    page, second = await read_page(client, first or "")
    assert [intent["hash"] for intent in page] == names[:3]
    page, third = await read_page(client, second or "")
    assert [intent["hash"] for intent in page] == names[3:]
    assert (await read_page(client, third or ""))[0] == []
    (later,) = await record(context, intent_body(9))
    assert [intent["hash"] for intent in (await read_page(client, third or ""))[0]] == [later]


async def test_links_keep_the_filters(client: httpx2.AsyncClient, rows: list[dict[str, Any]]) -> None:
    for query in (f"user={USERS[0]}&op=1", "status=created", "deadlineAfter=1", "createdAfter=0&settler=0x" + "0" * 40):
        expected = [] if "settler" in query else rows
        assert await walk(client, f"/intents?limit=2&{query}") == expected[::-1]
        assert await walk(client, f"/intents?limit=2&sort=1&{query}") == expected


@pytest.mark.one_engine
async def test_a_cursor_and_an_offset_are_refused_together(client: httpx2.AsyncClient) -> None:
    response = await client.get(f"/intents?cursor={cursor_at('intents', 3)}&offset=1")
    check_refusal(response, 400, "invalid-parameter", parameter="cursor")


async def test_a_cursor_before_every_row_is_accepted(client: httpx2.AsyncClient, rows: list[dict[str, Any]]) -> None:
    first = cursor_at("intents", 0)
    assert (await read_page(client, f"/intents?cursor={first}"))[0] == []
    assert (await read_page(client, f"/intents?sort=1&cursor={first}"))[0] == rows


async def test_a_client_that_follows_cursors_sees_each_row_of_two_writers_once(
    client: httpx2.AsyncClient, context: Context
) -> None:
    url, data_dir = context.settings.database_url, context.settings.data_dir
    others = [open_database(url, data_dir=data_dir) for _ in range(2)]

    async def write(number: int) -> list[str]:
        names: list[str] = []
        for nonce in range(40):
            body = intent_body(nonce, user=USERS[number])
            names += await record_at(context, (context.clock.now_ms(), body), database=others[number])
        return names

    async def follow() -> list[str]:
        seen: list[str] = []
        target = "/intents?sort=1&limit=7"
        while len(seen) < 80:
            page, following = await read_page(client, target)
            seen += [intent["hash"] for intent in page]
            target = following or target
            await asyncio.sleep(0)
        return seen

    try:
        async with asyncio.timeout(60):
            first, second, seen = await asyncio.gather(write(0), write(1), follow())
    finally:
        for each in others:
            await each.close()
    assert sorted(seen) == sorted([*first, *second])
    for names in (first, second):
        assert [name for name in seen if name in names] == names


async def test_a_listing_shows_the_newest_fifty_of_each(client: httpx2.AsyncClient, context: Context) -> None:
    logs = [log_body(number) for number in range(1_000)]
    await record(
        context,
        intent_body(1, proposals=[proposal_body(number) for number in range(NEWEST_SHOWN + 1)]),
        intent_body(2, logs=logs),
        intent_body(3, proposals=[proposal_body(0)], logs=logs[:NEWEST_SHOWN]),
    )
    page = (await client.get("/intents?sort=1")).json()
    shown = [([each["data"] for each in one["proposals"]], [each["data"] for each in one["logs"]]) for one in page]
    assert shown[0] == ([f"0x{number:08x}" for number in range(1, NEWEST_SHOWN + 1)], [])
    assert shown[1] == ([], [f"line {number}" for number in range(950, 1_000)])
    assert shown[2] == (["0x00000000"], [f"line {number}" for number in range(NEWEST_SHOWN)])


async def test_a_page_has_at_most_8_mib_and_a_link_to_the_rest(client: httpx2.AsyncClient, context: Context) -> None:
    proposals = [proposal_body(0, data=f"0x{number:02x}" + "0" * 60_000) for number in range(NEWEST_SHOWN)]
    names = await record(context, *(intent_body(number, proposals=proposals) for number in range(4)))
    for sort in (1, -1):
        response = await client.get(f"/intents?sort={sort}")
        assert len(response.content) <= listing.PAGE_BYTES_MAX == 8 * 1024 * 1024
        assert [intent["hash"] for intent in response.json()] == names[::sort][:2]
        following = next_of(response)
        assert following is not None
        assert [intent["hash"] for intent in await walk(client, following)] == names[::sort][2:]


@pytest.mark.parametrize("sort", [1, -1])
async def test_a_page_ends_where_the_next_intent_would_make_it_too_long(
    client: httpx2.AsyncClient, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, sort: int
) -> None:
    three = len(json.dumps(rows[:3], separators=(",", ":")))
    for bytes_max, count in ((1, 1), (three - 1, 2), (three, 3), (three + 1, 3)):
        monkeypatch.setattr(listing, "PAGE_BYTES_MAX", bytes_max)  # no argument of a request reaches it
        response = await client.get(f"/intents?limit=100&sort={sort}")
        assert response.json() == rows[::sort][:count], bytes_max
        assert await walk(client, f"/intents?limit=100&sort={sort}") == rows[::sort], bytes_max


async def test_the_rows_that_one_statement_reads_are_bounded() -> None:
    def head(proposal_count: int, log_count: int) -> store.Head:
        return store.Head(FIRST, 1, b"", "created", 1, None, None, None, proposal_count, log_count, "{}")

    heads = [head(1_000, 10_000)] * 10 + [head(0, 0)] * 90
    groups = store.groups(heads)
    assert [each for group in groups for each in group] == heads
    assert max(sum(each.weight for each in group) for group in groups) <= 1_000
    assert len(groups) <= 6
    assert store.groups([]) == []


async def _has_rows(*_: object) -> bool:
    return True


@ON_SQLITE
@pytest.mark.parametrize("database_limits", [DatabaseLimits(slow_read_seconds_max=600)], ids=[""])
async def test_a_large_offset_is_read_while_others_are_answered(
    client: httpx2.AsyncClient, context: Context, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "has_row_after", _has_rows)  # as if there were as many
    async with readers_held(context.database):
        slow = asyncio.create_task(client.get("/intents?offset=99999"))
        await asyncio.sleep(0.1)
        assert (await client.get("/intents")).json() == rows[::-1]
        assert not slow.done()
    assert (await slow).json() == []


@ON_SQLITE
async def test_a_read_that_takes_too_long_is_given_up(
    client: httpx2.AsyncClient, context: Context, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = await record(context, *(intent_body(number, user=USERS[1], op=2) for number in range(5)))
    # Neither filter selects so few, and no such walk sees both. No argument of a request reaches this limit.
    monkeypatch.setattr(listing, "ROWS_WALKED_MAX", 4)
    query = f"/intents?user={rows[0]['user']}&op=2"
    assert (await client.get(query)).json() == []
    async with another_process(context, DatabaseLimits(slow_read_seconds_max=0)) as hasty:
        monkeypatch.setattr(listing, "has_row_after", _has_rows)  # as if there were as many
        async with client_of(Application(hasty)) as client_of_hasty:
            for target in ("/intents?offset=1001", query):
                response = await client_of_hasty.get(target)
                check_refusal(response, 503, "deadline-exceeded")
                assert int(response.headers["retry-after"]) > 0
            monkeypatch.setattr(listing, "ROWS_WALKED_MAX", len(others))
            assert (await client_of_hasty.get(query)).json() == []
