"""The index of waiters and the recent events, compared with a scan of everything."""

from __future__ import annotations

import random

from muniment.service.resources.feed.events import Event, EventFilter, Kind, Source
from muniment.service.resources.feed.hub import PIECE_EVENTS_MAX, RECENT_EVENTS_MAX, RecentEvents, event_text
from muniment.service.resources.feed.reading import Slice
from muniment.service.resources.feed.waiting import Waiter, Waiters

CHANCE = random.Random(7)
SOURCE = Source("muniment", 1, 0)
OWNERS = [bytes([number]) * 20 for number in range(1, 6)]
ORIGINS = [bytes([number]) * 32 for number in range(1, 4)]


def some(values: list[bytes]) -> frozenset[bytes] | None:
    """A filter of one or two values, or none."""
    return frozenset(CHANCE.sample(values, CHANCE.randint(1, 2))) if CHANCE.random() < 0.5 else None


def some_filter() -> EventFilter:
    kinds = frozenset(CHANCE.sample([int(kind) for kind in Kind], 3)) if CHANCE.random() < 0.3 else None
    owners = some(OWNERS)
    more = (frozenset(CHANCE.sample(OWNERS, 2)),) if owners and CHANCE.random() < 0.3 else ()
    return EventFilter(kinds, owners, more, some(ORIGINS), some(OWNERS))


def some_event(seq: int) -> Event:
    owners = b"".join(CHANCE.sample(OWNERS, CHANCE.randint(1, 3)))
    settler = CHANCE.choice([None, *OWNERS])
    return Event(seq, 0, CHANCE.choice(list(Kind)), bytes(32), owners, CHANCE.choice(ORIGINS), settler, "{}")


def created(seq: int, owner: bytes = OWNERS[0]) -> Event:
    return Event(seq, 0, Kind.FUNCTION_CREATED, bytes(32), owner, bytes(32), None, "{}")


def test_an_event_finds_exactly_the_waiters_whose_filters_match() -> None:
    followers, kept = Waiters(), list[Waiter]()
    for seq in range(1_000):
        if CHANCE.random() < 0.4 or not kept:
            kept.append(Waiter(some_filter(), (), 0))
            followers.add(kept[-1])
        elif CHANCE.random() < 0.4:
            followers.remove(kept.pop(CHANCE.randrange(len(kept))))
        events = [some_event(seq) for _ in range(CHANCE.randint(1, 2))]
        wanting = followers.wanting(events)
        assert len(wanting) == len(set(wanting))
        assert set(wanting) == {each for each in kept if any(map(each.wanted.matches, events))}
    assert followers.count == len(kept) > 50


def test_removed_waiters_leave_nothing_in_the_index() -> None:
    followers = Waiters()
    made = [Waiter(some_filter(), (f"client {number % 3}", "site"), 0) for number in range(100)]
    for each in made:
        followers.add(each)
    assert followers.count_of("client 1") == 33
    for each in made:
        followers.remove(each)
    assert (followers.count, list(followers), followers.count_of("client 1")) == (0, [], 0)
    assert vars(followers) == vars(Waiters())


def test_the_recent_events_give_each_matching_event_once_and_never_skips_one() -> None:
    recent = RecentEvents()
    recent.restart(SOURCE, 0)
    wanted = EventFilter(owners=frozenset({OWNERS[0]}))
    expected, seen, seq, last = list[bytes](), b"", 0, 0
    while last < 6_000:
        owners = [CHANCE.choice(OWNERS[:2]) for _ in range(CHANCE.randint(0, 400))]
        events = [created(last + at, owner) for at, owner in enumerate(owners, 1)]
        last += len(events)
        recent.add(Slice(events, last, is_caught_up=True))
        expected += [event_text(event, SOURCE) for event in events if wanted.matches(event)]
        for _ in range(CHANCE.randint(0, 4)):
            piece = recent.take(seq, wanted)
            assert piece is not None
            assert piece.events <= PIECE_EVENTS_MAX
            seen, seq = seen + piece.text, piece.last_seq
    while (piece := recent.take(seq, wanted)) and piece.text:
        seen, seq = seen + piece.text, piece.last_seq
    assert seen == b"".join(expected)
    assert seq == recent.end_seq == last


def test_a_stream_before_the_recent_events_gets_none_of_them() -> None:
    recent = RecentEvents()
    recent.restart(SOURCE, 10)
    assert recent.take(9, EventFilter()) is None
    recent.add(
        Slice(
            [created(seq) for seq in range(11, 11 + RECENT_EVENTS_MAX + 5)],
            10 + RECENT_EVENTS_MAX + 5,
            is_caught_up=True,
        )
    )
    assert recent.begin_seq == 15
    assert recent.take(14, EventFilter()) is None
    first = recent.take(15, EventFilter())
    assert first is not None
    assert first.text.startswith(event_text(created(16), SOURCE))
    beyond = recent.take(10**9, EventFilter())
    assert beyond is not None
    assert (beyond.text, beyond.last_seq) == (b"", 10**9)
