"""Pages of GET /triggers and GET /functions: limit, offset, sort, and cursors in the Link header."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from trigger_world import check_refusal, next_of, read_page, walk

from answers import cursor_at
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


@pytest.fixture
async def functions(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """Seven functions, oldest first."""
    headers = {"x-api-key": await api_key_of(client, Wallet())}
    answers = [await client.post("/functions", files=Bundle(f"F{n}").files, headers=headers) for n in range(7)]
    return [answer.json() for answer in answers]


@pytest.fixture
async def triggers(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """Seven triggers, oldest first."""
    cid = await deploy(client)
    return [await register(client, TriggerDraft(cid, version=f"{number}.0.0")) for number in range(7)]


@pytest.fixture
def rows(request: pytest.FixtureRequest, path: str) -> list[dict[str, Any]]:
    """Seven of what `path` lists, oldest first."""
    return request.getfixturevalue(path.removeprefix("/"))


@pytest.mark.one_engine
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", REFUSED)
async def test_a_number_in_another_spelling_or_range_is_refused(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any], path: str, name: str
) -> None:
    async with nothing_stored():
        for text in REFUSED[name]:
            response = await client.get(f"{path}?{name}={text}")
            assert response.status_code == 400, text
            check_refusal(response, 400, "invalid-parameter", parameter=name)


@pytest.mark.one_engine
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["limit=5&limit=5", "offset=0&offset=1", "sort=1&sort=1", "cursor=&cursor="])
async def test_a_known_parameter_given_twice_is_refused(client: httpx2.AsyncClient, path: str, query: str) -> None:
    check_refusal(await client.get(f"{path}?{query}"), 400, "invalid-parameter", parameter=query.partition("=")[0])


@pytest.mark.one_engine
@pytest.mark.parametrize("query", ["active=true&active=true", "signer=&signer=", "createdAfter=1&createdAfter=1"])
async def test_a_known_filter_given_twice_is_refused(client: httpx2.AsyncClient, query: str) -> None:
    response = await client.get(f"/triggers?{query}")
    check_refusal(response, 400, "invalid-parameter", parameter=query.partition("=")[0])


@pytest.mark.parametrize("path", PATHS)
async def test_unknown_parameters_are_ignored_and_kept_in_links(
    client: httpx2.AsyncClient, path: str, rows: list[dict[str, Any]]
) -> None:
    response = await client.get(f"{path}?Limit=0&x=1&x=2&y=%3E%22%0D%0A&limit=2&%27%20OR%201=1")
    assert response.json() == rows[:-3:-1]
    target = next_of(response)
    assert target is not None
    assert parse_qs(urlsplit(target).query)["y"] == ['>"\r\n']
    assert (await client.get(target)).json() == rows[4:2:-1]


@pytest.mark.one_engine
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("query", "said"),
    [
        *((query, "not percent-encoded UTF-8") for query in ("%ff=1", "limit=%ff", "x=%C3%28")),
        *((query, "send %25 for the character %") for query in ("x=%", "limit=1%2", "%zz=1")),
        ("&".join(["a=1"] * 201), "more than 200 parameters"),
    ],
)
async def test_a_malformed_query_string_is_refused(
    client: httpx2.AsyncClient, path: str, query: str, said: str
) -> None:
    response = await client.get(f"{path}?{query}")
    check_refusal(response, 400, "invalid-parameter")
    assert said in response.json()["detail"]


@pytest.mark.parametrize("path", PATHS)
async def test_an_offset_after_the_last_row_is_an_empty_page(
    client: httpx2.AsyncClient, path: str, rows: list[dict[str, Any]]
) -> None:
    assert len(rows) == 7
    filters = ["&active=false", "&active=true", f"&signer={rows[0]['signer']}"] if path == "/triggers" else []
    offsets = [7, 1_000, 1_001, 2**32, OFFSET_MAX - 1, OFFSET_MAX]
    for offset, query in itertools.product(offsets, ("", "&limit=1", "&limit=100&sort=1", *filters)):
        response = await client.get(f"{path}?offset={offset}{query}")
        assert (response.status_code, response.json(), next_of(response)) == (200, [], None), (offset, query)


async def _has_rows(*_: object) -> bool:
    return True


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("database_limits", [DatabaseLimits(slow_read_seconds_max=600)], ids=[""])
@pytest.mark.parametrize("path", PATHS)
async def test_a_large_offset_is_read_while_others_are_answered(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch, path: str, rows: list[dict[str, Any]]
) -> None:
    for module in ("triggers.listing", "functions.store"):  # as if there were as many
        monkeypatch.setattr(f"muniment.service.resources.{module}.has_row_after", _has_rows)
    async with readers_held(context.database):
        slow = asyncio.create_task(client.get(f"{path}?offset=99999"))
        await asyncio.sleep(0.1)
        assert (await client.get(path)).json() == rows[::-1]
        assert not slow.done()
    assert (await slow).json() == []


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
    assert len((await client.get("/triggers?offset=4999&signer=" + "0x" + "0" * 40)).json()) == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("sort", [1, -1])
async def test_links_followed_to_the_end_give_every_row_once(
    client: httpx2.AsyncClient, path: str, rows: list[dict[str, Any]], sort: int
) -> None:
    for limit in (1, 2, 3, 6, 7, 8, 100):
        assert await walk(client, f"{path}?limit={limit}&sort={sort}") == rows[::sort], limit
        assert await walk(client, f"{path}?limit={limit}&sort={sort}&offset=2") == rows[::sort][2:], limit


@pytest.mark.parametrize("path", PATHS)
async def test_newest_first_has_a_link_only_while_rows_are_left(
    client: httpx2.AsyncClient, path: str, rows: list[dict[str, Any]]
) -> None:
    for limit, has_next in ((6, True), (7, False), (8, False), (100, False)):
        page, following = await read_page(client, f"{path}?limit={limit}")
        assert (len(page), following is not None) == (min(limit, len(rows)), has_next), limit


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


@pytest.mark.parametrize("path", PATHS)
async def test_links_keep_the_filters(client: httpx2.AsyncClient, path: str, rows: list[dict[str, Any]]) -> None:
    name = "signer" if path == "/triggers" else "creator"
    owner = rows[0][name]
    assert await walk(client, f"{path}?limit=2&{name}={owner}") == rows[::-1]
    assert await walk(client, f"{path}?limit=2&{name}=0x{'0' * 40}") == []


MALFORMED = {
    "empty": "", "words": "abc", "padded": str(cursor_at("triggers", 1)) + "=", "other-letter": cursor_of("x-1"),
    "letter-of-no-listing": cursor_of("s-1"),
    "negative": cursor_of("t--1"), "leading-zero": cursor_of("t-01"), "plus": cursor_of("t-+1"),
    "underscore": cursor_of("t-1_0"), "space": cursor_of("t- 1"), "2^63": cursor_of(f"t-{2**63}"),
    "5000-digits": cursor_of("t-" + "1" * 5000), "no-number": cursor_of("t-"), "not-ascii": cursor_of("t-٣"),
    "spare-bits": "dC0x" + "MR", "unicode": "٣",
}  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("cursor", MALFORMED.values(), ids=MALFORMED)
async def test_a_cursor_that_no_page_gave_out_is_refused(client: httpx2.AsyncClient, path: str, cursor: str) -> None:
    response = await client.get(path, params={"cursor": cursor})
    check_refusal(response, 400, "invalid-parameter", parameter="cursor")


@pytest.mark.one_engine
@pytest.mark.parametrize("path", PATHS)
async def test_a_cursor_and_an_offset_are_refused_together(client: httpx2.AsyncClient, path: str) -> None:
    response = await client.get(f"{path}?cursor={cursor_at('triggers', 3)}&offset=1")
    check_refusal(response, 400, "invalid-parameter", parameter="cursor")
