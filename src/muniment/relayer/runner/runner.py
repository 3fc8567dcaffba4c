"""One run from its turn to its publication: may it run, what does the function give, and what is kept of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.runner.content import Content
from muniment.relayer.runner.notes import skipped
from muniment.relayer.runner.results import Made, NotYet, Running
from muniment.relayer.schedule.due import Plan

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.clock import RegistryClock
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.sqlite import Entry, Journal
    from muniment.relayer.lives.following import Following
    from muniment.relayer.runner.caps import Caps
    from muniment.relayer.runner.funds import Funds
    from muniment.relayer.runner.rests import Rests
    from muniment.relayer.schedule.due import Due
    from muniment.relayer.settings import RelayerSettings

# A note says once an hour that the runs of a trigger are skipped.
_TOLD_MS: Final = 3_600_000

_log = structlog.get_logger(__name__)


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
    """Makes the runs whose turn it is.

    `publish` takes a run of the journal, `beside` starts work that no run waits for.
    """

    settings: RelayerSettings
    journal: Journal
    following: Following
    running: Running
    clock: RegistryClock
    caps: Caps
    rests: Rests
    figures: Figures
    engine: Engine
    events: Occurring
    funds: Funds
    publish: Callable[[Entry], Awaitable[bool]]
    beside: Callable[[Coroutine[None, None, None]], None]
    # When it was last noted of a trigger that its runs are skipped, in milliseconds since 1970.
    _told: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)

    async def attempt(self, due: Due) -> bool:
        """Run what is due and publish it; whether it has a result. Raises the errors of the client."""
        trigger = await self.following.asked_again(due.sig)
        if trigger is None:
            self.journal.give_up(due, is_decided=False)
            return False
        now_ms = self.clock.now_ms()
        if now_ms is None or now_ms > due.until_ms:
            return False
        if due.kind == EVENT and not await self.events.may_run(due):
            self.journal.give_up(due, is_decided=False)
            _log.warning("a run is cancelled: the block of its event is gone", trigger=due.sig)
            return True
        if code := await self._skipped(trigger, due, now_ms):
            await self._skip(due, code, now_ms)
            return True
        made = await self.running.run(trigger, due)
        if isinstance(made, NotYet):
            self.figures.add("failures_total", "incomplete")
            _log.info("no result yet", trigger=due.sig, time_ms=due.timestamp_ms, code=made.code, reason=made.text)
            return False
        self.caps.count(made.run, now_ms)
        await self._keep(due, Content.of(made.run, made.intents), now_ms)
        if made.intents:
            self.beside(self._tell_of_funds(made))
        self.rests.judge(due.sig, now_ms, is_failure=made.run.result == "stopped")
        return True

    async def _tell_of_funds(self, made: Made) -> None:
        try:
            await self.funds.tell(made.run, made.intents)
        except Exception as error:  # noqa: BLE001 - it only tells
            self.figures.fail("internal", "cannot tell whether wallets have enough", error)

    async def _skipped(self, trigger: Trigger, due: Due, now_ms: int) -> RunReasonCode | None:
        """Why this relayer does not make a run of this trigger; None if it does."""
        limit = int(trigger.execution_fee_limit)
        if limit and self.settings.fee_of(trigger) > limit:
            return "fee-limit"
        if due.kind == EVENT and await self.events.was_submitted(due):
            return "other-block"
        return await self.caps.reached(Plan.of(trigger), now_ms)

    async def _skip(self, due: Due, code: RunReasonCode, now_ms: int) -> None:
        """Note a run that is skipped; for reasons that stay, once an hour."""
        if code != "other-block" and now_ms - self._told.get(due.sig, 0) < _TOLD_MS:
            self.journal.give_up(due, is_decided=True)
            return
        if code != "other-block":
            self._told[due.sig] = now_ms
        _log.warning("runs are skipped", trigger=due.sig, reason=code)
        await self._keep(due, Content.of(skipped(due, code, self.engine), []), now_ms)

    async def _keep(self, due: Due, content: Content, now_ms: int) -> None:
        """Put a result into the journal, and then publish it."""
        body, hash_ = content.bytes_and_hash()
        self.journal.ran(due, content.run.result, body, hash_, now_ms)
        self.figures.add("runs_total", content.run.result)
        entry = self.journal.entry(due.sig, due.kind, due.payload)
        if entry is not None:
            await self.publish(entry)
