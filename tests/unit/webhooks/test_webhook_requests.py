"""The requests to receivers: which URLs they may have, and what their answers say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from each_row import each_row
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.errors import InvalidBody
from muniment.service.resources.webhooks.sending import check_url, retry_after_s

# 2026-11-20T19:48:00.123Z
NOW_MS = 1_795_204_080_123
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncGenerator[str]:
    """The URL of a server whose answer to each request `answer` writes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await answer(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


@each_row(
    "url",
    [
        "https://hooks.example.org/", "https://hooks.example.org:443/", "https://hooks.example.org:8443/a?b=c",
        "https://93.184.216.34/", "https://[2606:4700::1111]/",
    ],
)  # fmt: skip
def test_https_to_a_name_or_a_public_address_is_allowed(url: str) -> None:
    check_url(url, allow_private=False)


@each_row(
    "url",
    [
        "http://hooks.example.org/", "https://hooks.example.org:80/", "https://hooks.example.org:1023/",
        "https://10.0.0.1/", "https://169.254.169.254/", "https://[::1]/", "https://[64:ff9b::a00:1]/",
    ],
)  # fmt: skip
def test_http_low_ports_and_private_addresses_need_the_setting_for_development(url: str) -> None:
    with pytest.raises(InvalidBody):
        check_url(url, allow_private=False)
    check_url(url, allow_private=True)


@each_row(
    ("text", "seconds"),
    [
        (None, None), ("7", 7), ("0", 0), ("3600", 3_600), ("86400", 3_600), ("9" * 60, 3_600), ("9" * 65, None),
        ("-1", None), ("1.5", None), ("soon", None), ("", None), ("٧", None),
        ("Fri, 20 Nov 2026 19:48:30 GMT", 29), ("Fri, 20 Nov 2026 19:00:00 GMT", 0),
        ("Sat, 20 Nov 2027 19:48:30 GMT", 3_600), ("Fri, 99 Nov 2026 19:48:30 GMT", None),
        ("Fri, 20 Nov 9999999999 19:48:30 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_and_at_most_an_hour(text: str | None, seconds: int | None) -> None:
    assert retry_after_s(text, NOW_MS) == seconds


async def test_an_answer_counts_though_its_content_never_ends() -> None:
    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 0x400 + b"\r\n")
            await writer.drain()

    async with answering(endless) as url, Outgoing(allow_private=True) as outgoing:
        receipt = await outgoing.deliver(url, (), b"{}", seconds_max=5, bytes_max=4_096)
    assert (receipt.status, receipt.retry_after) == (503, "9")
    assert receipt.content == b"x" * 4_096


async def test_an_answer_counts_though_its_connection_breaks_in_the_content() -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()

    async with answering(cut) as url, Outgoing(allow_private=True) as outgoing:
        receipt = await outgoing.deliver(url, (), b"{}", seconds_max=5, bytes_max=4_096)
    assert (receipt.status, receipt.content) == (200, b"half")


async def test_a_receiver_that_never_answers_costs_its_time_and_no_more() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with answering(silent) as url, Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.deliver(url, (), b"{}", seconds_max=0.2, bytes_max=4_096)
    assert refusal.value.reason == "timeout"


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    requests: list[bytes] = []

    async def moved(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(b"one")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with answering(moved) as url, Outgoing(allow_private=True) as outgoing:
        receipt = await outgoing.deliver(url, (), b"{}", seconds_max=5, bytes_max=4_096)
    assert (receipt.status, len(requests)) == (302, 1)
