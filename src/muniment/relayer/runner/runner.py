"""One run, from its turn to its outcome: may it be made, and what does the function give. It writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.runner.results import LATE, GivenUp, NotYet, Outcome, Running, Skipped
from muniment.relayer.schedule.due import Plan

if TYPE_CHECKING:
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.lives.following import Following
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.schedule.due import Due
    from muniment.relayer.settings import RelayerSettings


class Occurring(Protocol):
    """What knows the events of chains, see `EventRuns`."""

    async def may_run(self, due: Due) -> bool:
        """Whether the event of a planned run is still on its chain."""
        ...

    async def was_submitted(self, due: Due) -> bool:
        """Whether an intent was submitted that a run made for the same event in another block."""
        ...


@dataclass(slots=True, kw_only=True)
class Runner:
    """Makes the runs whose turn it is. `now_ms` is the time by which runs are due; None: it is in doubt."""

    settings: RelayerSettings
    following: Following
    running: Running
    caps: Caps
    events: Occurring
    now_ms: Callable[[], int | None]

    async def attempt(self, due: Due) -> Outcome:
        """Run what is due. Raises the errors of the client, and `Incomplete`."""
        trigger = await self.following.asked_again(due.sig)
        if trigger is None:
            return GivenUp("its trigger has ended")
        now_ms = self.now_ms()
        if now_ms is None or now_ms > due.until_ms:
            return NotYet(LATE, "its time is over, or in doubt")
        if due.kind == EVENT and not await self.events.may_run(due):
            return GivenUp("the block of its event is gone")
        if code := await self._skipped(trigger, due, now_ms):
            return Skipped(code)
        return await self.running.run(trigger, due)

    async def _skipped(self, trigger: Trigger, due: Due, now_ms: int) -> RunReasonCode | None:
        """Why this relayer does not make a run of this trigger; None if it does."""
        limit = int(trigger.execution_fee_limit)
        if limit and self.settings.fee_of(trigger) > limit:
            return "fee-limit"
        if due.kind == EVENT and await self.events.was_submitted(due):
            return "other-block"
        return await self.caps.reached(Plan.of(trigger), now_ms)
