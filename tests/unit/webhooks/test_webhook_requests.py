"""The requests to receivers: which URLs they may have, and what their answers say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from each_row import each_row
from muniment.outgoing import Outgoing, Unreachable, answers
from muniment.outgoing.exchanges import Exchanges
from muniment.protocol.errors import InvalidBody
from muniment.service.resources.webhooks.sending import check_url, retry_after_s
from muniment.service.resources.webhooks.types import WebhookUrl

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
    "url",
    [
        "http://my_receiver:8080/", "https://h?token=x", "HTTPS://Hooks.Example.org/a", "Http://receiver:8080/x?a=1&b=%20x",
        "http://[::1]:9000/x", "https://hooks.example.org", "https://hooks.example.org./@me/a:b?to=me@example.org",
        "https://xn--mller-kva.example/", "https://10.0.0.1:/x", "https://a-b_c.d/?", "https://h/a//b?c?d/e;f=(g)*!$'+,~",
    ],
)  # fmt: skip
def test_a_url_that_people_have_is_taken_as_given(url: str) -> None:
    assert WebhookUrl.parse(url) == url
    target, _ = Exchanges.target(url)
    assert (target.scheme in {b"http", b"https"}, target.target[:1]) == (True, b"/")


@each_row(
    ("url", "fault"),
    [
        ("ftp://hooks.example.org/", "does not begin with https://"), ("hooks.example.org/x", "does not begin with"),
        ("", "does not begin with"), ("https:/hooks.example.org", "does not begin with"),
        ("https:///x", "has no host"), ("https://?a", "has no host"), ("https://", "has no host"),
        ("https://a:b@h/", "user name or a password: put a token"), ("https://a@h", "user name or a password"),
        ("https://müller.example/", r"has '\xfc' in its host: write a name in its ASCII form (xn--…)"),
        ("https://a b.example/", "has ' ' in its host"), ("https://h%20/", "has '%' in its host"),
        ("https://[fe80::1%25eth0]/", "has '%' in its host"), ("https://h/x#y", "fragment (#…), which is never sent"),
        ("https://h#y", "fragment (#…)"), ("https://h/a b", "has ' ': write it as %20"),
        ("https://h/?é", r"has '\xe9': write it as %C3%A9"), ("https://h/{id}", "has '{': write it as %7B"),
        ("https://h/\n", r"has '\n': write it as %0A"), ("https://h\t/", r"has '\t' in its host"),
        ("https://h/a|b", "has '|'"), ("https://h\\x", "in its host"), ("https://h:x/", "malformed host or port"),
        ("https://h:0/", "malformed host or port"), ("https://h:65536/", "malformed host or port"),
        ("https://a..b/", "malformed host or port"), ("https://.a/", "malformed host or port"),
        ("https://::1/", "malformed host or port"), ("https://[::g]/", "malformed host or port"),
        ("https://[::1/", "malformed host or port"), ("https://" + "a" * 64 + "/", "malformed host or port"),
        ("https://h:1:2/", "malformed host or port"), ("https://[]/", "malformed host or port"),
    ],
)  # fmt: skip
def test_a_refusal_of_another_url_names_its_fault(url: str, fault: str) -> None:
    with pytest.raises(InvalidBody, match=f"^the URL must be https://host/path, and this one .*{re.escape(fault)}"):
        WebhookUrl.parse(url)


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


@each_row(("status", "outcome"), [(200, b"the challenge"), (503, b"")])
async def test_content_that_is_awaited_may_come_later_than_other_content(
    status: int, outcome: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_CONTENT_SECONDS_MAX", 0)

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d Done\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(b"5\r\nthe c\r\n8\r\nhallenge\r\n")
        await writer.drain()
        await asyncio.sleep(10)  # it never ends

    async with answering(late) as url, Outgoing(allow_private=True) as outgoing:
        receipt = await outgoing.deliver(url, (), b"{}", seconds_max=5, bytes_max=4_096, awaited=b"challenge")
    assert (receipt.status, receipt.content) == (status, outcome)
