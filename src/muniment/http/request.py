"""A request as operations see it: the ASGI scope with the few readings that this service makes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
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
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope


class ClientGone(Exception):
    """The client went away before its request was whole; there is nobody to answer."""


class Request:
    """One request. Reading costs nothing until it is asked for."""

    __slots__ = ("_receive", "limits", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Wrap what ASGI gives; the middleware has put `muniment.limits` into the scope."""
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
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]

    def header(self, name: bytes) -> str | None:
        """The value of a header field that may come once; raises `InvalidParameter` when it comes twice."""
        values = self.headers(name)
        if len(values) > 1:
            raise invalid_parameter(name.decode(), "was sent more than once")
        return values[0] if values else None

    async def chunks(self, bytes_max: int) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises `BodyTooLarge` before or while reading more than `bytes_max`, `RequestTimeout` when it comes too
        slowly, `UnsupportedMediaType` for a content coding, `ClientGone`.
        """
        if (self.header(b"content-encoding") or "identity").lower() != "identity":
            raise UnsupportedMediaType("a content coding is not taken; send the body as it is")
        self._refuse_announced(bytes_max)
        loop = asyncio.get_running_loop()
        started, received, more = loop.time(), 0, True
        while more:
            deadline = started + self.limits.body_timeout_s + received / BODY_BYTES_PER_SECOND_MIN
            try:
                async with asyncio.timeout_at(deadline):
                    message = await self._receive()
            except TimeoutError:
                raise RequestTimeout(f"the body did not arrive within {self.limits.body_timeout_s} s") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            more = message.get("more_body", False)
            chunk: bytes = message.get("body", b"")
            received += len(chunk)
            if received > bytes_max:
                raise BodyTooLarge(f"the body has more than {bytes_max} bytes")
            if chunk:
                yield chunk

    def _refuse_announced(self, bytes_max: int) -> None:
        announced = self.header(b"content-length")
        if announced is not None and announced.isdecimal() and int(announced[:20]) > bytes_max:
            raise BodyTooLarge(f"the body has {announced[:20]} bytes, more than {bytes_max}")

    async def body(self) -> bytes:
        """The whole body, within the limit for JSON bodies."""
        return b"".join([chunk async for chunk in self.chunks(self.limits.body_bytes_max)])


def invalid_parameter(name: str, what: str) -> InvalidParameter:
    """The refusal of a path, query or header parameter."""
    return InvalidParameter(f"{name} {what}", faults=[Fault(what, parameter=name)])
