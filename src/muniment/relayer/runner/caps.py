"""The caps of a relayer: runs of a trigger and intents of all in a day (UTC), counted from the registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.protocol.runs.reasons import is_verdict
from muniment.relayer.schedule.due import APART_MS_MAX

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.types import NewRun
    from muniment.relayer.schedule.due import Plan
    from muniment.relayer.settings import RelayerSettings

_DAY_MS: Final = 86_400_000
# Where any signer is served, each may send this part of the intents that the others have left, and triggers that are
# younger than a day none of the last half: signers and triggers cost nothing, so new ones could take all.
_SHARE: Final = 10
_HALF: Final = 2


class _Counted(NamedTuple):
    """The runs of a trigger in the registry, less those that this process had made by then; `relayer` recorded them."""

    relayer: str | None
    others: int


@dataclass(slots=True, kw_only=True)
class Caps:
    """Counts of the present day. What the registry has is counted first, so a new machine does not begin at zero.

    `relayer` is the address under which the registry lists this relayer's runs; None until it recorded one. Until then
    the runs of all relayers count, and after that its own alone: others must not use up its cap. It is empty when the
    registry had a verdict of another in place of its first note, so that no note can tell the address: then what is
    made here counts. `signer_of` knows the signers of the triggers that are served.
    """

    registry: AsyncRegistry
    settings: RelayerSettings
    signer_of: Callable[[Signature], Address | None]
    relayer: str | None = None
    _day: int = field(default=-1, init=False)
    _runs: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)
    _counted: dict[Signature, _Counted] = field(default_factory=dict["Signature", _Counted], init=False)
    # By trigger, and by signer; those of triggers that have ended have None.
    _intents: Counter[Signature] = field(default_factory=Counter["Signature"], init=False)
    _of_signers: Counter[Address | None] = field(default_factory=Counter["Address | None"], init=False)
    # Whether the registry's own count is in: of which triggers, and of the intents. After midnight all counts are ours.
    _asks_runs: bool = field(default=True, init=False)
    _asks_intents: bool = field(default=True, init=False)

    async def reached(self, plan: Plan, now_ms: int) -> RunReasonCode | None:
        """Which cap a trigger reaches: `run-cap` or `intent-cap`. Raises the errors of the client."""
        self._begin(now_ms // _DAY_MS)
        runs_max = self.settings.runs_per_trigger_and_day_max
        # A schedule with few ticks cannot reach it, and costs no request. The registry's day may have begun earlier.
        most = plan.most_runs(self._day * _DAY_MS - APART_MS_MAX, now_ms)
        if (most is None or most > runs_max) and await self._runs_of(plan.sig) >= runs_max:
            return "run-cap"
        if self._asks_intents and self.relayer:
            day, counts = self._day, await self._count_intents(self.relayer)
            if day == self._day:  # it may be past midnight
                for sig, count in counts.items():
                    self._count_intent(sig, max(0, count - self._intents[sig]))  # the higher count of each trigger
            self._asks_intents = False
        return "intent-cap" if self._has_sent_all(plan, now_ms) else None

    def _has_sent_all(self, plan: Plan, now_ms: int) -> bool:
        """Whether a trigger may send no further intent today."""
        most, sent = self.settings.intents_per_day_max, self._of_signers.total()
        if sent >= most or self._intents[plan.sig] >= self.settings.intents_per_trigger_and_day_max:
            return True
        if self.settings.served.signers is not None:
            return False
        own = self._of_signers[self.signer_of(plan.sig)]
        is_young = now_ms - plan.created_ms < _DAY_MS
        return own >= max(1, (most - sent + own) // _SHARE) or (is_young and sent >= max(1, most // _HALF))

    def _count_intent(self, sig: Signature, count: int) -> None:
        self._intents[sig] += count
        self._of_signers[self.signer_of(sig)] += count

    def count(self, run: NewRun, now_ms: int) -> None:
        """Count a run that was made here."""
        self._begin(now_ms // _DAY_MS)
        self._runs[run.trigger_sig] = self._runs.get(run.trigger_sig, 0) + 1
        self._count_intent(run.trigger_sig, len(run.outputs))

    def _begin(self, day: int) -> None:
        if day == self._day:
            return
        if self._day >= 0:  # this process saw the day begin
            self._asks_runs = self._asks_intents = False
        self._day = day
        self._intents.clear()
        self._of_signers.clear()
        self._runs.clear()
        self._counted.clear()

    async def _runs_of(self, sig: Signature) -> int:
        """The runs of a trigger today."""
        if not self._asks_runs or self.relayer == "":
            return self._runs.get(sig, 0)
        counted = self._counted.get(sig)
        if counted is None or counted.relayer != self.relayer:
            count = await self._count_runs(sig, self.relayer)
            counted = self._counted[sig] = _Counted(self.relayer, max(0, count - self._runs.get(sig, 0)))
        return counted.others + self._runs.get(sig, 0)

    async def _count_runs(self, sig: Signature, relayer: str | None) -> int:
        count = 0
        listing = self.registry.runs.list(trigger_sig=sig, created_after=self._day * _DAY_MS, newest_first=True)
        async for run in listing:
            is_own = relayer is None or any(each.relayer == relayer for each in run.records)
            count += is_own and is_verdict(run.result, run.reason.code if run.reason else None)
            if count >= self.settings.runs_per_trigger_and_day_max:
                break
        return count

    async def _count_intents(self, relayer: str) -> Counter[Signature]:
        count = Counter["Signature"]()
        listing = self.registry.runs.list(
            relayer=relayer, result="intents", created_after=self._day * _DAY_MS, newest_first=True
        )
        async for run in listing:
            count[run.trigger_sig] += len(run.outputs)
            if count.total() >= self.settings.intents_per_day_max:
                break
        return count
