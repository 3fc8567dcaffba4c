"""What a trigger says about time: its next runs, and whether it is over."""

from __future__ import annotations

from typing import Any

from builders import cron, event, once
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.triggers.types import SIG, Trigger

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def trigger(config: dict[str, Any], **members: Any) -> Trigger:
    end = config.get("endDate", 0)
    return decode_record({**Trigger.example, "config": config, "endDate": end, **members}, Trigger)


def test_the_next_runs_come_after_a_time_and_up_to_the_end() -> None:
    daily = trigger(cron(schedule="0 6 * * *", endDate=3 * DAY_MS))
    assert daily.next_runs(0) == [6 * HOUR_MS]
    assert daily.next_runs(6 * HOUR_MS - 1, 2) == [6 * HOUR_MS, DAY_MS + 6 * HOUR_MS]
    assert daily.next_runs(6 * HOUR_MS, 9) == [day * DAY_MS + 6 * HOUR_MS for day in (1, 2)]
    assert daily.next_runs(3 * DAY_MS) == daily.next_runs(0, 0) == []
    assert len(trigger(cron(schedule="* * * * *")).next_runs(0, 100)) == 100


def test_a_trigger_without_a_schedule_or_with_a_deactivation_has_no_next_run() -> None:
    assert trigger(event()).next_runs(0, 5) == trigger(once()).next_runs(0, 5) == []
    assert trigger(cron(), deactivateSig=SIG).next_runs(0, 5) == []


def test_a_trigger_is_over_at_its_end_or_once_deactivated() -> None:
    ending = trigger(cron(endDate=1_000))
    assert [ending.is_over(now_ms) for now_ms in (999, 1_000, 1_001)] == [False, True, True]
    assert not trigger(cron()).is_over(2**53)
    ended = trigger(cron(), deactivateSig=SIG)
    assert isinstance(ended.deactivate_sig, Signature)
    assert ended.is_over(0)
