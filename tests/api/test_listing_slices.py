"""Pages longer than the memory for one client: they leave in slices, and after a cursor end at 1 MiB."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from trigger_world import next_of, walk

from answers import cursor_at, ok
from conftest import NOW_MS
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http.paging import CURSOR_PAGE_BYTES_MAX
from muniment.service.http.reply import Ready, Streamed
from muniment.service.resources.functions.store import FunctionQuery, search as search_functions
from muniment.service.resources.triggers.listing import TriggerQuery, search as search_triggers
from muniment.service.storage.database import Row, Transaction
from muniment.service.storage.pages import SLICE_BYTES
from without_server import InProcess

KIB = 1024
LONG_BYTES = 20 * KIB
INSERT_TRIGGER = """INSERT INTO triggers
  (sig, signer, digest, function_digest, protocol, live, end_date_ms, created_at_ms, record)
  VALUES (?, ?, ?, ?, 'Mimic', ?, 0, ?, ?)"""
INSERT_FUNCTION = """INSERT INTO functions (digest, content, inputs, created_at_ms, name_key, record)
  VALUES (?, ?, '{}', 1, ?, ?)"""
INSERT_CREATOR = """INSERT INTO function_creators (creator, function_seq, name, version, joined_at_ms)
  SELECT ?, seq, ?, '1.0.0', 1 FROM functions WHERE digest = ?"""
OWNER = b"\1" * 20
PATHS = ("/triggers", "/functions")


def record_of(n: int, length: int) -> str:
    """A record of so many bytes, of which most are in characters of four: bytes are limited, not characters."""
    long, short = divmod(length - len(str(n)) - 15, 4)
    return f'{{"n":{n},"x":"é{"😀" * long}{"x" * short}"}}'


async def fill(context: Context, lengths: Sequence[int]) -> list[str]:
    """As many triggers, and functions, of these lengths; the records."""
    records = [record_of(n, length) for n, length in enumerate(lengths)]

    async def write(tx: Transaction) -> None:
        for n, record in enumerate(records):
            digest = n.to_bytes(32)
            values = (n.to_bytes(65), OWNER, digest, bytes(32), int(n % 5 > 0), n, record)
            await tx.execute(INSERT_TRIGGER, values)
            await tx.execute(INSERT_FUNCTION, (digest, digest, b"hello", record))
            await tx.execute(INSERT_CREATOR, (OWNER, str(n), digest))

    await context.database.write(write)
    return records


@pytest.fixture
async def caller(app: Application) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that does not mind that these records are no triggers."""
    async with httpx2.AsyncClient(transport=InProcess(app), base_url="http://test") as made:
        yield made


def page_of(records: Sequence[str]) -> bytes:
    return f"[{','.join(records)}]".encode()


def within_1_mib(records: Sequence[str]) -> Sequence[str]:
    """The records of a page after a cursor, counted one by one."""
    shown, length = 0, len("[]")
    for record in records:
        length += len(record.encode()) + len(",") * (shown > 0)
        if shown and length > CURSOR_PAGE_BYTES_MAX:
            break
        shown += 1
    return records[:shown]


FILTERS = {
    "/triggers": ("", f"&signer=0x{OWNER.hex()}", "&active=true", "&active=false", "&createdAfter=3"),
    "/functions": ("", f"&creator=0x{OWNER.hex()}"),
}


@pytest.mark.parametrize("path", PATHS)
async def test_a_long_page_is_the_same_as_its_rows_one_by_one(
    caller: httpx2.AsyncClient, context: Context, path: str
) -> None:
    await fill(context, [LONG_BYTES] * 15)
    for query in FILTERS[path]:
        for sort in (1, -1):
            target = f"{path}?sort={sort}{query}"
            ones = [ok(await caller.get(f"{target}&limit=1&offset={offset}")).content[1:-1] for offset in range(15)]
            ones = [each for each in ones if each]
            for offset, limit in ((0, 5), (0, 100), (2, 10), (2, 13)):
                answer = ok(await caller.get(f"{target}&limit={limit}&offset={offset}"))
                assert answer.content == b"[%b]" % b",".join(ones[offset:][:limit]), target


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_without_a_cursor_holds_its_limit_however_long(
    caller: httpx2.AsyncClient, context: Context, path: str
) -> None:
    records = await fill(context, [LONG_BYTES] * 101)
    answer = await caller.get(f"{path}?limit=100&sort=1")
    assert answer.content == page_of(records[:100])
    assert len(answer.content) > 1.9 * CURSOR_PAGE_BYTES_MAX
    assert (await caller.get(next_of(answer) or "")).content == page_of(records[100:])
    answer = await caller.get(f"{path}?limit=100&offset=1")
    assert answer.content == page_of(records[::-1][1:])
    assert next_of(answer) is None


async def test_a_usual_page_is_ready_and_a_longer_one_is_streamed(context: Context) -> None:
    await fill(context, [1_000] * 100)
    for table, search in (("triggers", search_triggers_of), ("functions", search_functions_of)):
        cursor = cursor_at(table, 2**60)
        assert isinstance((await search(context, limit=10)).reply(()), Ready)
        assert isinstance((await search(context, limit=60)).reply(()), Ready)
        assert isinstance((await search(context, limit=70)).reply(()), Streamed)
        assert isinstance((await search(context, limit=70, cursor=cursor)).reply(()), Streamed)
        assert isinstance((await search(context, limit=10, cursor=cursor)).reply(()), Ready)


async def search_triggers_of(context: Context, **query: Any) -> Any:
    return await search_triggers(context.database, TriggerQuery(**query), lambda: NOW_MS)


async def search_functions_of(context: Context, **query: Any) -> Any:
    return await search_functions(context.database, FunctionQuery(**query))


class Held:
    """A database that counts the bytes of the records that it was asked for."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self.bytes_read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def fetch_some(self, sql: str, parameters: Any, *, rows_max: int, bytes_max: int) -> tuple[list[Row], int]:
        rows, length = await self._database.fetch_some(sql, parameters, rows_max=rows_max, bytes_max=bytes_max)
        self.bytes_read.append(sum(len(record.encode()) for _, record in rows))
        return rows, length


# Each is some slices long.
@pytest.mark.parametrize(("length", "count"), [(1_500, 120), (LONG_BYTES, 25), (100 * KIB, 8)])
async def test_no_row_is_read_ahead_of_a_client_that_reads_slowly(context: Context, length: int, count: int) -> None:
    records = await fill(context, [length] * count)
    searches: tuple[Any, ...] = (search_triggers_of, search_functions_of)
    for search, query in itertools.product(searches, ({}, {"offset": 5})):
        held = Held(context.database)
        page = await search(ContextOf(held), limit=100, **query)
        chunks = page.reply(()).chunks
        del page
        taken = [await anext(chunks)]
        while True:
            before = len(held.bytes_read)
            assert before <= len(taken) + 1
            assert max(held.bytes_read) < SLICE_BYTES + length
            try:
                taken.append(await anext(chunks))
            except StopAsyncIteration:
                break
            assert len(taken[-1]) < SLICE_BYTES + length + KIB
            assert len(held.bytes_read) <= before + 1
        start = query.get("offset", 0)
        assert b"".join(taken) == page_of(records[::-1][start : start + 100])


class ContextOf:
    """As much of a context as a search needs."""

    def __init__(self, database: Any) -> None:
        self.database = database


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_after_a_cursor_ends_at_1_mib_and_its_link_goes_on(
    caller: httpx2.AsyncClient, context: Context, path: str
) -> None:
    records = await fill(context, [LONG_BYTES] * 120)
    for query in FILTERS[path][:2]:
        for sort in (1, -1):
            expected = records[::sort]
            answer = ok(await caller.get(f"{path}?limit=1&sort={sort}{query}"))
            for _ in range(2):
                expected = expected[len(answer.json()) :]
                answer = ok(await caller.get((next_of(answer) or "").replace("limit=1&", "limit=100&")))
                assert answer.content == page_of(within_1_mib(expected))
                assert CURSOR_PAGE_BYTES_MAX - 2 * LONG_BYTES < len(answer.content) <= CURSOR_PAGE_BYTES_MAX


@pytest.mark.spoils_events("rows are filled in by SQL")
async def test_a_page_after_a_cursor_may_have_1_mib_and_no_byte_more(
    caller: httpx2.AsyncClient, context: Context
) -> None:
    half = CURSOR_PAGE_BYTES_MAX // 2
    whole = [half - len("["), half - len(",]")]  # with both, the page has 1 MiB
    for lengths, shown in ((whole, 2), ([whole[0], whole[1] + 1], 1), ([CURSOR_PAGE_BYTES_MAX, 100], 1)):
        for table in ("triggers", "function_creators", "functions"):
            await context.database.write(lambda tx, table=table: tx.execute(f"DELETE FROM {table}"))
        records = await fill(context, lengths)
        for path in PATHS:
            answer = ok(await caller.get(f"{path}?sort=1&cursor={cursor_at(path[1:], 0)}"))
            assert answer.content == page_of(records[:shown]), (path, lengths)
            assert ok(await caller.get(next_of(answer) or "")).content == page_of(records[shown:]), (path, lengths)


# About the bounds: of a slice, of the page, and of a record that is longer than a slice.
LENGTHS = st.one_of(
    st.integers(100, 3_000),
    st.sampled_from([SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 349_524, 349_525, 262_143, 262_142, 524_286]),
    st.sampled_from([CURSOR_PAGE_BYTES_MAX - each for each in (-1, 0, 1, 2, 3)]),
)


@pytest.mark.spoils_events("rows are filled in by SQL")
async def test_a_client_that_follows_cursors_over_long_pages_gets_every_row_once(
    caller: httpx2.AsyncClient, context: Context
) -> None:
    drawn: list[tuple[list[int], int, int]] = []

    @hypothesis_settings(max_examples=min(30, hypothesis_settings().max_examples // 3))
    @given(st.lists(LENGTHS, min_size=1, max_size=6), st.integers(1, 10), st.sampled_from([1, -1]))
    def draw(lengths: list[int], limit: int, sort: int) -> None:
        drawn.append((lengths, limit, sort))

    draw()
    # Which examples come depends on constants of the code; these are in any case.
    half = CURSOR_PAGE_BYTES_MAX // 2
    drawn += [([half, half - 3, half - 3, SLICE_BYTES, CURSOR_PAGE_BYTES_MAX + 1, 500], 5, sort) for sort in (1, -1)]
    tables = ("triggers", "function_creators", "functions")
    for lengths, limit, sort in drawn:
        for table in tables:
            await context.database.write(lambda tx, table=table: tx.execute(f"DELETE FROM {table}"))
        expected = [json.loads(each) for each in (await fill(context, lengths))[::sort]]
        for path in PATHS:
            if sort == 1:
                assert await walk(caller, f"{path}?sort=1&limit={limit}&cursor={cursor_at(path[1:], 0)}") == expected
            assert await walk(caller, f"{path}?sort={sort}&limit={limit}") == expected
