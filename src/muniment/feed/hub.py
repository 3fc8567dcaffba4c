"""The hub of a process: it reads each new event once, for all streams and waiting polls, and wakes those that want it.

It sleeps while nobody follows. A waiting poll uses `wait_behind`; streams are in `muniment.feed.streams`.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager, suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Final

import structlog

from muniment.errors import CursorTooOld
from muniment.feed.filters import EVERYTHING
from muniment.feed.followers import Follower, Followers, client_names
from muniment.feed.reading import floor, read_slice, source_of
from muniment.feed.recent import PIECE_EVENTS_MAX, RECENT_EVENTS_MAX, Piece, RecentEvents, event_text
from muniment.feed.rounds import Rounds
from muniment.limits.sites import has_most

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from muniment.context import Context
    from muniment.feed.events import Event, Source
    from muniment.feed.filters import EventFilter
    from muniment.http.request import Request

# Seconds between two looks for the changes of other processes. A look takes SQLite ten microseconds, and PostgreSQL a
# tenth of a millisecond on both sides.
_SQLITE_LOOK_SECONDS: Final = 0.025
_POSTGRES_LOOK_SECONDS: Final = 0.1
# Pauses between the looks for a commit of this process: on PostgreSQL it is visible when all earlier writers ended.
_SETTLING_SECONDS: Final = (0.005, 0.015)
# The events of one look: some ten milliseconds to encode.
_READ_MAX: Final = 500
# Followers that are woken in one turn of the event loop: half a millisecond of its time, which every read waits for.
_WOKEN_PER_TURN: Final = 40
# Between two rounds: events that come meanwhile are sent together, and streams take at most a quarter of the process.
_ROUND_SECONDS_MIN: Final = 0.01
_REST_PER_WORK: Final = 3
# A stream without an event gets a line at this age, which proxies and clients take for a sign of life.
BEAT_SECONDS: Final = 15.0
_BEATS_LOOK_SECONDS: Final = 1.0
# After a failure of the database.
_FAILED_SECONDS: Final = 1.0
# A poll that cannot wait for an event because there are too many followers: its client asks again when it is answered.
_FULL_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Hub:
    """The hub of one process."""

    def __init__(
        self, context: Context, *, beat_seconds: float = BEAT_SECONDS, chance: Callable[[], float] = random.random
    ) -> None:
        """Follow the database of `context`; a stream is silent for `beat_seconds` at most.

        `chance` gives numbers from 0 up to 1.
        """
        self.context = context
        self.beat_seconds = beat_seconds
        self.chance = chance
        self.recent = RecentEvents()
        self.is_stopping = False
        self._followers = Followers()
        self._task: asyncio.Task[None] | None = None
        # Done when the hub has looked for the first time since it was asleep, with the error if it could not.
        self._awake: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_committed = asyncio.Event()
        self._paging = Rounds()
        self._beats_looked_s = 0.0
        is_sqlite = not context.database.visible_before
        self._look_seconds = _SQLITE_LOOK_SECONDS if is_sqlite else _POSTGRES_LOOK_SECONDS
        metrics = context.metrics
        self.sent = metrics.counter("feed_events_sent_total")
        self.aborted = metrics.counter("feed_streams_aborted_total")
        metrics.read_from(lambda: self._followers.count, "feed_streams")
        context.database.call_after_commits(self._notice_commit)

    @classmethod
    def from_request(cls, request: Request) -> Hub:
        """The hub that the application put into the context of the request."""
        return request.context.serving.hub

    async def wait_behind(self, request: Request, seq: int, wanted: EventFilter, seconds: float) -> None:
        """Return when an event behind the number `seq` that `wanted` matches can be read, or another epoch begins.

        Returns in any case after `seconds`, when the service stops, and after a second when there are too many
        followers. The request is not counted as in flight meanwhile. Raises `DatabaseUnavailable`.
        """
        with self.following(request, wanted) as follower:
            if request.overload is not None:
                request.overload.in_flight -= 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._wait(follower, seq)
            finally:
                if request.overload is not None:
                    request.overload.in_flight += 1

    async def _wait(self, follower: Follower | None, seq: int) -> None:
        if follower is None:
            await asyncio.sleep(0 if self.is_stopping else _FULL_SECONDS)
            return
        await self.awake()
        source = self.recent.source
        while not follower.is_ended and self.recent.source == source:  # else another epoch has begun
            piece = self.recent.take(seq, follower.wanted)
            if piece is None or piece.events:
                return
            seq = piece.last_seq
            await follower.wait()

    @contextmanager
    def following(self, request: Request, wanted: EventFilter) -> Generator[Follower | None]:
        """A follower for the client of `request`; None when it, or the process, has too many, or the service stops."""
        client = client_names(self.context, request)
        settings = self.context.settings
        is_full = self._followers.count >= settings.feed_streams_max or has_most(
            client, self._followers.count_of, settings.feed_streams_per_client_max
        )
        if is_full or self.is_stopping:
            yield None
            return
        follower = Follower(wanted, client, asyncio.get_running_loop().time())
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)

    async def awake(self) -> None:
        """Return when the recent events are those of the database. Raises `DatabaseUnavailable`.

        The caller has a follower: without one the hub goes to sleep again.
        """
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._awake = self._loop.create_future()
            # In a context of its own: its reads belong to no request, and to no trace.
            self._task = self._loop.create_task(self._run(self._awake), context=Variables())
        assert self._awake is not None  # noqa: S101 - set with the task
        await asyncio.shield(self._awake)

    async def read_page(self, client: str, seq: int, wanted: EventFilter) -> Piece:
        """The next events after `seq` from the database, for a follower of `client` that is behind the recent ones.

        Pages are read one after the other, by clients in rounds, and rest in between. Raises `CursorTooOld` or
        `DatabaseUnavailable`.
        """
        async with self._paging.turn_of(client):
            source, loop = self.source, asyncio.get_running_loop()
            begun = loop.time()
            found = await read_slice(self.context.database, seq, wanted, PIECE_EVENTS_MAX)
            text = b"".join([event_text(event, source) for event in found.events])
            await asyncio.sleep(_REST_PER_WORK * (loop.time() - begun))
        return Piece(text, len(found.events), found.last_seq, found.walked)

    @property
    def source(self) -> Source:
        """What all events share now. Only while the hub is awake."""
        assert self.recent.source is not None  # noqa: S101 - set by the first look
        return self.recent.source

    def stop(self, seconds: float) -> None:
        """End all followers within `seconds`, evenly spread, and admit no more."""
        self.is_stopping = True
        followers, loop = list(self._followers), asyncio.get_running_loop()
        for number, follower in enumerate(followers):
            loop.call_later(seconds * number / len(followers), follower.end)

    async def close(self) -> None:
        """Stop looking for events."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _notice_commit(self) -> None:
        """Look for the events of a commit. Called in any thread."""
        if self._followers.count and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._is_committed.set)

    async def _run(self, awake: asyncio.Future[None]) -> None:
        """Look for events while anybody follows."""
        looks = 0
        try:
            await self._catch_up()
        except Exception as error:  # noqa: BLE001 - those who wait get it
            awake.set_exception(error)
            awake.exception()  # perhaps all of them have gone
            return
        awake.set_result(None)
        while self._followers.count:
            try:
                events = await self._look()
            except Exception as error:  # noqa: BLE001 - the next look may succeed; streams stay open meanwhile
                _log.warning("cannot read the feed", error=type(error).__name__, detail=str(error))
                await self._wake(())
                await asyncio.sleep(_FAILED_SECONDS)
                continue
            await self._wake(self._followers.wanting(events))
            looks = await self._pause(len(_SETTLING_SECONDS) if events else looks)

    async def _pause(self, looks: int) -> int:
        """Wait for a commit of this process, or until the next look is due; the vain looks since the last commit."""
        seconds = _SETTLING_SECONDS[looks] if looks < len(_SETTLING_SECONDS) else self._look_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_committed.wait()
        if not self._is_committed.is_set():
            return looks + 1
        self._is_committed.clear()
        return 0

    async def _catch_up(self) -> None:
        """Read the recent events, but for those that are known from before the hub slept."""
        try:
            await self._read_recent()
        except CursorTooOld:  # old events were removed after the place to begin was chosen; no follower lacks them
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
        """The number after which there are as many events as are kept in memory.

        It is that of an event, or the floor: numbers have gaps, and a follower at the event before a gap lacks nothing.
        """
        database = self.context.database
        visible = f" WHERE seq < {database.visible_before}" if database.visible_before else ""
        sql = f"SELECT seq FROM events{visible} ORDER BY seq DESC LIMIT 1 OFFSET ?"
        rows = await database.fetch(sql, (RECENT_EVENTS_MAX,))
        return rows[0][0] if rows else await floor(database)

    async def _look(self) -> Sequence[Event]:
        """Add the events since the last look to the recent ones, and return them."""
        database = self.context.database
        try:
            if await source_of(self.context, database) == self.recent.source:
                found = await read_slice(database, self.recent.end_seq, EVERYTHING, _READ_MAX)
                if found.last_seq != self.recent.end_seq:
                    self.recent.add(found)
                if not found.is_caught_up:
                    self._is_committed.set()
                return found.events
        except CursorTooOld:  # many events came and went since the last look
            pass
        await self._catch_up()  # behind a gap, or in another epoch
        for follower in self._followers:
            follower.wake()
        return ()

    async def _wake(self, followers: Sequence[Follower]) -> None:
        """Wake `followers`, and those whose line is due. Rests in proportion to the work."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        due = [*followers, *self._with_beat_due(begun)]
        for start in range(0, len(due), _WOKEN_PER_TURN):
            for follower in due[start : start + _WOKEN_PER_TURN]:
                follower.wake()
            await asyncio.sleep(0)  # they write
        if due:
            await asyncio.sleep(max(_ROUND_SECONDS_MIN, _REST_PER_WORK * (loop.time() - begun)))

    def _with_beat_due(self, now_s: float) -> list[Follower]:
        """Followers that were sent nothing for a while; looked for once a second."""
        if now_s - self._beats_looked_s < _BEATS_LOOK_SECONDS:
            return []
        self._beats_looked_s = now_s
        return [follower for follower in self._followers if now_s - follower.wrote_s >= self.beat_seconds]
