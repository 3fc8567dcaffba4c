"""The port of a relayer: whether it works, and its metrics; what is no request of a monitor gets no answer."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from each_row import each_row
from muniment.relayer.figures import Figures
from muniment.relayer.health import health_port


async def answer(port: int, request: bytes) -> tuple[bytes, bytes]:
    """The first line of the answer, and its content."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    whole = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, content = whole.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], content


async def test_a_relayer_that_works_is_healthy_and_another_says_why_not() -> None:
    trouble = [""]
    async with health_port(0, trouble=lambda: trouble[0], metrics=lambda: "") as port:
        assert await answer(port, b"GET /healthz HTTP/1.1\r\n\r\n") == (b"HTTP/1.1 200 OK", b"ok\n")
        trouble[0] = "the clocks differ"
        status, content = await answer(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (status, content) == (b"HTTP/1.1 503 Service Unavailable", b"the clocks differ\n")
        assert await answer(port, b"HEAD /healthz HTTP/1.1\r\n\r\n") == (status, b"")


async def test_metrics_are_those_of_the_figures() -> None:
    figures = Figures()
    figures.add("runs_total", "intents")
    figures.add("runs_total", "nothing", 2)
    figures.show("triggers", 3)
    async with health_port(0, trouble=lambda: "", metrics=figures.text) as port:
        _, content = await answer(port, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
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
    async with health_port(0, trouble=lambda: "", metrics=lambda: "") as port:
        try:
            assert (await answer(port, request_))[0] == status
        except ConnectionError:  # closed while it was sent
            assert not status
        assert (await answer(port, b"GET /healthz HTTP/1.1\r\n\r\n"))[0] == b"HTTP/1.1 200 OK"
