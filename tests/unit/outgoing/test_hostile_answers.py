"""Answers that are made to keep the event loop busy: it has turns between small pieces, and they end at bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import h11
import pytest

from muniment.outgoing import Outgoing, Unreachable

# Only the end of a hang.
SECONDS_MAX = 20.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def sending(*pieces: bytes, is_endless: bool = False) -> AsyncGenerator[str]:
    """The URL of a server that answers with `pieces`; with `is_endless` the last one comes again and again."""
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.writelines(pieces)
                while is_endless:
                    writer.write(pieces[-1] * 1_000)
                    await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
        for writer in opened:
            writer.transport.abort()


@pytest.fixture
async def parsed(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[list[tuple[int, int]]]:
    """Input of the parser: the number of bytes, and the number of the turn that another task had before."""
    seen: list[tuple[int, int]] = []
    turn = 0

    async def take_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    receive: Callable[..., None] = h11.Connection.receive_data

    def noted(self: Any, data: bytes) -> None:
        seen.append((len(data), turn))
        receive(self, data)

    monkeypatch.setattr(h11.Connection, "receive_data", noted)
    other = asyncio.create_task(take_turns())
    yield seen
    other.cancel()


def assert_others_had_turns(parsed: list[tuple[int, int]]) -> None:
    turns = [turn for _, turn in parsed]
    assert max(size for size, _ in parsed) <= 4_096
    assert len(set(turns)) == len(turns), "two pieces were parsed without a turn of others in between"


@pytest.mark.parametrize("head", [b"HTTP/1.1 103 x\r\n\r\n", b"HTTP/1.1 100 Continue\nA: b\n\n"])
async def test_an_endless_run_of_informational_answers_is_no_answer(head: bytes, parsed: list[tuple[int, int]]) -> None:
    async with sending(head, is_endless=True) as url, Outgoing(allow_private=True) as outgoing:
        for _ in range(2):
            with pytest.raises(Unreachable) as refusal:
                await outgoing.deliver(url, (), b"{}", seconds_max=SECONDS_MAX, bytes_max=4_096)
            assert refusal.value.reason == "unreachable"
    assert sum(size for size, _ in parsed) == 0  # the first piece has too many already


async def test_some_informational_answers_come_before_an_answer_on_each_request_of_a_connection() -> None:
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 8 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with sending(answer) as url, Outgoing(allow_private=True) as outgoing:
        for _ in range(3):
            assert await outgoing.get(url, seconds_max=SECONDS_MAX) == b"ok"


@pytest.mark.parametrize("field", [b"a: b\r\n", b"a: " + b"b" * 500 + b"\r\n"], ids=["many", "long"])
async def test_a_head_that_never_ends_is_no_answer(field: bytes, parsed: list[tuple[int, int]]) -> None:
    async with sending(b"HTTP/1.1 200 OK\r\n", field, is_endless=True) as url, Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.get(url, seconds_max=SECONDS_MAX)
    assert refusal.value.reason == "unreachable"
    assert sum(size for size, _ in parsed) <= 32 * 1024


@pytest.mark.parametrize(
    "tail",
    [
        b"1\r\nx\r\n" * 256 * 1024,
        b"1;" + b"e" * 3_000 + b"\r\nx\r\n" + (b"1;" + b"e" * 3_000 + b"\r\nx\r\n") * 100,
        b"2\r\nok\r\n0\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
    ],
    ids=["chunks of one byte", "extensions of chunks", "trailers"],
)
async def test_bytes_that_are_no_content_are_bounded(tail: bytes, parsed: list[tuple[int, int]]) -> None:
    async with sending(CHUNKED + tail) as url, Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.get(url, seconds_max=SECONDS_MAX)
        assert refusal.value.reason == "unreachable"
        assert sum(size for size, _ in parsed) <= 32 * 1024
        # The status of a delivery counts all the same.
        receipt = await outgoing.deliver(url, (), b"{}", seconds_max=SECONDS_MAX, bytes_max=256 * 1024)
    assert receipt.status == 200
    assert_others_had_turns(parsed)


@pytest.mark.parametrize("size", [16, 1_000, 100_000])
async def test_others_have_turns_while_a_long_answer_comes(size: int, parsed: list[tuple[int, int]]) -> None:
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    count = 256 * 1024 // size
    async with sending(CHUNKED + chunk * count + b"0\r\n\r\n") as url, Outgoing(allow_private=True) as outgoing:
        assert await outgoing.get(url, seconds_max=SECONDS_MAX) == b"x" * size * count
    assert_others_had_turns(parsed)
