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
    found = plan.look(seen, now_ms).gap
    return None if found is None else (found.ticks, found.from_ms, found.to_ms)


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
        (NOON, NOON - 3 * HOUR, NOON),  # only the newest
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
    assert look.gap == Gap(SIG, 0, (NOON + HOUR).to_bytes(32), 1, NOON + HOUR, NOON + HOUR)
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


@dataclass
class Relayer:
    """One that runs what is due, as the loop does: the note first, then the run, each of which decides."""

    plan: Plan
    since_ms: int
    decided_ms: int = 0
    runs: list[int] = field(default_factory=list[int])
    gaps: list[Gap] = field(default_factory=list[Gap])

    def step(self, now_ms: int) -> None:
        look = self.plan.look(Seen(self.since_ms, self.decided_ms), now_ms)
        if look.gap is not None:
            self.gaps.append(look.gap)
            self.decided_ms = max(self.decided_ms, look.gap.to_ms)
        if look.due is not None:
            assert look.due.timestamp_ms <= now_ms <= look.due.until_ms
            self.runs.append(look.due.timestamp_ms)
            self.decided_ms = max(self.decided_ms, look.due.timestamp_ms)


steps = st.lists(st.integers(-3 * HOUR, 3 * HOUR) | st.integers(-90_000, 300_000) | st.just(2 * DAY), max_size=10)


@settings(deadline=None)
@given(
    st.sampled_from(["*/20 * * * *", "0 * * * *", "30 1 * * 1", "0 0 L * *"]),
    st.sampled_from([1_000, MINUTE, 10 * MINUTE, 3 * HOUR]),
    st.sampled_from([0, NOON + 5 * HOUR]),
    steps,
)
def test_whatever_the_clock_does_each_tick_is_run_or_counted_once(
    schedule: str, delta_ms: int, end_ms: int, jumps: list[int]
) -> None:
    plan = replace(HOURLY, schedule=schedule, delta_ms=delta_ms, end_ms=end_ms, created_ms=NOON - DAY)
    relayer, now_ms, latest_ms = Relayer(plan, since_ms=NOON), NOON, NOON
    for jump in jumps:
        now_ms += jump
        latest_ms = max(latest_ms, now_ms)
        gaps = len(relayer.gaps)
        relayer.step(now_ms)
        assert len(relayer.gaps) <= gaps + 1
        relayer.step(now_ms)  # nothing is due twice at one time
        assert len(relayer.gaps) <= gaps + 1
    assert relayer.runs == sorted(set(relayer.runs))
    counted = [each for gap in relayer.gaps for each in next_runs(schedule, gap.from_ms - 1, gap.ticks)]
    assert all(gap.from_ms <= gap.to_ms for gap in relayer.gaps)
    assert [gap.to_ms for gap in relayer.gaps] == [
        next_runs(schedule, gap.from_ms - 1, gap.ticks)[-1] for gap in relayer.gaps
    ]
    assert len(set(counted)) == len(counted)
    assert not set(counted) & set(relayer.runs)
    # Every tick since the trigger was seen, up to the newest that was reached, is one or the other.
    ticks = next_runs(schedule, NOON - 1, 20_000, max(1, relayer.decided_ms))
    assert {each for each in (*relayer.runs, *counted) if each >= NOON} == set(ticks)


def test_two_days_of_a_suspended_process_are_one_note_and_one_run() -> None:
    relayer = Relayer(replace(HOURLY, schedule="* * * * *"), since_ms=NOON)
    for now_ms in (NOON, NOON + 2 * DAY + 1_000, NOON + 2 * DAY - HOUR, NOON + 2 * DAY + 1_000):
        relayer.step(now_ms)
    assert relayer.runs == [NOON, NOON + 2 * DAY]
    assert [(gap.ticks, gap.from_ms, gap.to_ms) for gap in relayer.gaps] == [
        (2 * 1_440 - 1, NOON + MINUTE, NOON + 2 * DAY - MINUTE)
    ]
