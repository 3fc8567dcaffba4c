"""Answers of other servers, read up to a bound."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    import httpcore2

    from muniment.outgoing.streams import BoundedStream

# After the head of an answer to `deliver`, its content counts as far as it comes within this time.
_CONTENT_SECONDS_MAX: Final = 2.0
_DIGITS_MAX: Final = 9
_SUCCESSFUL: Final = range(200, 300)  # RFC 9110 section 15.3


class Unreachable(Exception):
    """Another server gave no usable answer; `reason` is one word for the cause, such as `timeout` or `http-500`.

    `limited`: a quota is used up, and nothing should be sent for `seconds`.
    """

    def __init__(self, reason: str, detail: str = "", seconds: float = 0) -> None:
        """The reason, without the URL: RPC URLs carry keys."""
        super().__init__(detail or reason)
        self.reason = reason
        self.seconds = seconds

    @property
    def told(self) -> str:
        """The reason, and what the server or this program says about it."""
        said = str(self)
        return self.reason if said == self.reason else f"{self.reason}: {said}"


class Answer(NamedTuple):
    """An answer of any status, with its whole content, and the seconds of its `Retry-After` (None: it has none)."""

    status: int
    content: bytes
    retry_after_s: float | None = None


class Receipt(NamedTuple):
    """The answer to a delivery: its status, its `Retry-After` (None: it has none), and the beginning of its content."""

    status: int
    retry_after: str | None
    content: bytes


async def content(response: httpcore2.Response, *, bytes_max: int) -> bytes:
    """The whole content of an answer of status 200. Raises `Unreachable` for another status, and beyond `bytes_max`."""
    if response.status == HTTPStatus.OK:  # also for a redirect
        return await _read(response, bytes_max)
    raise Unreachable(f"http-{response.status}")


async def answer(response: httpcore2.Response, *, bytes_max: int) -> Answer:
    """An answer of any status. Raises `Unreachable` beyond `bytes_max`."""
    return Answer(response.status, await _read(response, bytes_max), _retry_after_s(response))


async def receipt(response: httpcore2.Response, *, bytes_max: int, awaited: bytes) -> Receipt:
    """The status counts, even if the content never ends; with `awaited`, a success counts once it has these bytes."""
    import httpcore2  # noqa: PLC0415 - loaded by the request that is answered

    retry_after = _field(response, b"retry-after")
    received = bytearray()
    with suppress(TimeoutError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError):
        async with asyncio.timeout(None if awaited and response.status in _SUCCESSFUL else _CONTENT_SECONDS_MAX):
            async for chunk in response.aiter_stream():
                _stream_of(response).note_content(len(chunk))
                received += chunk[: bytes_max - len(received)]
                if len(received) >= bytes_max or (awaited and awaited in received):
                    break
    return Receipt(response.status, None if retry_after is None else retry_after.decode("latin-1"), bytes(received))


def _field(response: httpcore2.Response, wanted: bytes) -> bytes | None:
    return next((value for name, value in response.headers if name.lower() == wanted), None)


def _retry_after_s(response: httpcore2.Response) -> float | None:
    """The seconds that `Retry-After` asks for (RFC 9110 section 10.2.3), a date by the server's own clock."""
    text = (_field(response, b"retry-after") or b"").decode("latin-1")
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS_MAX])
    try:
        at, now = (parsedate_to_datetime(each) for each in (text, (_field(response, b"date") or b"").decode("latin-1")))
        return max(0.0, (at.replace(tzinfo=None) - now.replace(tzinfo=None)).total_seconds())
    except (ValueError, OverflowError):
        return None


async def _read(response: httpcore2.Response, bytes_max: int) -> bytes:
    received = bytearray()
    async for chunk in response.aiter_stream():
        _stream_of(response).note_content(len(chunk))
        received += chunk
        if len(received) > bytes_max:
            raise Unreachable("too-large")
    return bytes(received)


def _stream_of(response: httpcore2.Response) -> BoundedStream:
    return cast("BoundedStream", response.extensions["network_stream"])  # all connections are made by `connections`
