"""What is due: ticks of schedules, single runs and events, under clocks that jump."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings, strategies as st

from each_row import each_row
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.wire import ms_of
from muniment.relayer.schedule.due import APART_MS_MAX, Due, Gap, Occurrence, Plan, Seen, agreed_now, matches

SIG = Signature.parse("0x" + "11" * 64 + "1b")
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z
HOURLY = Plan(sig=SIG, kind=0, created_ms=NOON - 10 * HOUR, end_ms=0, delta_ms=10 * MINUTE, schedule="0 * * * *")
ONCE = Plan(sig=SIG, kind=2, created_ms=NOON - HOUR, end_ms=0, delta_ms=10 * MINUTE, start_ms=NOON)


def due_at(plan: Plan, seen: Seen, now_ms: int) -> int | None:
    found = plan.look(seen, now_ms).due
    return None if found is None else found.timestamp_ms


def gap_at(plan: Plan, seen: Seen, now_ms: int) -> tuple[int, int, int] | None:
    found = plan.look(seen, now_ms).gaps
    assert len(found) <= 1
    return (found[0].ticks, found[0].from_ms, found[0].to_ms) if found else None


def test_noon_is_a_tick() -> None:
    assert next_runs("0 * * * *", NOON - 1, 1) == [NOON]


@each_row(
    ("now", "decided", "due"),
    [
        (NOON - 1, NOON - HOUR, None),
        (NOON, NOON - HOUR, NOON),
        (NOON + 10 * MINUTE, NOON - HOUR, NOON),
        (NOON + 10 * MINUTE + 1, NOON - HOUR, None),
        (NOON, NOON, None),
        (NOON + 10 * MINUTE, NOON, None),
        (NOON, NOON - 3 * HOUR, NOON),  # the others are too late
        (NOON - 30 * MINUTE, NOON, None),  # the clock went back
    ],
)
def test_a_tick_is_due_from_its_time_until_its_delta(now: int, decided: int, due: int | None) -> None:
    assert due_at(HOURLY, Seen(NOON - 9 * HOUR, decided), now) == due


def test_a_tick_is_due_after_the_registration_and_not_at_it() -> None:
    assert due_at(replace(HOURLY, created_ms=NOON), Seen(NOON), NOON) is None
    assert due_at(replace(HOURLY, created_ms=NOON - 1), Seen(NOON), NOON) == NOON


@each_row(("end", "due"), [(NOON - 1, None), (NOON, NOON), (NOON + 1, NOON), (0, NOON)])
def test_a_tick_is_not_after_the_end(end: int, due: int | None) -> None:
    assert due_at(replace(HOURLY, end_ms=end), Seen(NOON - MINUTE, NOON - HOUR), NOON + MINUTE) == due


def test_a_due_tick_has_the_tick_as_time_and_payload() -> None:
    found = HOURLY.look(Seen(NOON), NOON + MINUTE).due
    assert found == Due(SIG, 0, NOON.to_bytes(32), NOON, NOON + 10 * MINUTE)
    assert read_payload(0, NOON.to_bytes(32)) == NOON


@each_row(
    ("now", "seen", "gap"),
    [
        (NOON + MINUTE, Seen(NOON - 9 * HOUR, NOON - HOUR), None),
        (NOON + MINUTE, Seen(NOON - 9 * HOUR, NOON - 2 * HOUR), (1, NOON - HOUR, NOON - HOUR)),
        (NOON + MINUTE, Seen(NOON - 9 * HOUR, NOON - 4 * HOUR), (3, NOON - 3 * HOUR, NOON - HOUR)),
        (NOON + 20 * MINUTE, Seen(NOON - 9 * HOUR, NOON - 4 * HOUR), (4, NOON - 3 * HOUR, NOON)),
        (NOON + 20 * MINUTE, Seen(NOON), (1, NOON, NOON)),
        (NOON + 20 * MINUTE, Seen(NOON + 1), None),  # seen after the tick
        (NOON + MINUTE, Seen(NOON - HOUR - 1), (1, NOON - HOUR, NOON - HOUR)),
        (NOON - 30 * MINUTE, Seen(NOON - 9 * HOUR, NOON), None),
    ],
)
def test_the_ticks_that_nobody_ran_are_one_gap(now: int, seen: Seen, gap: tuple[int, int, int] | None) -> None:
    assert gap_at(HOURLY, seen, now) == gap


def test_a_gap_ends_with_the_trigger() -> None:
    plan = replace(HOURLY, end_ms=NOON + HOUR)
    look = plan.look(Seen(NOON - 9 * HOUR, NOON), NOON + 9 * HOUR)
    assert look.gaps == (Gap(SIG, 0, (NOON + HOUR).to_bytes(32), 1, NOON + HOUR, NOON + HOUR),)
    assert look.due is look.wake_ms is None


@each_row(
    ("now", "decided", "wake"), [(NOON - 1, 0, NOON), (NOON, 0, NOON + HOUR), (NOON - 5 * HOUR, NOON, NOON + HOUR)]
)
def test_a_trigger_is_looked_at_again_at_the_next_tick(now: int, decided: int, wake: int) -> None:
    assert HOURLY.look(Seen(NOON - 9 * HOUR, decided), now).wake_ms == wake


@each_row(
    ("now", "due", "wake"),
    [
        (NOON - 1, None, NOON),
        (NOON, NOON, NOON + 10 * MINUTE + 1),
        (NOON + 10 * MINUTE, NOON, NOON + 10 * MINUTE + 1),
        (NOON + 10 * MINUTE + 1, None, None),
    ],
)
def test_a_single_run_is_due_from_its_date_until_its_delta(now: int, due: int | None, wake: int | None) -> None:
    look = ONCE.look(Seen(NOON - MINUTE), now)
    assert (None if look.due is None else look.due.timestamp_ms) == due
    assert look.wake_ms == wake
    assert ONCE.look(Seen(NOON - MINUTE, NOON), now).due is None


def test_a_single_run_has_the_signed_date_as_time_also_when_it_was_registered_later() -> None:
    late = replace(ONCE, created_ms=NOON + HOUR)
    assert late.look(Seen(NOON + HOUR), NOON + 30 * MINUTE).due is None
    found = late.look(Seen(NOON + HOUR), NOON + HOUR).due
    assert found == Due(SIG, 2, NOON.to_bytes(32), NOON, NOON + HOUR + 10 * MINUTE)
    undated = replace(ONCE, start_ms=0)
    found = undated.look(Seen(NOON), undated.created_ms).due
    assert found is not None
    assert found.payload == undated.created_ms.to_bytes(32)


def test_a_single_run_is_missed_only_if_it_was_seen_before_its_date() -> None:
    assert gap_at(ONCE, Seen(NOON), NOON + HOUR) == (1, NOON, NOON)
    assert gap_at(ONCE, Seen(NOON + 1), NOON + HOUR) is None
    assert gap_at(ONCE, Seen(NOON, NOON), NOON + HOUR) is None
    assert gap_at(replace(ONCE, end_ms=NOON - 1), Seen(NOON), NOON + HOUR) is None


def test_a_schedule_has_as_many_runs_at_most_as_ticks_and_a_late_one() -> None:
    assert HOURLY.most_runs(NOON, NOON) == 2
    assert HOURLY.most_runs(NOON + 1, NOON + HOUR - 1) == 1
    assert HOURLY.most_runs(NOON, NOON + 24 * HOUR) == 26
    assert ONCE.most_runs(NOON, NOON + 24 * HOUR) == 1
    assert replace(HOURLY, kind=1).most_runs(NOON, NOON + HOUR) is None


def test_an_event_is_due_until_its_delta() -> None:
    log = EventPayload(
        8453, Bytes32.parse("0x" + "02" * 32), 7, Address.parse("0x" + "ab" * 20), (Bytes32.parse("0x" + "03" * 32),),
        HexString.parse("0xdeadbeef"),
    )  # fmt: skip
    event = Occurrence(log, 100, NOON // 1_000, Bytes32.parse("0x" + "04" * 32), 2)
    due = replace(HOURLY, kind=1).of_event(event)
    assert (due.timestamp_ms, due.until_ms) == (NOON, NOON + 10 * MINUTE)
    assert read_payload(1, due.payload) == log
    assert HOURLY.look(Seen(NOON - MINUTE), NOON - MINUTE).due is None


@each_row(
    ("topics", "wanted", "is_wanted"),
    [
        ("ab", [], True), ("ab", [["a"]], True), ("ab", [["b"]], False), ("ab", [[], ["b"]], True),
        ("ab", [["x", "a"], ["y", "b"]], True), ("a", [[], []], False), ("", [[]], False), ("", [], True),
    ],
)  # fmt: skip
def test_topics_are_choices_for_each_place(topics: str, wanted: list[list[str]], is_wanted: bool) -> None:  # noqa: FBT001 - a column of the table
    assert matches([*topics], wanted) is is_wanted


@each_row(
    ("own", "registry", "agreed"),
    [
        (NOON, NOON, NOON),
        (NOON, NOON + MINUTE, NOON),
        (NOON + MINUTE, NOON, NOON + 30_000),
        (NOON + APART_MS_MAX, NOON, NOON + 30_000),
        (NOON + APART_MS_MAX + 1, NOON, None),
        (NOON, NOON + APART_MS_MAX, NOON),
        (NOON, NOON + APART_MS_MAX + 1, None),
    ],
)
def test_the_time_is_the_own_one_at_most_half_a_minute_ahead(own: int, registry: int, agreed: int | None) -> None:
    assert agreed_now(own, registry) == agreed


def test_a_date_time_of_the_wire_is_read_to_the_millisecond() -> None:
    assert ms_of("2026-11-21T12:00:00.123Z") == NOON + 123


EACH_MINUTE = replace(HOURLY, schedule="* * * * *", created_ms=NOON - DAY)


def whys(seen: Seen, now_ms: int, plan: Plan = EACH_MINUTE) -> tuple[list[tuple[str, int, int]], int | None]:
    """The gaps with their reasons, in minutes from noon, and the tick that is due."""
    look = plan.look(seen, now_ms)
    gaps = [(gap.why, (gap.from_ms - NOON) // MINUTE, (gap.to_ms - NOON) // MINUTE) for gap in look.gaps]
    return gaps, None if look.due is None else (look.due.timestamp_ms - NOON) // MINUTE


def test_ticks_whose_window_is_open_run_in_order() -> None:
    for decided in range(3, 12):
        assert whys(Seen(NOON, NOON + decided * MINUTE), NOON + 12 * MINUTE) == ([], decided + 1)
    assert whys(Seen(NOON, NOON + 12 * MINUTE), NOON + 12 * MINUTE) == ([], None)


def test_at_most_ten_ticks_run_late() -> None:
    hour = replace(EACH_MINUTE, delta_ms=HOUR)
    assert whys(Seen(NOON, NOON), NOON + 15 * MINUTE, hour) == ([("overtaken", 1, 5)], 6)
    gaps = [("gap", 1, 59), ("overtaken", 60, 110)]
    assert whys(Seen(NOON, NOON), NOON + 2 * HOUR, hour) == (gaps, 111)


def test_ticks_that_were_due_before_a_run_sent_intents_are_overtaken() -> None:
    sent_ms = NOON + 5 * MINUTE + 30_000
    assert whys(Seen(NOON, NOON, sent_ms), NOON + 6 * MINUTE) == ([("overtaken", 1, 5)], 6)
    assert whys(Seen(NOON, NOON, NOON + 5 * MINUTE), NOON + 6 * MINUTE) == ([("overtaken", 1, 4)], 5)
    assert whys(Seen(NOON, NOON, sent_ms), NOON + 5 * MINUTE) == ([("overtaken", 1, 5)], None)
    assert whys(Seen(NOON, NOON, sent_ms), NOON + HOUR) == (
        [("overtaken", 1, 5), ("gap", 6, 49), ("overtaken", 50, 50)],
        51,
    )


def test_ticks_of_a_rest_are_resting() -> None:
    rested = Seen(NOON, NOON, rests_until_ms=NOON + 30 * MINUTE)
    assert whys(rested, NOON + 30 * MINUTE + 1) == ([("resting", 1, 19), ("gap", 20, 20)], 21)
    assert whys(rested, NOON + 40 * MINUTE) == ([("resting", 1, 19), ("gap", 20, 29), ("overtaken", 30, 30)], 31)


def test_runs_that_are_later_than_the_life_of_intents_do_not_start() -> None:
    short = Seen(NOON, NOON, life_ms=5 * MINUTE)
    assert whys(short, NOON + 12 * MINUTE) == ([("gap", 1, 1), ("too-late", 2, 7)], 8)
    found = EACH_MINUTE.look(short, NOON + 12 * MINUTE).due
    assert found is not None
    assert found.until_ms == NOON + 13 * MINUTE - 1
    # A prompt run is always started, or a trigger that gave a short life once would never run again.
    assert whys(Seen(NOON, NOON, life_ms=1_000), NOON + 3 * MINUTE + 50_000) == ([("too-late", 1, 2)], 3)


def test_of_the_ticks_before_the_trigger_was_seen_only_the_newest_runs() -> None:
    assert whys(Seen(NOON), NOON - 1) == ([], -1)
    assert whys(Seen(NOON), NOON + MINUTE) == ([], 0)


@dataclass
class Relayer:
    """One that runs what is due, as the loop does: the notes first, then the run, each of which decides."""

    plan: Plan
    seen: Seen
    runs: list[int] = field(default_factory=list[int])
    gaps: list[Gap] = field(default_factory=list[Gap])

    def step(self, now_ms: int, *, sends: bool = False, seconds: int = 0) -> None:
        look = self.plan.look(self.seen, now_ms)
        for gap in look.gaps:
            self.gaps.append(gap)
            self._decide(gap.to_ms)
        if look.due is not None:
            assert look.due.timestamp_ms <= now_ms <= look.due.until_ms
            self.runs.append(look.due.timestamp_ms)
            self._decide(look.due.timestamp_ms)
            since_ms = min(self.seen.since_ms, look.due.timestamp_ms)
            sent_ms = now_ms + 1_000 * seconds if sends else 0
            self.seen = self.seen._replace(since_ms=since_ms, sent_ms=max(self.seen.sent_ms, sent_ms))

    def _decide(self, at_ms: int) -> None:
        self.seen = self.seen._replace(decided_ms=max(self.seen.decided_ms, at_ms))


jumps = st.integers(-3 * HOUR, 3 * HOUR) | st.integers(-90_000, 300_000) | st.just(2 * DAY) | st.just(0)
# The time that passes, whether the run sends intents, how many seconds it takes, and whether the trigger rested or
# gives its intents a life, in minutes.
steps = st.lists(st.tuples(jumps, st.booleans(), st.integers(0, 400), st.sampled_from([0, 0, 1, 7, 90])), max_size=25)


@settings(deadline=None)
@given(
    st.sampled_from(["* * * * *", "*/20 * * * *", "0 * * * *", "30 1 * * 1", "0 0 L * *"]),
    st.sampled_from([1_000, MINUTE, 10 * MINUTE, 3 * HOUR]),
    st.sampled_from([0, NOON + 5 * HOUR]),
    steps,
)
def test_whatever_the_clock_does_each_tick_is_run_or_in_one_gap(
    schedule: str, delta_ms: int, end_ms: int, steps: list[tuple[int, bool, int, int]]
) -> None:
    plan = replace(HOURLY, schedule=schedule, delta_ms=delta_ms, end_ms=end_ms, created_ms=NOON - DAY)
    relayer, now_ms = Relayer(plan, Seen(NOON)), NOON
    for jump, sends, seconds, minutes in steps:
        now_ms += jump
        relayer.seen = relayer.seen._replace(
            life_ms=minutes * MINUTE, rests_until_ms=now_ms + (minutes - 5) * MINUTE if minutes else 0
        )
        relayer.step(now_ms, sends=sends, seconds=seconds)
    assert relayer.runs == sorted(set(relayer.runs))
    counted = [each for gap in relayer.gaps for each in next_runs(schedule, gap.from_ms - 1, gap.ticks)]
    assert [gap.to_ms for gap in relayer.gaps] == [
        next_runs(schedule, gap.from_ms - 1, gap.ticks)[-1] for gap in relayer.gaps
    ]
    assert counted == sorted(set(counted))
    assert not set(counted) & set(relayer.runs)
    # Every tick since the trigger was seen, up to the newest that was reached, is one or the other.
    ticks = next_runs(schedule, NOON - 1, 200_000, max(1, relayer.seen.decided_ms))
    assert {each for each in (*relayer.runs, *counted) if each >= NOON} == set(ticks)


def test_two_days_of_a_suspended_process_are_two_notes_and_ten_runs() -> None:
    relayer = Relayer(EACH_MINUTE, Seen(NOON))
    back = [NOON + 2 * DAY + 1_000, NOON + 2 * DAY - HOUR]
    for now_ms in (NOON, *back * 11):
        relayer.step(now_ms)
    assert relayer.runs == [NOON, *range(NOON + 2 * DAY - 9 * MINUTE, NOON + 2 * DAY + 1, MINUTE)]
    assert [(gap.why, gap.ticks, gap.from_ms) for gap in relayer.gaps] == [("gap", 2 * 1_440 - 10, NOON + MINUTE)]
