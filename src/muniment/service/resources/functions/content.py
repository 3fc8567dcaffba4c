"""Immutable content over HTTP: entity tags, 304, ranges, and bodies that threads read while they are sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.protocol.errors import RangeNotSatisfiable, Refusal, StorageUnavailable
from muniment.protocol.functions.rules import MANIFEST, WASM
from muniment.protocol.functions.types import MANIFEST_SCHEMA
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.ipfs.dag import File, open_file
from muniment.service.context import Context
from muniment.service.http.operation import Answer
from muniment.service.http.reply import Headers, Ready, Streamed, etag_matches
from muniment.service.http.request import Request
from muniment.service.running.limits.overload import IN_FLIGHT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# A read of the disk or of S3 mostly waits.
READS_CONCURRENT_MAX: Final = 16
# Half of the concurrent requests of a process: a hanging store leaves the other half to triggers and intents.
READS_WAITING_MAX: Final = IN_FLIGHT_MAX // 2


class BlockReads:
    """Runs reads in threads, for one event loop."""

    def __init__(self) -> None:
        """Create the threads on demand."""
        self._threads = ThreadPoolExecutor(READS_CONCURRENT_MAX, thread_name_prefix="block-read")
        self._count = 0

    async def begin(self, read: Callable[[], T]) -> T:
        """The result of the first read of an answer; raises `StorageUnavailable` if too many reads wait."""
        if self._count >= READS_WAITING_MAX:
            raise StorageUnavailable("the block store does not answer: too many reads wait for it")
        return await self.run_next(read)

    async def run_next(self, read: Callable[[], T]) -> T:
        """The result of a further read of an answer."""
        self._count += 1
        try:
            # As asyncio.to_thread, but in threads of their own.
            return await asyncio.get_running_loop().run_in_executor(self._threads, partial(copy_context().run, read))
        finally:
            self._count -= 1


block_reads: Final = BlockReads()


# The media types are fixed: browsers must not treat uploaded content as a page of this origin.
MEDIA_TYPES: Final[Mapping[str, str]] = {MANIFEST: "application/json", WASM: "application/wasm"}
# Path gateway specification, section Cache-Control: the content of a CID never changes; 48 weeks mean forever.
IMMUTABLE: Final = (b"cache-control", b"public, max-age=29030400, immutable")
_SANDBOX: Final = (b"content-security-policy", b"default-src 'none'; sandbox")
# Bytes that a thread reads together. The first batch is read and verified before an answer starts.
_BATCH_BYTES: Final = 256 * 1024
# RFC 9110 section 15.4.5: the header fields of a 200 that a cache may need.
_SENT_WITH_304: Final = frozenset(
    {b"etag", b"cache-control", b"vary", b"content-location", b"x-ipfs-path", b"x-ipfs-roots"}
)
# RFC 9110 section 14.2: a server may ignore an excessive number of ranges; they are not parsed.
_RANGES_MAX: Final = 100
# RFC 9110 section 14.1; numbers are limited to 40 digits, more than any size has.
_RANGE: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)=(.*)")
_RANGE_SPEC: Final = re.compile(r"([0-9]{1,40})-([0-9]{0,40})|-([0-9]{1,40})", re.ASCII)

_log = structlog.get_logger(__name__)

FILE_HEADERS_READ: Final[Mapping[str, str]] = {
    "range": "One range of bytes (RFC 9110 section 14.2)",
    "if-range": "An ETag; `range` is ignored if the content has another one",
    "if-none-match": "ETags that the client has; 304 if the answer's is among them",
}


def file_answers(*media_types: str, also: Mapping[str, str] | None = None) -> dict[int, Answer]:
    """The answers with content, for OpenAPI; `also` are further header fields."""
    headers = {"etag": "Identifies these bytes; it never changes", "cache-control": "Immutable", **(also or {})}
    ranged = {**headers, "content-range": "The range of these bytes"}
    return {
        200: Answer("The content", media_types, headers, MANIFEST_SCHEMA),
        # A range keeps the media type (RFC 9110 section 15.3.7) but need not be JSON. Without this schema, generated
        # clients would not know the type of the whole content either.
        206: Answer("The requested range", media_types, ranged, MANIFEST_SCHEMA),
        304: Answer("Not modified", (), headers),
    }


async def bundle_file(context: Context, request: Request, root: Cid, name: str) -> Ready[bytes] | Streamed:
    """The bytes of a file of the bundle `root`: `MANIFEST` or `WASM`.

    Raises `ContentNotFound`, `RangeNotSatisfiable`, and `Integrity`, which ends the connection if the answer has begun.
    """
    file = await block_reads.begin(partial(open_file, context.blocks.get, root.parts, [name]))
    return await file_reply(request, file, name)


async def file_reply(request: Request, file: File, name: str, headers: Headers = ()) -> Ready[bytes] | Streamed:
    """`file` with its fixed media type; `headers` are further header fields."""
    own = ((b"content-type", MEDIA_TYPES[name].encode()), (b"etag", f'"{file.cid.text}"'.encode()), _SANDBOX)
    return await bytes_reply(request, file.size, file.read, (*own, *headers))


async def bytes_reply(
    request: Request, size: int, read: Callable[[int, int], Iterable[bytes]], headers: Headers
) -> Ready[bytes] | Streamed:
    """The answer with content of `size` bytes: all of it, one range, or 304. `read(start, end)` gives a part.

    `headers` has the strong `etag`. Raises `RangeNotSatisfiable`, and the errors of the first `read`.
    """
    headers = (*headers, IMMUTABLE, (b"accept-ranges", b"bytes"))
    if unchanged := not_modified(request, headers):
        return unchanged
    part = byte_range(request, _etag(headers), size)
    if part is None:
        return await piecewise(request, read(0, size), headers, length=size)
    headers = (*headers, (b"content-range", f"bytes {part.start}-{part.stop - 1}/{size}".encode()))
    return await piecewise(request, read(part.start, part.stop), headers, status=206, length=len(part))


def not_modified(request: Request, headers: Headers) -> Ready[bytes] | None:
    """304 if the client has the content with the `etag` in `headers` (RFC 9110 section 13.1.2)."""
    named = request.headers(b"if-none-match")
    if not named or not etag_matches(",".join(named), _etag(headers)):
        return None
    return Ready(b"", tuple(each for each in headers if each[0] in _SENT_WITH_304), 304)


def byte_range(request: Request, etag: str, size: int) -> range | None:
    """The range of a GET (RFC 9110 section 14.2); None for all bytes, also for HEAD, several ranges and other units.

    Raises `RangeNotSatisfiable` for a range outside of the content, and for a malformed one.
    """
    field = request.header(b"range")
    if field is None or request.method != "GET" or request.header(b"if-range") not in {None, etag}:
        return None
    match = _RANGE.fullmatch(field.strip())
    if match and (match[1].lower() != "bytes" or match[2].count(",") >= _RANGES_MAX):
        return None
    specs = [_RANGE_SPEC.fullmatch(spec.strip()) for spec in match[2].split(",")] if match else [None]
    parts = [spec and _part(spec, size) for spec in specs]
    if None in parts or (len(parts) == 1 and not parts[0]):
        raise RangeNotSatisfiable(f"the range is not within the {size} bytes of the content", facts={"size": str(size)})
    return parts[0] if len(parts) == 1 else None


def _part(spec: re.Match[str], size: int) -> range | None:
    """The part of `size` bytes that a range names, empty if it is outside; None if it ends before it starts."""
    if spec[3]:
        return range(max(size - int(spec[3]), 0), size)
    first, last = int(spec[1]), int(spec[2]) if spec[2] else size
    if spec[2] and last < first:
        return None
    return range(min(first, size), min(last + 1, size))


async def piecewise(
    request: Request, pieces: Iterable[bytes], headers: Headers, *, status: int = 200, length: int | None = None
) -> Ready[bytes] | Streamed:
    """An answer of `pieces`, which a thread reads while the answer is sent; for HEAD no piece is read.

    The first pieces are read before the answer starts, so that their errors become ordinary refusals. A later error
    aborts the connection, so that the client does not mistake a part for the whole.
    """
    iterator = iter(pieces)
    known = () if length is None else ((b"content-length", str(length).encode()),)
    if request.method == "HEAD":
        return Streamed(_rest(request, b"", iterator), (*headers, *known), status)
    first, ended = await block_reads.run_next(partial(_batch, iterator))
    if ended:
        return Ready(first, tuple(headers), status)
    return Streamed(_rest(request, first, iterator), (*headers, *known), status)


async def _rest(request: Request, first: bytes, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    ended = False
    while not ended:
        try:
            batch, ended = await block_reads.run_next(partial(_batch, pieces))
        except Refusal as refusal:
            _log.error("response aborted", code=refusal.code, detail=refusal.detail, request_id=request.id)
            raise
        if batch:
            yield batch


def _batch(pieces: Iterator[bytes]) -> tuple[bytes, bool]:
    """The next pieces, at least `_BATCH_BYTES` together, and whether they are the last."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= _BATCH_BYTES:
            return b"".join(gathered), False
    return b"".join(gathered), True


def _etag(headers: Headers) -> str:
    return next(value.decode() for name, value in headers if name == b"etag")
