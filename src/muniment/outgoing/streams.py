"""A connection to another server with bounded work on the event loop, for any bytes that the server sends.

The library below parses on the event loop, and bounds only content, not informational answers (RFC 9110
section 15.2), and the frames, extensions and trailers of chunks (RFC 9112 section 7.1).
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import httpcore2

if TYPE_CHECKING:
    import ssl

# Bytes that are parsed before other tasks run: under ten milliseconds even for the smallest chunks.
PIECE_BYTES_MAX: Final = 4 * 1024
# Informational answers before the final one; servers send one or two.
INFORMATIONAL_MAX: Final = 8
# All heads of an answer together. Other clients take 100 fields, and 16 or 100 KiB.
HEAD_BYTES_MAX: Final = 32 * 1024
HEAD_LINES_MAX: Final = 256
# Bytes after the head that are no content: this number, and one for two bytes of content, as `server.reader` takes.
FRAMES_BYTES_MAX: Final = 16 * 1024
_CONTENT_PER_FRAME_BYTE: Final = 2

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_INFORMATIONAL: Final = re.compile(rb"HTTP/[0-9]\.[0-9] 1")


class BoundedStream(httpcore2.AsyncNetworkStream):
    """One connection. After each request the answer is counted anew."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        """Wrap `stream`, which no other code uses."""
        self._stream = stream
        # None: the final head was read.
        self._heads: _Heads | None = _Heads()
        # Bytes after the final head, and those of them that are content.
        self._received = self._content = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore2's
        """Some bytes. Raises `httpcore2.RemoteProtocolError` beyond the bounds, and httpcore2's other errors."""
        data = await self._stream.read(min(max_bytes, PIECE_BYTES_MAX), timeout)
        await asyncio.sleep(0)  # other tasks run even if the bytes were there already
        if self._heads is None:
            self._received += len(data)
        elif (rest := self._heads.add(data)) is not None:
            self._heads = None
            self._received = rest
        if self._received - self._content > FRAMES_BYTES_MAX + self._content // _CONTENT_PER_FRAME_BYTE:
            raise httpcore2.RemoteProtocolError("the answer has too many bytes that are no content")
        return data

    def note_content(self, count: int) -> None:
        """Note that `count` of the bytes that were read are content."""
        self._content += count

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore2's
        """Send a part of a request. Raises httpcore2's errors."""
        self._heads = _Heads()
        self._received = self._content = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore2's
    ) -> BoundedStream:
        """The same connection with TLS. Raises httpcore2's errors."""
        return BoundedStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Facts about the connection, for httpcore2."""
        return self._stream.get_extra_info(info)


class _Heads:
    """The heads of an answer as they arrive: those of informational answers, then the final one."""

    def __init__(self) -> None:
        self._data = bytearray()
        # The start of the present head, and the end of the searched part.
        self._begin: int = 0
        self._searched: int = 0
        self._informational = 0

    def add(self, data: bytes) -> int | None:
        """The bytes of `data` after the final head; None while it is incomplete. Raises `RemoteProtocolError`."""
        self._data += data
        while ended := _HEAD_END.search(self._data, self._searched):
            if not _INFORMATIONAL.match(self._data, self._begin):
                self._check(ended.end())
                return len(self._data) - ended.end()
            self._begin = self._searched = ended.end()
            self._informational += 1
            if self._informational > INFORMATIONAL_MAX:
                raise httpcore2.RemoteProtocolError("too many informational answers before the final one")
        self._searched = max(self._begin, len(self._data) - 2)
        self._check(len(self._data))
        return None

    def _check(self, length: int) -> None:
        if length > HEAD_BYTES_MAX or self._data.count(b"\n", 0, length) > HEAD_LINES_MAX:
            raise httpcore2.RemoteProtocolError("the head of the answer is too long")
