"""Run a flow: over a blocking HTTP client, or over an asynchronous one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx2

from muniment.client.failures import NotARegistry, Reply, Unreachable
from muniment.client.steps import Send, SignText, SignTyped, Sleep
from muniment.deadlines import Connections

if TYPE_CHECKING:
    from muniment.client.signers import Signer
    from muniment.client.steps import Flow

T = TypeVar("T")
# Called during long transfers: "upload" or "download", bytes done, bytes in total or 0 if unknown.
OnProgress = Callable[[str, int, int], None]
# A shorter body is no long upload.
_LONG: Final = 256 * 1024
_PIECE: Final = 64 * 1024
_DIGITS_MAX: Final = 16
# The longest time of a whole exchange. The largest honest answer comes in it over a line of one megabit a second.
ANSWER_S_MAX: Final = 600
# The longest answer is a module of 16 MiB with its bundle around it, or a page of a hundred large triggers.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CODING_SHOWN: Final = 40
# The request has not left: the service cannot have done anything.
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(frozen=True, slots=True)
class Blocking:
    """A driver that blocks. It may be used by several threads if `http` may: httpx2's clients may."""

    url: str
    http: httpx2.Client
    signer: Signer | None = None
    progress: OnProgress | None = None
    # None: `ANSWER_S_MAX`.
    answer_s_max: float | None = None
    answer_bytes_max: int = ANSWER_BYTES_MAX
    _connections: Connections = field(default_factory=Connections, init=False, repr=False)

    def run(self, flow: Flow[T]) -> T:
        """The result of `flow`. Raises its errors, and `ValueError` for a signature without a signer."""
        outcome: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
            except StopIteration as end:
                return end.value
            except NotARegistry as answered:
                answered.url = self.url
                raise
            outcome, error = None, None
            try:
                match step:
                    case Send():
                        outcome = self._exchange(step)
                    case Sleep():
                        time.sleep(step.seconds)
                    case SignText() | SignTyped():
                        outcome = _signed(step, self.signer)
            except Exception as raised:  # noqa: BLE001 - the flow decides what it means
                error = raised

    def _exchange(self, send: Send) -> Reply:
        seconds_max = ANSWER_S_MAX if self.answer_s_max is None else self.answer_s_max
        exchange = self._connections.exchange(seconds_max)
        arguments: dict[str, Any] = {
            **_arguments(self.url, send, self.progress),
            "extensions": {"trace": exchange.trace},
        }
        try:
            with exchange.watched(), self.http.stream(**arguments) as response:
                exchange.begin(response.extensions)
                gathered = _Content(response, self.progress, self.answer_bytes_max, takes_gzip=send.takes_gzip)
                for piece in response.iter_raw():
                    gathered.add(piece)
        except httpx2.RequestError as error:
            raise (_endless(seconds_max) if exchange.is_over else _unreachable(self.url, error)) from error
        if exchange.is_over:  # an answer without a length ends where its connection does
            raise _endless(seconds_max)
        return _reply(response, gathered)


@dataclass(frozen=True, slots=True)
class Awaiting:
    """A driver for asyncio. A signer may wait for a person, so it runs in a thread."""

    url: str
    http: httpx2.AsyncClient
    signer: Signer | None = None
    progress: OnProgress | None = None
    # The event loop that was used first, if one was: the connections of `http` belong to it.
    _loop: list[asyncio.AbstractEventLoop] = field(
        default_factory=list[asyncio.AbstractEventLoop], init=False, repr=False
    )

    def check_loop(self) -> None:
        """Raise `RuntimeError` in another event loop than the first one."""
        loop = asyncio.get_running_loop()
        if loop is not (self._loop or [loop])[0]:
            raise RuntimeError(
                "an AsyncRegistry belongs to the event loop that used it first: make one in each asyncio.run(…), by "
                "`async with AsyncRegistry(url) as registry`, or use a Registry, which needs no loop"
            )
        self._loop[:] = [loop]

    async def run(self, flow: Flow[T]) -> T:
        """The result of `flow`, as `Blocking.run` has it. Raises as `check_loop`."""
        self.check_loop()
        outcome: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(outcome) if error is None else flow.throw(error)
            except StopIteration as end:
                return end.value
            except NotARegistry as answered:
                answered.url = self.url
                raise
            outcome, error = None, None
            try:
                match step:
                    case Send():
                        outcome = await self._exchange(step)
                    case Sleep():
                        await asyncio.sleep(step.seconds)
                    case SignText() | SignTyped():
                        outcome = await asyncio.to_thread(_signed, step, self.signer)
            except Exception as raised:  # noqa: BLE001 - the flow decides what it means
                error = raised

    async def _exchange(self, send: Send) -> Reply:
        arguments = _arguments(self.url, send, self.progress)
        try:
            async with asyncio.timeout(ANSWER_S_MAX), self.http.stream(**arguments) as response:
                gathered = _Content(response, self.progress, ANSWER_BYTES_MAX, takes_gzip=send.takes_gzip)
                async for piece in response.aiter_raw():
                    gathered.add(piece)
                return _reply(response, gathered)
        except TimeoutError as error:
            raise _endless(ANSWER_S_MAX) from error
        except httpx2.RequestError as error:
            raise _unreachable(self.url, error) from error


class _Content:
    """The content of an answer, up to `bytes_max`.

    A compressed answer may be a thousand times larger than what arrives, so compression is not offered, and nothing is
    unpacked here.
    """

    def __init__(
        self, response: httpx2.Response, progress: OnProgress | None, bytes_max: int, *, takes_gzip: bool
    ) -> None:
        """Raises `NotARegistry` for a compressed answer, unless it is by gzip and the step takes that."""
        coding = response.headers.get("content-encoding", "identity").lower()
        if coding != "identity" and not (takes_gzip and coding == "gzip"):
            raise NotARegistry(f"answers in the encoding {coding[:_CODING_SHOWN]}, which was not offered")
        self.gathered = bytearray()  # a list of pieces would take more than their bytes, if they are short
        announced = response.headers.get("content-length", "")
        is_number = announced.isascii() and announced.isdigit() and len(announced) < _DIGITS_MAX
        self._announced = int(announced) if is_number else 0
        self._progress = progress
        self._bytes_max = bytes_max

    def add(self, piece: bytes) -> None:
        """Raises `NotARegistry` above the limit."""
        length = len(self.gathered) + len(piece)
        if length > self._bytes_max:
            raise NotARegistry(f"answers with more than {self._bytes_max} bytes")
        self.gathered += piece
        if self._progress is not None and max(length, self._announced) > _LONG:
            self._progress("download", length, self._announced)


class _Upload:
    """A long body in pieces, for both drivers, with a call of `progress` after each."""

    def __init__(self, body: bytes, progress: OnProgress) -> None:
        self._body = body
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), _PIECE):
            yield self._body[start : start + _PIECE]
            self._progress("upload", min(start + _PIECE, len(self._body)), len(self._body))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def _arguments(url: str, send: Send, progress: OnProgress | None) -> dict[str, Any]:
    body, headers = send.body, dict(send.headers)
    if body is not None and progress is not None and len(body) > _LONG:
        headers["content-length"] = str(len(body))
        body = _Upload(body, progress)
    # Redirects are not followed, so credentials stay at one origin.
    return {
        "method": send.method, "url": url + send.target, "content": body,
        "headers": {**headers, "accept-encoding": "identity"}, "follow_redirects": False,
    }  # fmt: skip


def _reply(response: httpx2.Response, content: _Content) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, bytes(content.gathered))


def _endless(seconds: float) -> Unreachable:
    return Unreachable(f"the answer takes longer than {seconds:g} seconds", sent=True)


def _unreachable(url: str, error: httpx2.RequestError) -> Unreachable:
    # A field of a request that cannot be sent is shown in the error, and it may be a credential.
    is_shown = not isinstance(error, httpx2.LocalProtocolError)
    reason = (is_shown and str(error)) or type(error).__name__
    return Unreachable(f"{url} does not answer: {reason}", sent=not isinstance(error, _UNSENT))


def _signed(step: SignText | SignTyped, signer: Signer | None) -> str:
    if signer is None:
        raise ValueError("this needs a signature: give the client a signer")
    return signer.sign_text(step.text) if isinstance(step, SignText) else signer.sign_typed_data(step.data)
