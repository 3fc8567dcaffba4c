"""An answer that is whole leaves in one write, with the same bytes as by uvicorn's own hand."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from muniment.cli.connections import OneWrite

Header = tuple[bytes, bytes]


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_closed


async def sent(
    kind: type[RequestResponseCycle], headers: list[Header], *bodies: bytes, method: str = "GET", keep: bool = True
) -> Transport:
    """What becomes of an answer with these headers and these pieces of its body."""
    transport = Transport()
    cycle = kind(
        scope=cast("Any", {"type": "http", "method": method}), transport=cast("Any", transport),
        flow=FlowControl(cast("Any", transport)), logger=cast("Any", None), access_logger=cast("Any", None),
        access_log=False, default_headers=[(b"date", b"now")], message_event=asyncio.Event(),
        expect_100_continue=False, keep_alive=keep, on_response=lambda: None,
    )  # fmt: skip
    await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})
    for number, body in enumerate(bodies, start=1):
        await cycle.send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})
    assert cycle.response_complete
    return transport


def length(number: int) -> Header:
    return (b"content-length", b"%d" % number)


@pytest.mark.parametrize(
    ("headers", "bodies", "more", "writes"),
    [
        ([length(2), (b"etag", b'"\xe9\t~"')], [b"{}"], {}, 1),
        ([length(0)], [b""], {}, 1),
        ([length(2)], [b"{}"], {"keep": False}, 2),
        ([length(2)], [b""], {"method": "HEAD"}, 2),
        ([length(2), (b"connection", b"close")], [b"{}"], {}, 2),
        ([length(4)], [b"{}", b"[]"], {}, 3),
        ([(b"etag", b"x")], [b"{}"], {}, 2),
        ([length(100_000)], [b"x" * 100_000], {}, 2),
    ],
    ids=["whole", "empty", "last one", "HEAD", "close", "pieces", "chunked", "long"],
)
async def test_the_bytes_are_those_of_uvicorn(
    headers: list[Header], bodies: list[bytes], more: dict[str, Any], writes: int
) -> None:
    ours, theirs = [await sent(kind, headers, *bodies, **more) for kind in (OneWrite, RequestResponseCycle)]
    assert b"".join(ours.written) == b"".join(theirs.written)
    assert ours.is_closed == theirs.is_closed
    assert len(ours.written) <= writes


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x", b"a\n", b"a\r", b"a\0b", b"\x7f", b"\x1b"])
async def test_a_value_that_would_end_its_line_is_never_written(value: bytes) -> None:
    with pytest.raises(RuntimeError, match="Invalid HTTP header value"):
        await sent(OneWrite, [length(2), (b"link", value)], b"{}")


@pytest.mark.parametrize("announced", [1, 3])
async def test_a_body_of_another_length_than_announced_is_an_error(announced: int) -> None:
    with pytest.raises(RuntimeError, match="Response content"):
        await sent(OneWrite, [length(announced)], b"{}")


async def test_an_error_before_the_body_is_still_answered() -> None:
    transport = Transport()
    cycle = OneWrite(
        scope=cast("Any", {"type": "http", "method": "GET"}), transport=cast("Any", transport),
        flow=FlowControl(cast("Any", transport)), logger=cast("Any", SimpleNamespace(error=lambda *_, **__: None)),
        access_logger=cast("Any", None), access_log=False, default_headers=[], message_event=asyncio.Event(),
        expect_100_continue=False, keep_alive=True, on_response=lambda: None,
    )  # fmt: skip

    async def crash(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [length(2)]})
        raise ZeroDivisionError

    await cycle.run_asgi(crash)
    assert b"".join(transport.written).startswith(b"HTTP/1.1 500 ")
    assert transport.is_closed
