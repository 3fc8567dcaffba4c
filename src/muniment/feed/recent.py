"""The newest events of the feed in memory, each read and encoded once for all followers of a process."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.feed.events import encode_event
from muniment.feed.position import Position

if TYPE_CHECKING:
    from muniment.feed.events import Event, Source
    from muniment.feed.filters import EventFilter
    from muniment.feed.reading import Slice

# Events that are kept: 2 MB with their texts, and some seconds of the changes of a busy registry.
RECENT_EVENTS_MAX: Final = 2_048
# Events of a piece. A slow client makes its connection hold one piece: 64 KB at most.
PIECE_EVENTS_MAX: Final = 100
# Pieces that are kept for other followers with the same filter at the same place.
_PIECES_KEPT: Final = 256


class Piece(NamedTuple):
    """Some events as text/event-stream, how many they are, and the number up to which the feed was walked for them.

    `walked` are the rows of the database that were read for it.
    """

    text: bytes
    events: int
    last_seq: int
    walked: int = 0


class RecentEvents:
    """Every event behind `begin_seq`, up to `end_seq`."""

    def __init__(self) -> None:
        """Begin without events."""
        self.begin_seq = self.end_seq = 0
        self.source: Source | None = None
        # That of the source.
        self.epoch: int | None = None
        self._seqs: list[int] = []
        self._events: list[Event] = []
        self._texts: dict[int, bytes] = {}
        self._pieces: dict[tuple[int, EventFilter], Piece] = {}

    def restart(self, source: Source, seq: int) -> None:
        """Forget all events, and begin behind the number `seq`; `source` is what the events share."""
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
        """The next events behind `seq` that `wanted` matches; None when some of them are older."""
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
        assert self.source is not None  # noqa: S101 - events are added behind `restart`
        if (text := self._texts.get(event.seq)) is None:
            text = self._texts[event.seq] = event_text(event, self.source)
        return text


def event_text(event: Event, source: Source) -> bytes:
    """An event as text/event-stream (HTML standard, section 9.2.6).

    It has no `event` field: browsers give such events to `onmessage` alone, so a client also sees types that it does
    not know.
    """
    position = Position.at(source.epoch, event.seq).encode()
    return b"id: %b\ndata: %b\n\n" % (position, encode_event(event, source))
