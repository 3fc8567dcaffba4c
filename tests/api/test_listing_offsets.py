"""Offsets of all three listings: behind the last row nothing is walked, and before it no more than 100,000 rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, LiteralString

import asyncpg
import httpx2
import pytest
from intents_world import intent_body, record
from trigger_world import check_refusal

from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.app import Application
from muniment.context import Context
from muniment.http.paging import OFFSET_MAX, OFFSET_QUICK_MAX, OFFSET_WALKED_MAX
from muniment.storage.row_counts import has_row_behind

PATHS = ("/triggers", "/functions", "/intents")
CLIENT = "192.0.2.1"
ROWS = 2_500
ROW = """INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
  VALUES (?, ?, ?, ?, 'Mimic', 0, 1, '{}')"""
SMALL_STEP = 7


@pytest.fixture
async def three(client: httpx2.AsyncClient, context: Context) -> None:
    """Three of each: triggers, functions, intents."""
    cid = await deploy(client)
    headers = {"x-api-key": await api_key_of(client, Wallet())}
    for number in range(2):
        await client.post("/functions", files=Bundle(f"F{number}").files, headers=headers)
    for number in range(3):
        await register(client, TriggerDraft(cid, version=f"{number}.0.0"))
    await record(context, *(intent_body(number) for number in range(3)))


class Listening:
    """Notes the statements of a database that are not asked on the event loop, and who waits for them."""

    def __init__(self, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[str, str]] = []
        fetch_slow = context.database.fetch_slow

        async def listen(sql: LiteralString, parameters: Any = (), *, client: str = "") -> Any:
            self.asked.append((sql, client))
            return await fetch_slow(sql, parameters, client=client)

        monkeypatch.setattr(context.database, "fetch_slow", listen)


OF_ALL = {
    "/triggers": ("", "&active=true", "&active=false", f"&signer={Wallet().address}", "&createdAfter=1"),
    "/functions": ("", f"&creator={Wallet().address}"),
    "/intents": ("", "&status=created", "&op=1", f"&user={Wallet().address}&op=2", "&deadlineAfter=1"),
}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("path", PATHS)
async def test_an_offset_behind_the_last_row_is_an_empty_page_without_a_walk(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    listening = Listening(context, monkeypatch)
    for offset in (3, OFFSET_QUICK_MAX + 1, OFFSET_WALKED_MAX, OFFSET_WALKED_MAX + 1, 2**62, OFFSET_MAX):
        for query in OF_ALL[path]:
            for sort in (1, -1):
                response = await client.get(f"{path}?offset={offset}&sort={sort}{query}")
                assert (response.status_code, response.json()) == (200, []), (offset, query)
                assert "link" not in response.headers
    assert [sql for sql, _ in listening.asked if "count(*)" not in sql] == []


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("path", PATHS)
async def test_an_offset_above_100_000_before_the_last_row_is_refused_and_names_cursors(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch,
    nothing_stored: Callable[[], Any], path: str,
) -> None:  # fmt: skip
    table = path.removeprefix("/")
    # As if there were as many: the rows that are really there come on top.
    context.database.rows_counted[table] = context.database.rows_counted["function_creators"] = (0, 100_100)
    listening = Listening(context, monkeypatch)
    async with nothing_stored():
        for offset in (100_001, 100_099, 100_102):
            for query in OF_ALL[path]:
                response = await client.get(f"{path}?offset={offset}{query}")
                problem = check_refusal(response, 400, "invalid-parameter", parameter="offset")
                assert "cursor" in problem["detail"]
    assert [sql for sql, _ in listening.asked if "count(*)" not in sql] == []
    response = await client.get(f"{path}?offset=100103")
    assert (response.status_code, response.json()) == (200, [])
    assert (await client.get(f"{path}?offset=100000")).status_code == 200


async def fill(context: Context, first: int, count: int) -> None:
    async def write(tx: Any) -> None:
        for n in range(first, first + count):
            await tx.execute(ROW, (n.to_bytes(65), bytes(20), n.to_bytes(32), bytes(32)))

    await context.database.write(write)


async def test_rows_are_counted_once_and_those_added_since(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    database = context.database
    await fill(context, 0, ROWS)
    listening = Listening(context, monkeypatch)
    for offset, expected in ((ROWS - 1, True), (ROWS, False), (2**63 - 1, False)):
        assert await has_row_behind(database, "triggers", offset, CLIENT) is expected
    listening.asked.clear()
    await fill(context, ROWS, 5)
    for offset, expected in ((ROWS + 4, True), (ROWS + 5, False), (1_001, True)):
        assert await has_row_behind(database, "triggers", offset, CLIENT) is expected
    # On PostgreSQL the rows that are not visible for good are counted each time.
    assert [sql for sql, _ in listening.asked if "uncounted" not in sql] == []


@pytest.mark.parametrize("step", [1, SMALL_STEP])
async def test_the_count_is_right_whatever_is_added_between(context: Context, step: int) -> None:
    count, steps = 0, {"step": step, "long_step": 2 * step}
    for added in (0, 1, SMALL_STEP - 1, SMALL_STEP, 2 * SMALL_STEP, 1):
        await fill(context, count, added)
        count += added
        for offset in range(count + 3):
            assert await has_row_behind(context.database, "triggers", offset, CLIENT, **steps) is (count > offset)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_row_that_appears_below_others_is_counted(context: Context, database_url: str) -> None:
    late: Any = await asyncpg.connect(database_url)
    transaction = late.transaction()
    await transaction.start()
    await late.execute(
        "INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record) "
        "VALUES ($1, $2, $3, $3, 'Mimic', 0, 1, '{}')",
        bytes(64) + b"\xff", bytes(20), bytes(31) + b"\xff",
    )  # fmt: skip
    await fill(context, 1_000, 20)
    assert not await has_row_behind(context.database, "triggers", 20, CLIENT)
    assert await has_row_behind(context.database, "triggers", 19, CLIENT)
    await transaction.commit()
    await late.close()
    assert await has_row_behind(context.database, "triggers", 20, CLIENT)
    assert not await has_row_behind(context.database, "triggers", 21, CLIENT)


@pytest.fixture
async def caller(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=app, client=(CLIENT, 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made


@pytest.mark.parametrize("path", PATHS)
async def test_a_long_read_is_the_clients_own(
    caller: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    context.database.rows_counted[path.removeprefix("/")] = (0, 100_000)
    listening = Listening(context, monkeypatch)
    assert (await caller.get(f"{path}?offset=2000")).json() == []
    assert [client for sql, client in listening.asked if "count(*)" not in sql] == [CLIENT]
