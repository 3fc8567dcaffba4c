"""When a trigger is due: ticks of schedules, single runs and events. Pure: the time is a parameter, and may jump.

All times are milliseconds since 1970, unless a name ends in `_s`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.triggers.schedule import check_delta, count_runs, last_run, last_runs, next_runs
from muniment.protocol.triggers.typed_data import CRON, EVENT, ONCE
from muniment.protocol.wire import ms_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.evm.hex import Bytes32
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.types import TriggerType
    from muniment.protocol.triggers.types import Trigger

# The registry's `Date` has whole seconds, and an answer may be on its way for a while.
LEAD_MS: Final = 30_000
# Where clocks are further apart one of them is wrong, and nothing tells which.
APART_MS_MAX: Final = 5 * 60_000
# Ticks of a schedule that run late, one after the other.
_OPEN_MAX: Final = 10
# A run that starts within this time is never too late for the life of intents: looks and turns take some seconds.
_PROMPT_MS: Final = 60_000


class Seen(NamedTuple):
    """What a relayer remembers of a trigger.

    `since_ms` is when it first saw the trigger: earlier ticks are not missed. `decided_ms` is the newest tick that has
    a result or belongs to a gap, `sent_ms` the end of the newest run that sent intents. `life_ms` is how long after it
    was due the intents of the last run that was too late were good, `rests_until_ms` the end of the last rest after
    failures. Each is 0 where there is none.
    """

    since_ms: int
    decided_ms: int = 0
    sent_ms: int = 0
    life_ms: int = 0
    rests_until_ms: int = 0

    def late_ms(self, delta_ms: int) -> int:
        """How late a run may start: as its trigger says, and before the life of its intents is over."""
        return min(delta_ms, max(self.life_ms - 1, _PROMPT_MS)) if self.life_ms else delta_ms


class Due(NamedTuple):
    """A run that is due. `payload` has the ABI bytes of its type; the run may start until `until_ms`."""

    sig: Signature
    kind: TriggerType
    payload: bytes
    timestamp_ms: int
    until_ms: int
    event: Occurrence | None = None


class Gap(NamedTuple):
    """Ticks of a trigger that this relayer did not run: their number, the oldest, the newest, its payload, and why."""

    sig: Signature
    kind: TriggerType
    payload: bytes
    ticks: int
    from_ms: int
    to_ms: int
    why: RunReasonCode = "gap"


class Occurrence(NamedTuple):
    """An event on chain that a trigger waits for. `ordinal` is its place among the equal logs of its transaction."""

    log: EventPayload
    block_number: int
    block_time_s: int
    transaction_hash: Bytes32
    ordinal: int


class Look(NamedTuple):
    """A trigger at a time: the run that is due, the gaps to note before it, and when to look again; None: never."""

    due: Due | None = None
    gaps: tuple[Gap, ...] = ()
    wake_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When a trigger runs, read from its record.

    `start_ms` is the `startDate` of a single run, 0 without one. `end_ms` is 0 for a trigger without an end.
    """

    sig: Signature
    kind: TriggerType
    created_ms: int
    end_ms: int
    delta_ms: int
    schedule: str = ""
    start_ms: int = 0

    @classmethod
    def of(cls, trigger: Trigger) -> Plan:
        """The plan of a trigger. Raises `InvalidConfig` for a delta that no registry takes."""
        config = trigger.config
        return cls(
            sig=trigger.sig, kind=config["type"], created_ms=ms_of(trigger.created_at), end_ms=trigger.end_date,
            delta_ms=1_000 * check_delta(config["delta"]), schedule=config.get("schedule", ""),
            start_ms=int(config.get("startDate", 0)),
        )  # fmt: skip

    def look(self, seen: Seen, now_ms: int) -> Look:
        """What is due at `now_ms`, by the schedule or the date. Events come from a chain: see `of_event`."""
        if self.kind == CRON:
            return self._look_at_schedule(seen, now_ms)
        return self._look_at_date(seen, now_ms) if self.kind == ONCE else Look()

    def of_event(self, event: Occurrence) -> Due:
        """The run for an event. It is due while the time is not after its `until_ms`."""
        at_ms = 1_000 * event.block_time_s
        return Due(self.sig, EVENT, event_payload(event.log), at_ms, at_ms + self.delta_ms, event)

    def most_runs(self, since_ms: int, until_ms: int) -> int | None:
        """The most runs that can begin from `since_ms` to `until_ms`; None: there is no bound, since events come.

        A schedule has one for each tick, and one for the tick before, which may run late.
        """
        if self.kind == CRON:
            return 1 + count_runs(self.schedule, since_ms - 1, until_ms)
        return 1 if self.kind == ONCE else None

    def _look_at_schedule(self, seen: Seen, now_ms: int) -> Look:
        """The oldest of the ticks that can still run; those between it and the last decided one are gaps."""
        wake_ms = self._next_tick(max(now_ms, seen.decided_ms))
        last_ms = min(now_ms, self.end_ms or now_ms)
        late_ms = seen.late_ms(self.delta_ms)
        after_ms = max(self.created_ms, seen.decided_ms, seen.sent_ms - 1, now_ms - late_ms - 1)
        ticks = last_runs(self.schedule, last_ms, _OPEN_MAX, after_ms)
        # Another relayer may have run those from before the trigger was seen here, and may have sent intents.
        ticks = [each for each in ticks if each >= seen.since_ms] or ticks[-1:]
        gaps = self._gaps(seen, now_ms, ticks[0] - 1 if ticks else last_ms)
        if not ticks:
            return Look(gaps=gaps, wake_ms=wake_ms)
        due = Due(self.sig, CRON, time_payload(ticks[0]), ticks[0], ticks[0] + late_ms)
        return Look(due, gaps, wake_ms)

    def _look_at_date(self, seen: Seen, now_ms: int) -> Look:
        """The single run. The signed date is the time of the run, unless the trigger has none."""
        timestamp_ms = self.start_ms or self.created_ms
        begin_ms = max(self.start_ms, self.created_ms)
        if seen.decided_ms or (self.end_ms and begin_ms > self.end_ms):
            return Look()
        if now_ms < begin_ms:
            return Look(wake_ms=begin_ms)
        payload, until_ms = time_payload(timestamp_ms), begin_ms + self.delta_ms
        if now_ms <= until_ms:
            return Look(Due(self.sig, ONCE, payload, timestamp_ms, until_ms), wake_ms=until_ms + 1)
        if seen.since_ms > begin_ms:
            return Look()
        why: RunReasonCode = "resting" if until_ms < min(seen.rests_until_ms, now_ms) else "gap"
        return Look(gaps=(Gap(self.sig, ONCE, payload, 1, timestamp_ms, timestamp_ms, why),))

    def _next_tick(self, after_ms: int) -> int | None:
        ticks = next_runs(self.schedule, after_ms, 1, self.end_ms)
        return ticks[0] if ticks else None

    def _gaps(self, seen: Seen, now_ms: int, until_ms: int) -> tuple[Gap, ...]:
        """The ticks after the last decided one, up to `until_ms`, without those before the trigger was seen.

        Why they do not run: an earlier run sent intents after they were due; the trigger rested while they could run;
        nobody ran them while they could; they are too late for the life of intents; more than ten were due.
        """
        reasons: tuple[tuple[RunReasonCode, int], ...] = (
            ("overtaken", seen.sent_ms - 1),
            ("resting", min(seen.rests_until_ms, now_ms) - self.delta_ms - 1 if seen.rests_until_ms else 0),
            ("gap", now_ms - self.delta_ms - 1),
            ("too-late", now_ms - seen.late_ms(self.delta_ms) - 1),
            ("overtaken", until_ms),
        )
        after_ms = max(self.created_ms, seen.decided_ms, seen.since_ms - 1)
        gaps: list[Gap] = []
        for why, last_ms in reasons:
            if (gap := self._gap(after_ms, min(last_ms, until_ms), why)) is not None:
                gaps.append(gap)
            after_ms = max(after_ms, min(last_ms, until_ms))
        return tuple(gaps)

    def _gap(self, after_ms: int, until_ms: int, why: RunReasonCode) -> Gap | None:
        count = count_runs(self.schedule, after_ms, until_ms)
        if not count:
            return None
        first, last = next_runs(self.schedule, after_ms, 1)[0], last_run(self.schedule, until_ms)
        assert last is not None  # noqa: S101 - there is one tick at least
        return Gap(self.sig, CRON, time_payload(last), count, first, last, why)


def agreed_now(own_ms: int, registry_ms: int) -> int | None:
    """The time for all rules: the own clock, at most `LEAD_MS` ahead of the registry's. None: they are too far apart.

    So a clock that runs ahead starts no run early, and one that lags runs late.
    """
    if abs(own_ms - registry_ms) > APART_MS_MAX:
        return None
    return min(own_ms, registry_ms + LEAD_MS)


def matches(topics: Sequence[str], wanted: Sequence[Sequence[str]]) -> bool:
    """Whether a log has topics that a trigger waits for: each inner list holds choices, an empty one any topic."""
    return len(topics) >= len(wanted) and all(
        not choices or topic in choices for topic, choices in zip(topics, wanted, strict=False)
    )
