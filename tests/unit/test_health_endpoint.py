"""The endpoint of a watcher or a relayer: its health and metrics; what is no request of a monitor gets no answer."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from each_row import each_row
from muniment.health import health_endpoint, parse_place
from muniment.relayer.figures import Figures
from ports import free_port

ANY_PORT = "127.0.0.1", 0


async def answer(url: str, request: bytes) -> tuple[bytes, bytes]:
    """The first line of the answer, and its content."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(request)
    whole = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, content = whole.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], content


async def test_a_program_is_ready_or_says_why_not_and_is_alive_meanwhile() -> None:
    trouble = [""]
    async with health_endpoint(ANY_PORT, trouble=lambda: trouble[0], metrics=lambda: b"") as url:
        assert await answer(url, b"GET /readyz HTTP/1.1\r\n\r\n") == (b"HTTP/1.1 200 OK", b"ok\n")
        trouble[0] = "the clocks differ"
        status, content = await answer(url, b"GET /readyz HTTP/1.1\r\n\r\n")
        assert (status, content) == (b"HTTP/1.1 503 Service Unavailable", b"the clocks differ\n")
        assert await answer(url, b"HEAD /readyz HTTP/1.1\r\n\r\n") == (status, b"")
        assert await answer(url, b"GET /healthz HTTP/1.1\r\n\r\n") == (b"HTTP/1.1 200 OK", b"ok\n")


@pytest.mark.allow_hosts(["127.0.0.1", "::", "::1"])
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_every_address_is_one_of_ipv4_too() -> None:
    port = free_port()
    async with health_endpoint(("::", port), trouble=str, metrics=lambda: b""):
        for host in ("127.0.0.1", "[::1]"):
            assert (await answer(f"http://{host}:{port}", b"GET /readyz HTTP/1.1\r\n\r\n"))[1] == b"ok\n"


async def test_of_ports_that_are_taken_the_next_one_is_used_and_of_no_other_address() -> None:
    async with AsyncExitStack() as stack:

        async def endpoint(place: tuple[str, int], ports: int) -> str:
            return await stack.enter_async_context(
                health_endpoint(place, trouble=str, metrics=lambda: b"", ports=ports)
            )

        first = free_port()
        urls = {await endpoint(("127.0.0.1", first), 10) for _ in range(3)}
        assert len(urls) == 3
        assert {urlsplit(each).port for each in urls} <= set(range(first, first + 10))
        with pytest.raises(OSError, match=rf"port {first} is taken at 127\.0\.0\.1: name another"):
            await endpoint(("127.0.0.1", first), 1)
        with pytest.raises(OSError, match=r"192\.0\.2\.1"):
            await endpoint(("192.0.2.1", first), 10)


async def test_connections_that_send_nothing_leave_room_for_a_monitor() -> None:
    async with health_endpoint(ANY_PORT, trouble=str, metrics=lambda: b"") as url:
        parts = urlsplit(url)
        silent = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(80)]
        assert await silent[-1][0].read() == b"", "closed at once"
        for _, writer in silent:
            writer.close()
        while (await answer(url, b"GET /healthz HTTP/1.1\r\n\r\n"))[1] != b"ok\n":
            await asyncio.sleep(0.01)


@each_row(
    ("text", "place"),
    [("127.0.0.1:9466", ("127.0.0.1", 9466)), ("192.0.2.1:0", ("192.0.2.1", 0)), ("[::1]:65535", ("::1", 65_535))],
)
def test_a_place_is_an_address_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert parse_place(text) == place


@each_row(
    "text",
    ["", "9466", ":9466", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:٣", "::1:9466",
     "localhost:9466", "[127.0.0.1:9466", "127.0.0.1:9466\n", "[127.0.0.1]:9466x", "1.2.3:9466", "OFF"],
)  # fmt: skip
def test_anything_else_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no address with a port"):
        parse_place(text)


async def test_metrics_are_those_of_the_figures() -> None:
    figures = Figures()
    figures.add("runs_total", "intents")
    figures.add("runs_total", "nothing", count=2)
    figures.show("triggers", 3)
    async with health_endpoint(ANY_PORT, trouble=str, metrics=lambda: figures.text().encode()) as url:
        _, content = await answer(url, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }
    assert samples == {
        ("muniment_relayer_runs_total", "intents"): 1, ("muniment_relayer_runs_total", "nothing"): 2,
        ("muniment_relayer_triggers",): 3,
    }  # fmt: skip


@each_row(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"G" * 100_000, b""),
        (b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 10_000 + b"\r\n", b""),
    ],
    ids=["another path", "another method", "empty", "an endless line", "an endless head"],
)
async def test_other_requests_get_a_refusal_or_nothing(request_: bytes, status: bytes) -> None:
    async with health_endpoint(ANY_PORT, trouble=str, metrics=lambda: b"") as url:
        try:
            assert (await answer(url, request_))[0] == status
        except ConnectionError:  # closed while it was sent
            assert not status
        assert (await answer(url, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 200 OK"
