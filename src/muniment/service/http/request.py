"""Requests, independent of the server that receives them; and media types with their weights in `Accept`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from muniment.protocol.errors import (
    BodyTooLarge,
    ConflictingCredentials,
    Fault,
    InvalidParameter,
    Overloaded,
    RateLimited,
    Refusal,
    RequestTimeout,
    UnsupportedMediaType,
)
from muniment.service.running.limits.costs import BODY_BYTES_FREE, BODY_BYTES_PER_UNIT, DEBTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.service.http.assets import Assets
    from muniment.service.running.limits.buckets import Key
    from muniment.service.running.limits.limiter import Client
    from muniment.service.running.limits.overload import FairQueue, HeldBodies, Overload

# Elements between commas, parameters between semicolons; either may be quoted. An unclosed quote takes the rest without
# backtracking: the time is linear.
_ELEMENT: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+', re.DOTALL)
_PART: Final = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+', re.DOTALL)
# A value of a parameter: a word, or a quoted string, whose escapes are a backslash and a character. Words have more
# characters than RFC 9110 section 5.6.2 gives them, because clients forget the quotes of a boundary.
_VALUE: Final = re.compile(r'\s*(?:([^\s"\\]+)|"((?:[^"\\]|\\.)*)")\s*', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
# Spellings of UTF-8 in lower case.
_UTF_8: Final = frozenset({"utf-8", "utf8", "utf_8"})
# Characters of the fields that are read: browsers send some 150, and each element takes microseconds on the event loop.
_LENGTH_READ: Final = 2_048
_QUALITY: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
# Slashes of a path up to which a reference leads to the root: an answer must not grow with a stranger's path.
_DEPTH_MAX: Final = 256
# A percent sign that two hexadecimal digits do not follow (RFC 3986 section 2.1). The decoders of the standard library
# keep it, at the cost of an exception each.
BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


class MediaType(NamedTuple):
    """A media type (RFC 9110 section 8.3.1), in lower case, and its parameters."""

    kind: str
    # Names in lower case, and values without their quotes; the value of a malformed parameter is empty.
    parameters: list[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        """Every value of a parameter, also of its spellings by RFC 2231 (`name*`, `name*0`), which are not decoded."""
        return [value for key, value in self.parameters if key.partition("*")[0] == name]


def media_type(text: str) -> MediaType:
    """The media type in `text`, in which parameters may be empty (RFC 9110 section 5.6.6)."""
    kind, _, rest = text.partition(";")
    pairs = (part.partition("=") for part in _PART.findall(rest) if not part.isspace())
    return MediaType(kind.strip().lower(), [(name.strip().lower(), _parameter(value)) for name, _, value in pairs])


def _parameter(text: str) -> str:
    match = _VALUE.fullmatch(text)
    return "" if match is None else match[1] or _ESCAPED.sub(r"\1", match[2] or "")


def content_type(request: Request, kind: str, wanted: str) -> MediaType:
    """The media type of a body. Raises `UnsupportedMediaType(wanted)` unless it is `kind`, in UTF-8."""
    given = media_type(request.header(b"content-type") or "")
    if given.kind != kind or not all(each.lower() in _UTF_8 for each in given.values("charset")):
        raise UnsupportedMediaType(wanted)
    return given


class MediaRange(NamedTuple):
    """An element of `Accept`."""

    kind: str
    parameters: dict[str, str]
    quality: float


def media_ranges(accept: Iterable[str]) -> list[MediaRange]:
    """The elements of the `Accept` fields, refused ones (`q=0`) too; best first, wildcards last among equals.

    The same for codings in `Accept-Encoding`. A malformed weight counts as 1. Characters after the first `_LENGTH_READ`
    are ignored.
    """
    found: list[MediaRange] = []
    for element in _ELEMENT.findall(",".join(accept)[:_LENGTH_READ]):
        kind, pairs = media_type(element)
        parameters = {name: value.lower() for name, value in pairs}
        quality = parameters.pop("q", "1")
        found.append(MediaRange(kind, parameters, float(quality) if _QUALITY.fullmatch(quality) else 1.0))
    return sorted((each for each in found if each.kind), key=lambda each: (-each.quality, each.kind.endswith("*")))


def named_quality(ranges: Iterable[MediaRange], kind: str) -> float:
    """The weight of a media type that is named in full; 0 if it is not named, or refused."""
    return max((each.quality for each in ranges if each.kind == kind), default=0.0)


def quality(ranges: Iterable[MediaRange], kind: str) -> float:
    """The weight of a media type, from the most specific matching element; 0 without a match."""
    known = {each.kind: each.quality for each in reversed(list(ranges))}
    family = kind.partition("/")[0] + "/*"
    return next((known[name] for name in (kind, family, "*/*") if name in known), 0.0)


# The longest honest target has a list of 100 trigger signatures in its query: 13.3 KB.
TARGET_BYTES_MAX: Final = 32 * 1024
# A token is under 1 KB; browsers send a few KB of header fields. nginx allows 32 KB as well.
HEADER_BYTES_MAX: Final = 32 * 1024
# A body may take longer than its time-out if it arrives at least this fast, such as an upload from a slow phone.
BODY_BYTES_PER_SECOND_MIN: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits from the settings (`muniment.service.running.settings`)."""

    body_bytes_max: int
    body_timeout_s: int


class ClientGone(Exception):
    """The client disconnected before its whole request arrived; no answer is sent."""


class Body(Protocol):
    """The body of a request while it arrives."""

    def take(self) -> tuple[bytes, bool] | None:
        """The bytes since the last call, and whether more follow; None while neither is known.

        Raises `ClientGone`, or the `Refusal` of a body that is malformed.
        """
        ...

    async def wait(self) -> None:
        """Return when `take` has an answer. May be cancelled."""


class NoBody:
    """The body of a request without one."""

    def take(self) -> tuple[bytes, bool]:
        """Return no bytes, and that no more follow."""
        return b"", False

    async def wait(self) -> None:
        """Return immediately."""


NO_BODY: Final = NoBody()


class Request:
    """One request. Its parts are read on demand."""

    __slots__ = (
        "_body", "assets", "bytes_charged", "client", "context", "due_units", "fields", "head_bytes_max", "held", "id",
        "key", "limits", "method", "named", "overload", "parameters", "path", "peer", "public_url", "query", "received",
        "refused", "turns", "units", "wait_s", "wallet", "wallet_units",
    )  # fmt: skip

    # The `Context` of the application; this package does not know its type.
    context: Any
    # The request's id, which its answer carries as `x-request-id`.
    id: str
    limits: Limits
    # The client whose rate limit the request is charged to.
    client: Client
    # Counts the request while it is served and not waiting for its client; None: not counted.
    overload: Overload | None
    # The queue for long work; None: no waiting.
    turns: FairQueue | None
    # Counts the memory for a body that arrives in pieces; None: not counted.
    held: HeldBodies | None
    # Bytes of the body that were read, and those that were charged.
    received: int
    bytes_charged: int
    # The charged rate limit, for the header fields of the answer; None before the charge.
    key: Key | None
    # The rate limit of the wallet whose credential the request carries, once charged.
    wallet: Key | None
    # Units to charge to the wallet whose credential the request carries.
    wallet_units: int
    # Seconds until a client over its limit may send again; 0 within the limit.
    wait_s: float
    # The code of the refusal that answers it; empty for other answers.
    refused: str
    # Units due for the query, once read.
    due_units: int
    # Units charged for the request so far.
    units: int
    # The files of the console, in whose frame a refusal at one of its paths is shown; None without a console.
    assets: Assets | None
    # The URL of the service for users; empty if it is not set.
    public_url: str
    # Path parameters by name, as they were sent: percent-encoded.
    parameters: Mapping[str, str]

    def __init__(
        self, method: str, path: str, query: bytes, fields: Sequence[tuple[bytes, bytes]], body: Body,
        *, peer: str, named: dict[bytes, bytes], head_bytes_max: int,
    ) -> None:  # fmt: skip
        """Make a request from parsed parts.

        `path` is the target's path as it was sent, percent-encoded, one character a byte. `fields` are the header
        fields, their names in lower case; `named` is the same by name, with the last value of each. `peer` is the
        address of the connection's other end, empty when unknown. The head has at most `head_bytes_max` bytes.
        """
        self.method = method
        self.path = path
        self.query = query
        self.fields = fields
        self.named = named
        self.peer = peer
        self.head_bytes_max = head_bytes_max
        self._body = body
        self.key = self.wallet = self.overload = self.turns = self.held = None
        self.received = self.bytes_charged = 0
        self.wait_s = 0.0
        self.wallet_units = 0
        self.refused = self.public_url = ""
        self.assets = None
        self.units = self.due_units = 0

    @property
    def root(self) -> str:
        """The root of the service as a client writes it: a URL, or a reference relative to the request's target."""
        if self.public_url:
            return f"{self.public_url}/"
        depth = self.path.lstrip("/").count("/")
        return "../" * depth if depth <= _DEPTH_MAX else "/"

    @property
    def limit_lines(self) -> bytes:
        """The header fields of the client's rate limit, as lines of a head."""
        return b"" if self.key is None else self.key.lines

    def charge(self, key: Key, units: int) -> None:
        """Charge the request. Raises `RateLimited`."""
        if wait_ns := key.charge(units):
            self.key = None  # the refusal has header fields of the limit itself
            self.wait_s = -(-wait_ns // 1_000_000_000)  # rounded up as in `Retry-After`
            raise key.refusal(wait_ns)
        self.key = key
        self.units += units

    def owe(self, key: Key, units: int) -> None:
        """Charge work that is already done."""
        key.owe(units)
        self.units += units

    def charge_wallet(self, wallet: bytes) -> None:
        """Charge the request to a wallet (its 20 bytes) whose credential is valid. Raises `RateLimited`."""
        units, self.wallet_units = self.wallet_units, 0
        if units:
            self.wallet = self.client.signed(wallet)
            self.charge(self.wallet, units)

    def charge_body(self) -> None:
        """Charge a long body before it is decoded. Raises `RateLimited`."""
        if units := self.units_of_body():
            self.bytes_charged = self.received
            key = self.wallet or self.client.client
            if wait_ns := key.charge(units):
                self.key, self.wait_s = None, -(-wait_ns // 1_000_000_000)
                raise key.refusal(wait_ns)
            self.units += units

    def units_of_body(self) -> int:
        """Units for the length of the body that are not charged yet."""
        return max(self.received - max(self.bytes_charged, BODY_BYTES_FREE), 0) // BODY_BYTES_PER_UNIT

    def require_client(self) -> None:
        """Raise `ClientGone` if the client has disconnected."""
        self._body.take()

    def owe_for(self, refusal: Refusal) -> None:
        """Charge the work that led to a refusal, such as the check of a wrong signature; count an `Overloaded`."""
        if isinstance(refusal, Overloaded) and self.overload is not None:
            self.overload.refused += 1
        if units := DEBTS.get(type(refusal)):
            self.owe(self.client.client, units)
        if isinstance(refusal, (RateLimited, Overloaded)) and not self.wait_s:
            self.key, self.wait_s = None, 1.0

    def path_text(self, name: str) -> str:
        """A path parameter, percent-decoded (RFC 3986 section 2.1) after the path was split at its slashes."""
        raw = self.parameters[name]
        if "%" not in raw:
            return raw
        if BROKEN_ESCAPE.search(raw):
            raise invalid_parameter(
                name, "has a % without two hexadecimal digits after it; send %25 for the character %"
            )
        try:
            return unquote_to_bytes(raw).decode()
        except UnicodeDecodeError:
            raise invalid_parameter(name, "is not UTF-8") from None

    def headers(self, name: bytes) -> list[str]:
        """Every value of a header field; `name` in lower case."""
        if name not in self.named:
            return []
        return [value.decode("latin-1") for key, value in self.fields if key == name]

    def header(self, name: bytes) -> str | None:
        """The value of a header field that may occur once; raises `InvalidParameter` if it occurs twice."""
        value = self.named.get(name)
        if value is None:
            return None
        if len(self.named) != len(self.fields) and len(self.headers(name)) > 1:
            raise invalid_parameter(name.decode(), "was sent more than once")
        return value.decode("latin-1")

    def chunks(self, bytes_max: int) -> AsyncGenerator[bytes]:
        """The body as it arrives. A caller that drops a chunk before it asks for the next saves its memory meanwhile.

        Raises `BodyTooLarge` before or while reading more than `bytes_max`, `RequestTimeout` when it comes too
        slowly, `UnsupportedMediaType` for a content coding, `ClientGone`.
        """
        self._refuse_unread(bytes_max)
        return self._chunks_from(None, bytes_max)

    async def body(self) -> bytes:
        """The whole body, within the limit for JSON bodies. Raises what `chunks` raises."""
        bytes_max = self.limits.body_bytes_max
        self._refuse_unread(bytes_max)
        taken = self._body.take()
        if taken is not None and not taken[1] and len(taken[0]) <= bytes_max:
            self.received = len(taken[0])
            return taken[0]  # most bodies arrive with their heads
        return await self._held(taken, bytes_max)

    async def _held(self, taken: tuple[bytes, bool] | None, bytes_max: int) -> bytes:
        """The whole body; its pieces are counted while it is incomplete."""
        pieces: list[bytes] = []
        held = 0
        try:
            async for piece in self._chunks_from(taken, bytes_max):
                if self.held is not None:
                    self.held.add(self.client.names, len(piece))
                    held += len(piece)
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            if self.held is not None and held:
                self.held.remove(self.client.names, held)

    async def _chunks_from(self, taken: tuple[bytes, bool] | None, bytes_max: int) -> AsyncGenerator[bytes]:
        """The part of the body that was `taken` already, and the chunks that follow."""
        received, more = 0, True
        started = asyncio.get_running_loop().time()
        while more:
            if taken is None and (taken := self._body.take()) is None:
                due = started + self.limits.body_timeout_s + received / BODY_BYTES_PER_SECOND_MIN
                taken = await self._next_chunk(due)
            (chunk, more), taken = taken, None
            received += len(chunk)
            self.received = received
            if received > bytes_max:
                raise BodyTooLarge(f"the body has more than {bytes_max} bytes")
            if chunk:
                yield chunk
            del chunk

    async def _next_chunk(self, deadline: float) -> tuple[bytes, bool]:
        """The next chunk of a body that has not arrived yet."""
        if self.overload is not None:
            self.overload.in_flight -= 1
        try:
            async with asyncio.timeout_at(deadline):
                while (taken := self._body.take()) is None:
                    await self._body.wait()
        except TimeoutError:
            raise RequestTimeout(f"the body did not arrive within {self.limits.body_timeout_s} s") from None
        finally:
            if self.overload is not None:
                self.overload.in_flight += 1
        return taken

    def _refuse_unread(self, bytes_max: int) -> None:
        coding = self.header(b"content-encoding")
        if coding and coding.lower() != "identity":
            raise UnsupportedMediaType("Content-Encoding is not supported; send the body unencoded")
        announced = self.header(b"content-length")
        if announced is not None and announced.isdecimal() and int(announced[:20]) > bytes_max:
            raise BodyTooLarge(f"the body has {announced[:20]} bytes, more than {bytes_max}")


def only(values: list[str], name: str) -> str | None:
    """The one credential in a header field. Two are refused, even if equal: a proxy may have checked only the other."""
    if len(values) > 1:
        raise ConflictingCredentials(f"{name} was sent more than once")
    return values[0] if values else None


def invalid_parameter(name: str, what: str) -> InvalidParameter:
    """The refusal of a path, query or header parameter."""
    return InvalidParameter(f"{name} {what}", faults=[Fault(what, parameter=name)])
