"""Offsets of all three listings: after the last row no row is walked, and before it no more than 100,000 rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, LiteralString

import httpx2
import pytest
from intents_world import intent_body, record
from trigger_world import check_refusal

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http import paging
from muniment.service.http.paging import OFFSET_MAX, OFFSET_QUICK_MAX, OFFSET_WALKED_MAX
from muniment.service.resources.triggers.listing import TriggerQuery
from muniment.service.storage.scopes import has_row_after
from without_server import InProcess

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
async def test_an_offset_after_the_last_row_is_an_empty_page_without_a_walk(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = Listening(context, monkeypatch)
    for offset in (3, OFFSET_QUICK_MAX + 1, OFFSET_WALKED_MAX, OFFSET_WALKED_MAX + 1, OFFSET_MAX):
        for target in (f"{path}?offset={offset}{query}" for path in PATHS for query in OF_ALL[path]):
            for sort in (1, -1):
                response = ok(await client.get(f"{target}&sort={sort}"))
                assert response.json() == [], target
                assert "link" not in response.headers, target
            # On PostgreSQL numbers have gaps, so a walk of the few rows there may show that they have ended.
            walks = [sql for sql, _ in listening.asked if "count(*)" not in sql]
            assert walks == [] or (context.database.is_shared and offset <= OFFSET_WALKED_MAX), target
            listening.asked.clear()


@pytest.mark.usefixtures("three")
async def test_an_offset_above_100_000_before_the_last_row_is_refused_and_names_cursors(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, nothing_stored: Callable[[], Any]
) -> None:
    monkeypatch.setattr(paging, "OFFSET_QUICK_MAX", 0)
    monkeypatch.setattr(paging, "OFFSET_WALKED_MAX", 1)
    async with nothing_stored():
        for target in (f"{path}?offset=2{query}" for path in PATHS for query in OF_ALL[path]):
            problem = check_refusal(await client.get(target), 400, "invalid-parameter", parameter="offset")
            assert "cursor" in problem["detail"], target
    for path in PATHS:
        assert ok(await client.get(f"{path}?offset={OFFSET_MAX}")).json() == []
        ok(await client.get(f"{path}?offset=1"))
    monkeypatch.setattr(paging, "OFFSET_WALKED_MAX", 3)
    for path in PATHS:  # on PostgreSQL the numbers of these rows have gaps
        assert ok(await client.get(f"{path}?offset=4")).json() == []


async def add(context: Context, n: int, seq: int) -> None:
    async def write(tx: Any) -> None:
        await tx.execute(ROW, (n.to_bytes(65), bytes(20), n.to_bytes(32), bytes(32)))
        await tx.execute("UPDATE triggers SET seq = ? WHERE sig = ?", (seq, n.to_bytes(65)))

    await context.database.write(write)


@pytest.mark.parametrize("step", [1, 1_000])
async def test_the_answer_is_right_whatever_numbers_the_rows_have(
    context: Context, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(paging, "OFFSET_WALKED_MAX", 5)
    for count in range(1, 6):
        await add(context, count, step * count)
        for offset in (*range(6, 12), 10_000, OFFSET_MAX):
            query = TriggerQuery(offset=offset)
            assert not await has_row_after(context.database, "triggers", query, CLIENT)
    await add(context, 6, 7 * step)
    for offset, expected in ((0, True), (5, True), (10_000, False)):
        assert await has_row_after(context.database, "triggers", TriggerQuery(offset=offset), CLIENT) is expected


@pytest.fixture
async def caller(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    transport = InProcess(app, CLIENT)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made


async def _has_rows(*_: object) -> bool:
    return True


async def test_a_long_read_is_the_clients_own(
    caller: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("triggers.listing", "functions.store", "intents.listing"):  # as if there were as many
        monkeypatch.setattr(f"muniment.service.resources.{module}.has_row_after", _has_rows)
    listening = Listening(context, monkeypatch)
    for path in PATHS:
        assert ok(await caller.get(f"{path}?offset=2000")).json() == []
        assert [client for sql, client in listening.asked if "count(*)" not in sql] == [CLIENT], path
        listening.asked.clear()
