"""Pages of GET /triggers and GET /functions: limit, offset, sort, and cursors in the Link header."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import pytest_asyncio
from standing_world import ENGINES, standing_registry
from trigger_world import check_refusal, next_of, read_page, walk

from answers import cursor_at, ok
from applications import another_process, client_of, readers_held
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http.paging import OFFSET_MAX
from muniment.service.storage.database import DatabaseLimits

PATHS = ("/triggers", "/functions")
INTEGERS = {
    "exponent": "1e3", "arabic": "%D9%A3", "space-after": "10%20", "space-before": "%2010", "plus": "+10",
    "empty": "", "hex": "0x10", "fraction": "1.0", "leading-zero": "010", "minus-zero": "-0", "newline": "10%0A",
    "10^30": "1" + "0" * 30, "5000-digits": "1" * 5000, "null": "null", "underscore": "1_0",
}  # fmt: skip
REFUSED = {
    "limit": ("0", "-1", "101", *INTEGERS.values()),
    "offset": ("-1", str(2**63), str(2**64), *INTEGERS.values()),
    "sort": ("0", "2", "-2", "asc", "01", "-01", *INTEGERS.values()),
}


def cursor_of(plain: str) -> str:
    return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Shelf:
    """A registry that its readers share; seven rows of each listing, oldest first."""

    context: Context
    client: httpx2.AsyncClient
    rows: dict[str, Rows]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENGINES)
async def shelf(request: pytest.FixtureRequest) -> AsyncIterator[Shelf]:
    async with standing_registry(request) as standing:
        client = standing.client
        headers = {"x-api-key": await api_key_of(client, Wallet())}
        functions = [
            ok(await client.post("/functions", files=Bundle(f"F{n}").files, headers=headers)).json() for n in range(7)
        ]
        drafts = [TriggerDraft(functions[0]["CID"], version=f"{number}.0.0") for number in range(7)]
        triggers = [await register(client, draft) for draft in drafts]
        yield Shelf(standing.context, client, {"/triggers": triggers, "/functions": functions})


reads_the_shelf = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.one_engine
async def test_a_number_in_another_spelling_or_range_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for path, (name, texts) in itertools.product(PATHS, REFUSED.items()):
            for text in texts:
                with subtests.test(path, name=name, text=text[:40]):
                    response = await client.get(f"{path}?{name}={text}")
                    check_refusal(response, 400, "invalid-parameter", parameter=name)


@pytest.mark.one_engine
async def test_a_known_parameter_given_twice_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    everywhere = ["limit=5&limit=5", "offset=0&offset=1", "sort=1&sort=1", "cursor=&cursor="]
    filters = ["active=true&active=true", "signer=&signer=", "createdAfter=1&createdAfter=1"]
    targets = [f"{path}?{query}" for path in PATHS for query in everywhere]
    for target in targets + [f"/triggers?{query}" for query in filters]:
        with subtests.test(target):
            name = target.partition("?")[2].partition("=")[0]
            check_refusal(await client.get(target), 400, "invalid-parameter", parameter=name)


@reads_the_shelf
async def test_unknown_parameters_are_ignored_and_kept_in_links(shelf: Shelf) -> None:
    for path, rows in shelf.rows.items():
        response = ok(await shelf.client.get(f"{path}?Limit=0&x=1&x=2&y=%3E%22%0D%0A&limit=2&%27%20OR%201=1"))
        assert response.json() == rows[:-3:-1], path
        target = next_of(response)
        assert target is not None
        assert parse_qs(urlsplit(target).query)["y"] == ['>"\r\n']
        assert ok(await shelf.client.get(target)).json() == rows[4:2:-1], path


MALFORMED_QUERIES = {
    **dict.fromkeys(("%ff=1", "limit=%ff", "x=%C3%28"), "not percent-encoded UTF-8"),
    **dict.fromkeys(("x=%", "limit=1%2", "%zz=1"), "send %25 for the character %"),
    "&".join(["a=1"] * 201): "more than 200 parameters",
}


@pytest.mark.one_engine
async def test_a_malformed_query_string_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, (query, said) in itertools.product(PATHS, MALFORMED_QUERIES.items()):
        with subtests.test(path, query=query[:40]):
            response = await client.get(f"{path}?{query}")
            check_refusal(response, 400, "invalid-parameter")
            assert said in response.json()["detail"]


@reads_the_shelf
async def test_an_offset_after_the_last_row_is_an_empty_page(shelf: Shelf) -> None:
    for path, rows in shelf.rows.items():
        filters = ["&active=false", "&active=true", f"&signer={rows[0]['signer']}"] if path == "/triggers" else []
        offsets = [7, 1_000, 1_001, 2**32, OFFSET_MAX - 1, OFFSET_MAX]
        for offset, query in itertools.product(offsets, ("", "&limit=1", "&limit=100&sort=1", *filters)):
            response = await shelf.client.get(f"{path}?offset={offset}{query}")
            assert (response.status_code, response.json(), next_of(response)) == (200, [], None), (offset, query)


async def _has_rows(*_: object) -> bool:
    return True


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("database_limits", [DatabaseLimits(slow_read_seconds_max=600)], ids=[""])
async def test_a_large_offset_is_read_while_others_are_answered(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = await deploy(client)
    shown = {"/functions": cid, "/triggers": (await register(client, TriggerDraft(cid)))["sig"]}
    for module in ("triggers.listing", "functions.store"):  # as if there were as many
        monkeypatch.setattr(f"muniment.service.resources.{module}.has_row_after", _has_rows)
    async with readers_held(context.database):
        slow = [asyncio.create_task(client.get(f"{path}?offset=99999")) for path in PATHS]
        await asyncio.sleep(0.1)
        for path in PATHS:
            assert shown[path] in ok(await client.get(path)).text
        assert not any(each.done() for each in slow)
    for each in slow:
        assert ok(await each).json() == []


async def fill(context: Context, count: int) -> None:
    """That many triggers, as rows that were never signed."""
    await context.database.write(
        lambda tx: tx.execute(
            """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
               INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
               SELECT CAST(printf('%065d', i) AS BLOB), zeroblob(20), CAST(printf('%032d', i) AS BLOB), zeroblob(32),
                      'Mimic', 0, 1, '{}' FROM n""",
            (count,),
        )
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_read_that_takes_too_long_is_given_up(client: httpx2.AsyncClient, context: Context) -> None:
    await fill(context, 5_000)
    limits = DatabaseLimits(slow_read_seconds_max=0)
    async with another_process(context, limits) as hasty, client_of(Application(hasty)) as client_of_hasty:
        response = await client_of_hasty.get("/triggers?offset=4999&signer=" + "0x" + "0" * 40)
    assert check_refusal(response, 503, "deadline-exceeded")
    assert int(response.headers["retry-after"]) > 0
    assert len(ok(await client.get("/triggers?offset=4999&signer=" + "0x" + "0" * 40)).json()) == 1


@reads_the_shelf
async def test_links_followed_to_the_end_give_every_row_once(shelf: Shelf) -> None:
    for (path, rows), sort, limit in itertools.product(shelf.rows.items(), (1, -1), (1, 2, 6, 7, 8)):
        target = f"{path}?limit={limit}&sort={sort}"
        assert await walk(shelf.client, target) == rows[::sort], target
        assert await walk(shelf.client, f"{target}&offset=2") == rows[::sort][2:], target


@reads_the_shelf
async def test_newest_first_has_a_link_only_while_rows_are_left(shelf: Shelf) -> None:
    for path, (limit, has_next) in itertools.product(PATHS, ((6, True), (7, False), (8, False), (100, False))):
        page, following = await read_page(shelf.client, f"{path}?limit={limit}")
        assert (len(page), following is not None) == (min(limit, 7), has_next), (path, limit)


async def test_oldest_first_the_last_link_gives_what_comes_later(client: httpx2.AsyncClient) -> None:
    rows, first = await read_page(client, "/triggers?sort=1&limit=3")
    assert rows == []
    assert first is not None
    cid = await deploy(client)
    made = [await register(client, TriggerDraft(cid, version=f"{number}.0.0")) for number in range(4)]
    page, second = await read_page(client, first)
    assert page == made[:3]
    assert second is not None
    page, third = await read_page(client, second)
    assert page == made[3:]
    assert third is not None
    assert (await read_page(client, third))[0] == []
    made.append(await register(client, TriggerDraft(cid, version="9.0.0")))
    assert (await read_page(client, third))[0] == made[4:]
    assert (await read_page(client, first))[0] == made[:3]  # an earlier link still says the same


@reads_the_shelf
async def test_links_keep_the_filters(shelf: Shelf) -> None:
    for path, name in (("/triggers", "signer"), ("/functions", "creator")):
        rows = shelf.rows[path]
        assert await walk(shelf.client, f"{path}?limit=2&{name}={rows[0][name]}") == rows[::-1], path
        assert await walk(shelf.client, f"{path}?limit=2&{name}=0x{'0' * 40}") == [], path


MALFORMED = {
    "empty": "", "words": "abc", "padded": str(cursor_at("triggers", 1)) + "=", "other-letter": cursor_of("x-1"),
    "letter-of-no-listing": cursor_of("s-1"),
    "negative": cursor_of("t--1"), "leading-zero": cursor_of("t-01"), "plus": cursor_of("t-+1"),
    "underscore": cursor_of("t-1_0"), "space": cursor_of("t- 1"), "2^63": cursor_of(f"t-{2**63}"),
    "5000-digits": cursor_of("t-" + "1" * 5000), "no-number": cursor_of("t-"), "not-ascii": cursor_of("t-٣"),
    "spare-bits": "dC0x" + "MR", "unicode": "٣",
}  # fmt: skip


@pytest.mark.one_engine
async def test_a_cursor_that_no_page_gave_out_is_refused(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for path, (row, cursor) in itertools.product(PATHS, MALFORMED.items()):
        with subtests.test(path, row=row):
            response = await client.get(path, params={"cursor": cursor})
            check_refusal(response, 400, "invalid-parameter", parameter="cursor")


@pytest.mark.one_engine
async def test_a_cursor_and_an_offset_are_refused_together(client: httpx2.AsyncClient) -> None:
    for path in PATHS:
        response = await client.get(f"{path}?cursor={cursor_at('triggers', 3)}&offset=1")
        check_refusal(response, 400, "invalid-parameter", parameter="cursor")
