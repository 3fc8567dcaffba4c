"""The hub of a process: it reads and encodes each new event once, and wakes the streams and polls that want it.

It sleeps while there are no waiters. Polls use `wait_after`; streams are in `muniment.service.resources.feed.routes`.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from contextlib import contextmanager, suppress
from contextvars import Context as Variables
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import structlog

from muniment.protocol.errors import CursorTooOld
from muniment.service.resources.feed.events import EVERYTHING, Position, encode_event
from muniment.service.resources.feed.reading import floor, read_slice, source_of
from muniment.service.resources.feed.waiting import FairLock, Waiter, Waiters, client_names
from muniment.service.running.limits.overload import has_most

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from muniment.service.context import Context
    from muniment.service.http.request import Request
    from muniment.service.resources.feed.events import Event, EventFilter, Source
    from muniment.service.resources.feed.reading import Slice

# Seconds between two reads of the changes of other processes. A read takes SQLite ten microseconds, and PostgreSQL a
# tenth of a millisecond.
_SQLITE_LOOK_SECONDS: Final = 0.025
_POSTGRES_LOOK_SECONDS: Final = 0.1
# Pauses between the reads after a commit of this process: on PostgreSQL it becomes visible after all earlier writers.
_SETTLING_SECONDS: Final = (0.005, 0.015)
# Events of one read: some ten milliseconds to encode.
_READ_MAX: Final = 500
# Waiters that are woken in one cycle of the event loop: half a millisecond.
_WOKEN_PER_CYCLE: Final = 40
# Between two rounds of wakes: events are sent together, and streams take at most a quarter of the process.
_ROUND_SECONDS_MIN: Final = 0.01
_REST_PER_WORK: Final = 3
# A stream without an event gets a line after this time, so that proxies and clients keep it open.
HEARTBEAT_SECONDS: Final = 15.0
_HEARTBEATS_LOOK_SECONDS: Final = 1.0
# After a failure of the database.
_FAILED_SECONDS: Final = 1.0
# The wait of a poll when there are too many waiters: its client asks again after the answer.
_FULL_SECONDS: Final = 1.0

# Events in memory: 2 MB with their texts, some seconds of a busy registry.
RECENT_EVENTS_MAX: Final = 2_048
# Events of a piece: 64 KB at most, which the connection of a slow client holds.
PIECE_EVENTS_MAX: Final = 100
# Pieces that are kept for other streams with the same filter and position.
_PIECES_KEPT: Final = 256

_log = structlog.get_logger(__name__)


class Piece(NamedTuple):
    """Events as text/event-stream, their number, and the number in the feed up to which it was scanned.

    `walked` is the number of rows that were scanned in the database.
    """

    text: bytes
    events: int
    last_seq: int
    walked: int = 0


class RecentEvents:
    """The newest events, each encoded once for all streams: every event after `begin_seq`, up to `end_seq`."""

    def __init__(self) -> None:
        """Begin without events."""
        self.begin_seq = self.end_seq = 0
        self.source: Source | None = None
        self.epoch: int | None = None
        self._seqs: list[int] = []
        self._events: list[Event] = []
        self._texts: dict[int, bytes] = {}
        self._pieces: dict[tuple[int, EventFilter], Piece] = {}

    def restart(self, source: Source, seq: int) -> None:
        """Forget all events, and begin after the number `seq`."""
        self.source, self.epoch = source, source.epoch
        self.begin_seq = self.end_seq = seq
        self._seqs, self._events = [], []
        self._texts.clear()
        self._pieces.clear()

    def add(self, found: Slice) -> None:
        """Add the events that follow `end_seq`."""
        self._seqs += [event.seq for event in found.events]
        self._events += found.events
        self.end_seq = found.last_seq
        self._pieces.clear()
        excess = len(self._seqs) - RECENT_EVENTS_MAX
        if excess > 0:
            self.begin_seq = self._seqs[excess - 1]
            for seq in self._seqs[:excess]:
                self._texts.pop(seq, None)
            del self._seqs[:excess], self._events[:excess]

    def take(self, seq: int, wanted: EventFilter) -> Piece | None:
        """The next events after `seq` that `wanted` matches; None when some of them are older than the recent ones."""
        if seq < self.begin_seq:
            return None
        if seq >= self.end_seq:
            return Piece(b"", 0, seq)
        if (kept := self._pieces.get((seq, wanted))) is None:
            if len(self._pieces) >= _PIECES_KEPT:
                self._pieces.clear()
            kept = self._pieces[seq, wanted] = self._make(seq, wanted)
        return kept

    def _make(self, seq: int, wanted: EventFilter) -> Piece:
        texts: list[bytes] = []
        for index in range(bisect_right(self._seqs, seq), len(self._seqs)):
            event = self._events[index]
            if wanted.matches(event):
                texts.append(self._text(event))
                if len(texts) == PIECE_EVENTS_MAX:
                    return Piece(b"".join(texts), len(texts), event.seq)
        return Piece(b"".join(texts), len(texts), self.end_seq)

    def _text(self, event: Event) -> bytes:
        assert self.source is not None  # noqa: S101 - events are added after `restart`
        if (text := self._texts.get(event.seq)) is None:
            text = self._texts[event.seq] = event_text(event, self.source)
        return text


def event_text(event: Event, source: Source) -> bytes:
    """An event as text/event-stream (HTML standard, section 9.2.6).

    It has no `event` field, so that browsers pass every type to `onmessage`.
    """
    position = Position.at(source.epoch, event.seq).encode()
    return b"id: %b\ndata: %b\n\n" % (position, encode_event(event, source))


class Hub:
    """The hub of one process."""

    # The hub of the application.
    from_request: ClassVar[Callable[[Request], Hub]] = attrgetter("context.serving.hub")

    def __init__(
        self,
        context: Context,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Follow the database of `context`; `chance` gives numbers from 0 up to 1."""
        self.context = context
        self.heartbeat_seconds = heartbeat_seconds
        self.chance = chance
        self.recent = RecentEvents()
        self.is_stopping = False
        self._waiters = Waiters()
        self._task: asyncio.Task[None] | None = None
        # Done after the first read since the hub slept, with its error if it failed.
        self._awake: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_committed = asyncio.Event()
        self._page_lock = FairLock()
        self._heartbeats_looked_s = 0.0
        self._look_seconds = _POSTGRES_LOOK_SECONDS if context.database.is_shared else _SQLITE_LOOK_SECONDS
        metrics = context.metrics
        self.sent = metrics.counter("feed_events_sent_total")
        self.aborted = metrics.counter("feed_streams_aborted_total")
        metrics.read_from(lambda: self._waiters.count, "feed_streams")
        context.database.call_after_commits(self._notice_commit)

    async def wait_after(self, request: Request, seq: int, wanted: EventFilter, seconds: float) -> None:
        """Wait for an event after the number `seq` that `wanted` matches, or for another epoch, at most `seconds`.

        Returns early when the service stops, or when there are too many waiters. The request does not count as in
        flight meanwhile. Raises `DatabaseUnavailable`.
        """
        with self.following(request, wanted) as waiter:
            if request.overload is not None:
                request.overload.in_flight -= 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._wait(waiter, seq)
            finally:
                if request.overload is not None:
                    request.overload.in_flight += 1

    async def _wait(self, waiter: Waiter | None, seq: int) -> None:
        if waiter is None:
            await asyncio.sleep(0 if self.is_stopping else _FULL_SECONDS)
            return
        await self.awake()
        source = self.recent.source
        while not waiter.is_ended and self.recent.source == source:  # else another epoch has begun
            piece = self.recent.take(seq, waiter.wanted)
            if piece is None or piece.events:
                return
            seq = piece.last_seq
            await waiter.wait()

    @contextmanager
    def following(self, request: Request, wanted: EventFilter) -> Generator[Waiter | None]:
        """A waiter for the client; None when the client or the process has too many, or the service stops."""
        client = client_names(self.context, request)
        settings = self.context.settings
        is_full = self._waiters.count >= settings.feed_streams_max or has_most(
            client, self._waiters.count_of, settings.feed_streams_per_client_max
        )
        if is_full or self.is_stopping:
            yield None
            return
        waiter = Waiter(wanted, client, asyncio.get_running_loop().time())
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.remove(waiter)

    async def awake(self) -> None:
        """Return when the recent events are those of the database. Raises `DatabaseUnavailable`.

        The caller has a waiter: without waiters the hub sleeps again.
        """
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._awake = self._loop.create_future()
            # In its own context: its reads belong to no request and no trace.
            self._task = self._loop.create_task(self._run(self._awake), context=Variables())
        assert self._awake is not None  # noqa: S101 - set with the task
        await asyncio.shield(self._awake)

    async def read_page(self, client: str, seq: int, wanted: EventFilter) -> Piece:
        """The next events after `seq` from the database, for a stream of `client` before the recent ones.

        Pages are read one at a time, for clients in rounds, with pauses. Raises `CursorTooOld`, `DatabaseUnavailable`.
        """
        async with self._page_lock.held_for(client):
            source, loop = self.source, asyncio.get_running_loop()
            begun = loop.time()
            found = await read_slice(self.context.database, seq, wanted, PIECE_EVENTS_MAX)
            text = b"".join([event_text(event, source) for event in found.events])
            await asyncio.sleep(_REST_PER_WORK * (loop.time() - begun))
        return Piece(text, len(found.events), found.last_seq, found.walked)

    @property
    def source(self) -> Source:
        """The source of events now. Only while the hub is awake."""
        assert self.recent.source is not None  # noqa: S101 - set by the first look
        return self.recent.source

    def stop(self, seconds: float) -> None:
        """End all waiters within `seconds`, evenly spread, and admit no more."""
        self.is_stopping = True
        waiters, loop = list(self._waiters), asyncio.get_running_loop()
        for number, waiter in enumerate(waiters):
            loop.call_later(seconds * number / len(waiters), waiter.end)

    async def close(self) -> None:
        """Stop looking for events."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _notice_commit(self) -> None:
        """Read the events of a commit soon. Called in any thread."""
        if self._waiters.count and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._is_committed.set)

    async def _run(self, awake: asyncio.Future[None]) -> None:
        """Read events while there are waiters."""
        looks = 0
        try:
            await self._catch_up()
        except Exception as error:  # noqa: BLE001 - callers of `awake` get it
            awake.set_exception(error)
            awake.exception()  # there may be no caller any more
            return
        awake.set_result(None)
        while self._waiters.count:
            try:
                events = await self._look()
            except Exception as error:  # noqa: BLE001 - the next read may succeed; streams stay open meanwhile
                _log.warning("cannot read the feed", error=type(error).__name__, detail=str(error))
                await self._wake(())
                await asyncio.sleep(_FAILED_SECONDS)
                continue
            await self._wake(self._waiters.wanting(events))
            looks = await self._pause(len(_SETTLING_SECONDS) if events else looks)

    async def _pause(self, looks: int) -> int:
        """Wait for a commit of this process or the next read; returns the reads since the last commit."""
        seconds = _SETTLING_SECONDS[looks] if looks < len(_SETTLING_SECONDS) else self._look_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_committed.wait()
        if not self._is_committed.is_set():
            return looks + 1
        self._is_committed.clear()
        return 0

    async def _catch_up(self) -> None:
        """Read the recent events that are not in memory yet."""
        try:
            await self._read_recent()
        except CursorTooOld:  # old events were removed after the begin was chosen; no waiter lacks them
            await self._read_recent()

    async def _read_recent(self) -> None:
        database = self.context.database
        source = await source_of(self.context, database)
        begin_seq = await self._begin_seq()
        if source != self.recent.source or self.recent.end_seq < begin_seq:
            self.recent.restart(source, begin_seq)
        while not (found := await read_slice(database, self.recent.end_seq, EVERYTHING, _READ_MAX)).is_caught_up:
            self.recent.add(found)
        self.recent.add(found)

    async def _begin_seq(self) -> int:
        """The number after which `RECENT_EVENTS_MAX` events follow.

        It is that of an event, or the floor: numbers have gaps, and a stream before a gap lacks no event.
        """
        database = self.context.database
        sql = "SELECT seq FROM events WHERE seq < settled_seq() ORDER BY seq DESC LIMIT 1 OFFSET ?"
        rows = await database.fetch(sql, (RECENT_EVENTS_MAX,))
        return rows[0][0] if rows else await floor(database)

    async def _look(self) -> Sequence[Event]:
        """Add the events since the last read to the recent ones, and return them."""
        database = self.context.database
        try:
            if await source_of(self.context, database) == self.recent.source:
                found = await read_slice(database, self.recent.end_seq, EVERYTHING, _READ_MAX)
                if found.last_seq != self.recent.end_seq:
                    self.recent.add(found)
                if not found.is_caught_up:
                    self._is_committed.set()
                return found.events
        except CursorTooOld:  # many events came and were removed since the last read
            pass
        await self._catch_up()  # after a gap, or in another epoch
        for waiter in self._waiters:
            waiter.wake()
        return ()

    async def _wake(self, waiters: Sequence[Waiter]) -> None:
        """Wake `waiters`, and those whose heartbeat is due. Rests in proportion to the work."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        due = [*waiters, *self._with_heartbeat_due(begun)]
        for start in range(0, len(due), _WOKEN_PER_CYCLE):
            for waiter in due[start : start + _WOKEN_PER_CYCLE]:
                waiter.wake()
            await asyncio.sleep(0)  # they write
        if due:
            await asyncio.sleep(max(_ROUND_SECONDS_MIN, _REST_PER_WORK * (loop.time() - begun)))

    def _with_heartbeat_due(self, now_s: float) -> list[Waiter]:
        """Waiters whose heartbeat is due; looked for once a second."""
        if now_s - self._heartbeats_looked_s < _HEARTBEATS_LOOK_SECONDS:
            return []
        self._heartbeats_looked_s = now_s
        return [waiter for waiter in self._waiters if now_s - waiter.wrote_s >= self.heartbeat_seconds]
