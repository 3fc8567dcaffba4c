"""`Link: rel="prev"` of listings: from the newest rows to those that come later, of which none is missed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, LiteralString
from urllib.parse import parse_qs, urlsplit

import asyncpg
import httpx2
import pytest
from trigger_world import check_refusal, next_of, prev_of, walk

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.service.context import Context
from muniment.service.http.paging import Cursor
from muniment.service.storage import epoch
from muniment.service.storage.database import Parameters, Row
from muniment.service.storage.epoch import FRESH_SECONDS, Epochs
from operator_client import USER, IntentDraft, OperationsDraft, OperatorClient, operator_key

ON_POSTGRES = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
CREATOR = Wallet(5)
LISTINGS = [
    "/triggers", f"/triggers?signer={Wallet().address}&active=true", "/functions",
    f"/functions?creator={CREATOR.address}", "/intents", f"/intents?generation=all&user={USER.address}&status=created",
]  # fmt: skip
every_listing = pytest.mark.parametrize("path", LISTINGS)
Add = Callable[[int], Awaitable[None]]


@pytest.fixture
async def add(client: httpx2.AsyncClient, context: Context, path: str) -> Add:
    """Adds a row to the listing; each number is another one."""
    operator = OperatorClient(client, await operator_key(context))
    headers = {"x-api-key": await api_key_of(client, CREATOR)}
    cid = await deploy(client, wallet=Wallet(6)) if path.startswith("/triggers") else ""

    async def make(number: int) -> None:
        if path.startswith("/triggers"):
            await register(client, TriggerDraft(cid, version=f"{number}.0.0"))
        elif path.startswith("/functions"):
            answer = await client.post("/functions", files=Bundle(f"F{number}").files, headers=headers)
            assert answer.status_code == 200, answer.text
        else:
            await operator.recorded(OperationsDraft(number) if "all" in path and number % 2 else IntentDraft(number))

    return make


def on(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


def identity(row: dict[str, Any]) -> str:
    return row.get("sig") or row.get("hash") or row["CID"]


async def later(client: httpx2.AsyncClient, context: Context, shown: httpx2.Response) -> list[Any]:
    """The rows after the link of a page, to the end, without those that PostgreSQL may give again."""
    target = prev_of(shown)
    assert target
    rows = await walk(client, target)
    known = {identity(row) for row in shown.json()}
    if context.settings.database_url.startswith("sqlite"):
        assert not known & {identity(row) for row in rows}
    return [row for row in rows if identity(row) not in known]


@every_listing
async def test_the_link_of_the_newest_rows_gives_exactly_those_that_come_later(
    client: httpx2.AsyncClient, context: Context, path: str, add: Add
) -> None:
    empty = ok(await client.get(path))
    assert empty.json() == []
    target = prev_of(empty)
    for number in range(3):  # the last page links to what comes later still
        await add(number)
        assert target
        page = ok(await client.get(target))
        assert page.json() == ok(await client.get(path)).json()[:1]
        assert prev_of(page) is None
        target = next_of(page)
    shown = ok(await client.get(on(path, "limit=5")))
    assert len(shown.json()) == 3
    assert await later(client, context, empty) == shown.json()[::-1]
    assert await later(client, context, shown) == []
    for number in range(3, 8):
        await add(number)
    newest = ok(await client.get(on(path, "limit=8"))).json()
    assert [identity(row) for row in newest[5:]] == [identity(row) for row in shown.json()]
    assert await later(client, context, shown) == newest[4::-1]


@pytest.mark.parametrize("path", ["/triggers"])
async def test_only_a_page_that_begins_at_the_newest_row_has_it(
    client: httpx2.AsyncClient, path: str, add: Add
) -> None:
    for number in range(3):
        await add(number)
    first = await client.get(f"{path}?limit=1")
    assert first.headers["link"].index("next") < first.headers["link"].index("prev")
    for target in (next_of(first) or "", f"{path}?offset=1", f"{path}?sort=1"):
        assert prev_of(await client.get(target)) is None, target


@pytest.mark.parametrize("path", ["/triggers"])
async def test_a_list_of_signatures_has_none_because_it_would_fill_the_header(
    client: httpx2.AsyncClient, path: str, add: Add
) -> None:
    await add(1)
    sig = (await client.get(path)).json()[0]["sig"]
    assert prev_of(await client.get(f"{path}?sigs={sig}"))
    answer = await client.get(f"{path}?sigs={','.join([sig] * 50)}")
    assert (len(answer.json()), "link" in answer.headers) == (1, False)


async def test_it_keeps_every_parameter_but_the_place_and_the_order(client: httpx2.AsyncClient) -> None:
    query = f"signer={Wallet().address}&%73ort=-1&offset=0&limit=3&x=%3E&%26=%22"
    target = urlsplit(prev_of(await client.get(f"/triggers?{query}")) or "")
    asked = parse_qs(target.query)
    (cursor,) = asked.pop("cursor")
    assert (Cursor.parse(cursor).seq, Cursor.parse(cursor).is_of("triggers")) == (0, True)
    assert (target.path, asked) == (
        "/triggers", {"signer": [Wallet().address], "limit": ["3"], "x": [">"], "&": ['"'], "sort": ["1"]},
    )  # fmt: skip


async def test_after_a_restore_it_is_refused(client: httpx2.AsyncClient, context: Context) -> None:
    target = prev_of(await client.get("/triggers"))
    await context.database.write(lambda tx: epoch.renew(tx, 0x0BADCAFE))
    context.epochs._until = float("-inf")
    check_refusal(await client.get(target or ""), 410, "cursor-too-old")
    assert (await client.get(prev_of(await client.get("/triggers")) or "")).status_code == 200


@asynccontextmanager
async def under_way(url: str, sig: str) -> AsyncGenerator[None]:
    """The row of a trigger has a new number in a transaction of another process, which commits at the end."""
    driver = asyncpg
    connection = await driver.connect(url)
    try:
        await connection.execute(f"CREATE TEMP TABLE held AS SELECT * FROM triggers WHERE sig = '\\x{sig[2:]}'::bytea")
        await connection.execute("DELETE FROM triggers WHERE sig IN (SELECT sig FROM held)")
        await connection.execute("BEGIN; UPDATE held SET seq = next_seq(); INSERT INTO triggers SELECT * FROM held")
        yield
        await connection.execute("COMMIT")
    finally:
        await connection.close()


@ON_POSTGRES
@pytest.mark.spoils_events("a row is moved by SQL")
async def test_a_row_of_a_lower_number_that_is_committed_later_is_not_missed(
    client: httpx2.AsyncClient, context: Context
) -> None:
    cid = await deploy(client)
    first, held = [await register(client, TriggerDraft(cid, version=f"{number}.0.0")) for number in (1, 2)]
    async with under_way(context.settings.database_url, held["sig"]):
        second = await register(client, TriggerDraft(cid, version="3.0.0"))
        shown = await client.get("/triggers")
        assert shown.json() == [second, first]
    assert (await client.get("/triggers")).json() == [second, held, first]
    assert await later(client, context, shown) == [held]


class Counted:
    """A database that counts what it is asked for."""

    def __init__(self, context: Context) -> None:
        self._database = context.database
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        self.asked.append(sql)
        return await self._database.fetch(sql, parameters)


async def test_the_bound_is_read_every_two_seconds(context: Context) -> None:
    counted, now = Counted(context), [100.0]
    epochs = Epochs(counted, seconds=lambda: now[0])  # pyright: ignore[reportArgumentType] - it has all of a database
    numbers = epochs.numbers(counted, "triggers")  # pyright: ignore[reportArgumentType] - likewise
    for _ in range(50):
        await numbers.settled()
    assert len(counted.asked) == 1
    now[0] += FRESH_SECONDS * 1.1
    await numbers.settled()
    assert len(counted.asked) == 2
