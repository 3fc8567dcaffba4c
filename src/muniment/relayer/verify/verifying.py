"""Makes a recorded run again and compares: with the recorded answers, and with those of nodes where there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET

from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.reasons import is_verdict
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.context import CONSENSUS_THRESHOLD, settlers_of
from muniment.relayer.verify.accepting import gap_fault, record_fault
from muniment.relayer.verify.blocks import BlockCheck
from muniment.relayer.verify.comparing import Maker
from muniment.relayer.verify.repeating import NotingGenerations, Repetition
from muniment.relayer.verify.report import Report, Verification

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.guest.sandbox import Sandbox
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.runs.types import Run, RunContext, RunToken
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.runner.attempt import Function
    from muniment.relayer.runner.pinning import Pins


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Makes recorded runs again, as `engine`. Without `pins` no node is asked.

    `chains` are those of the chains file, which lists the settlement contracts; `now_ms` is the time.
    """

    sandbox: Sandbox
    chains: Mapping[int, Chain]
    pins: Pins | None
    now_ms: Callable[[], int]
    engine: Engine

    async def verify(self, run: Run, trigger: Trigger, function: Function) -> Verification:
        """Compare a whole record with a run that is made now."""
        report, code = Report(), run.reason.code if run.reason else None
        if wrong := record_fault(run, trigger, self.now_ms()) or gap_fault(run, trigger):
            report.faults.append(wrong)
        elif not is_verdict(run.result, code):
            report.doubts.append(f"{run.result} ({code}) is what its relayer noted, and cannot be repeated")
        elif run.inputs is UNSET or run.context is UNSET:
            report.doubts.append("the record is shown without its questions or its context")
        else:
            return await self._verdict(run, run.context, trigger, function)
        return report.verification("unchecked")

    async def _verdict(self, run: Run, context: RunContext, trigger: Trigger, function: Function) -> Verification:
        report = Report()
        payload = read_payload(run.trigger_type, run.trigger_data.raw)
        event = payload if isinstance(payload, EventPayload) else None
        own = None
        if self.pins is not None:
            pinned = await BlockCheck(self.pins, run, event).read(report)
            own = Answers(pins=self.pins, timestamp_ms=run.timestamp, event=event, pinned=pinned)
        self._check_context(context, report)
        rules, own_rules = Maker.of(run.engine).rules, Maker.of(self.engine).rules
        if rules == own_rules:
            generations = NotingGenerations(self.pins.nodes if self.pins else {})
            await Repetition(
                sandbox=self.sandbox, engine=self.engine, generations=generations, run=run, settlers=context.settlers,
                left_out=self._left_out(context.settlers), trigger=trigger, function=function, report=report,
            ).make(own)  # fmt: skip
        else:
            report.doubts.append(f"made under rules {rules}; this program has rules {own_rules}")
        if int(run.fee):
            report.omissions.append(f"the fee of {run.fee}: its operator sets it")
        if run.solver_fees:
            report.omissions.append("the fees of solvers")
        was_checked = self.pins is not None or (not run.inputs and event is None)
        return report.verification("same" if was_checked else "consistent")

    def _check_context(self, context: RunContext, report: Report) -> None:
        """What a function was told must be what this program tells, with settlement contracts of the chains file."""
        if context.consensus_threshold != CONSENSUS_THRESHOLD:
            report.faults.append(f"functions are told a consensusThreshold of {CONSENSUS_THRESHOLD}")
        told = [each.chain_id for each in context.settlers]
        if told != sorted(set(told)):
            report.doubts.append("the settlement contracts are not one for each chain, by the number of the chain")
        for each in context.settlers:
            chain = self.chains.get(each.chain_id)
            if chain is None or each.address not in chain.settlers:
                where = f"settlers of chain {each.chain_id} in the chains file"
                report.doubts.append(f"the function was told {each.address}, which is none of the {where}")
        report.doubts.extend(
            f"the function was not told the settlement contract of chain {each.chain_id}"
            for each in self._left_out(context.settlers) if self.pins and each.chain_id in self.pins.nodes
        )  # fmt: skip

    def _left_out(self, told: Sequence[RunToken]) -> list[RunToken]:
        """The settlement contracts of chains of which a function was told none."""
        chains = {each.chain_id for each in told}
        return [each for each in settlers_of(self.chains.values()) if each.chain_id not in chains]
