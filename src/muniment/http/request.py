"""A request as operations see it: the ASGI scope with the few readings that this service makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_to_bytes

from muniment.errors import (
    BodyTooLarge,
    Fault,
    InvalidParameter,
    RequestTimeout,
    UnsupportedMediaType,
)
from muniment.http.limits import BODY_BYTES_PER_SECOND_MIN, Limits

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope


class ClientGone(Exception):
    """The client went away before its request was whole; there is nobody to answer."""


class Request:
    """One request. Reading costs nothing until it is asked for."""

    __slots__ = ("_receive", "limits", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Wrap what ASGI gives; the middleware has put `muniment.limits` and `muniment.fields` into the scope."""
        self.scope: dict[str, Any] = scope  # pyright: ignore[reportAttributeAccessIssue] - servers pass a dict
        self.limits: Limits = scope["muniment.limits"]
        self._receive = receive

    @property
    def method(self) -> str:
        """The method, upper case."""
        return self.scope["method"]

    def path_text(self, name: str) -> str:
        """A path parameter, percent-decoded (RFC 3986 section 2.1) after the path was split at its slashes."""
        raw: str = self.scope["path_params"][name]
        if "%" not in raw:
            return raw
        try:
            return unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise invalid_parameter(name, "is not UTF-8") from None

    def headers(self, name: bytes) -> list[str]:
        """Every value of a header field; `name` in lower case."""
        if name not in self.scope["muniment.fields"]:
            return []
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]

    def header(self, name: bytes) -> str | None:
        """The value of a header field that may come once; raises `InvalidParameter` when it comes twice."""
        fields: dict[bytes, bytes] = self.scope["muniment.fields"]
        value = fields.get(name)
        if value is None:
            return None
        if len(fields) != len(self.scope["headers"]) and len(self.headers(name)) > 1:
            raise invalid_parameter(name.decode(), "was sent more than once")
        return value.decode("latin-1")

    async def chunks(self, bytes_max: int) -> AsyncGenerator[bytes]:
        """The body as it arrives.

        Raises `BodyTooLarge` before or while reading more than `bytes_max`, `RequestTimeout` when it comes too
        slowly, `UnsupportedMediaType` for a content coding, `ClientGone`.
        """
        self._refuse_unread(bytes_max)
        async for chunk in self._chunks_from(b"", bytes_max, asyncio.get_running_loop().time()):
            yield chunk

    async def body(self) -> bytes:
        """The whole body, within the limit for JSON bodies. Raises what `chunks` raises."""
        bytes_max = self.limits.body_bytes_max
        self._refuse_unread(bytes_max)
        started = asyncio.get_running_loop().time()
        first, more = await self._next_chunk(started + self.limits.body_timeout_s)
        if not more and len(first) <= bytes_max:
            return first
        return b"".join([chunk async for chunk in self._chunks_from(first, bytes_max, started, more=more)])

    async def _chunks_from(
        self, chunk: bytes, bytes_max: int, started: float, *, more: bool = True
    ) -> AsyncGenerator[bytes]:
        """`chunk`, and what follows if there is more, of a body that was first waited for when it was `started`."""
        received = 0
        while True:
            received += len(chunk)
            if received > bytes_max:
                raise BodyTooLarge(f"the body has more than {bytes_max} bytes")
            if chunk:
                yield chunk
            if not more:
                return
            due = started + self.limits.body_timeout_s + received / BODY_BYTES_PER_SECOND_MIN
            chunk, more = await self._next_chunk(due)

    async def _next_chunk(self, deadline: float) -> tuple[bytes, bool]:
        """What comes next of the body, and whether more follows.

        Small bodies have arrived with their heads, and nothing waits: a time limit, which costs more than to take
        them, is set for a wait alone.
        """
        receiving = cast("Coroutine[Any, Any, Message]", self._receive())
        try:
            waits_for = receiving.send(None)
        except StopIteration as stop:
            message: Message = stop.value
        else:
            try:
                async with asyncio.timeout_at(deadline):
                    message = await _Begun(receiving, waits_for)
            except TimeoutError:
                raise RequestTimeout(f"the body did not arrive within {self.limits.body_timeout_s} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        return message.get("body", b""), message.get("more_body", False)

    def _refuse_unread(self, bytes_max: int) -> None:
        coding = self.header(b"content-encoding")
        if coding and coding.lower() != "identity":
            raise UnsupportedMediaType("a content coding is not taken; send the body as it is")
        announced = self.header(b"content-length")
        if announced is not None and announced.isdecimal() and int(announced[:20]) > bytes_max:
            raise BodyTooLarge(f"the body has {announced[:20]} bytes, more than {bytes_max}")


class _Begun:
    """A coroutine that was begun and waits for something (PEP 492): to await this is to go on with it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Message], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Message]:
        waits_for = self._waits_for
        try:
            while True:
                try:
                    given = yield waits_for
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is meant for the coroutine
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(given)
        except StopIteration as stop:
            return stop.value


def invalid_parameter(name: str, what: str) -> InvalidParameter:
    """The refusal of a path, query or header parameter."""
    return InvalidParameter(f"{name} {what}", faults=[Fault(what, parameter=name)])
