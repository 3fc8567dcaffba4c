"""One recorded run made again: as its function was told, and where that lacks something, with it too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muniment.protocol.evm.address import Address
from muniment.protocol.runs.reasons import is_verdict
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.runner.settlers import Generations
from muniment.relayer.schedule.due import Due
from muniment.relayer.verify.comparing import compare
from muniment.relayer.verify.replaying import NotRecorded, Replaying
from muniment.relayer.verify.report import Report

if TYPE_CHECKING:
    from muniment.guest.sandbox import Sandbox
    from muniment.guest.types import GuestRun
    from muniment.protocol.intents.types import Generation
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.runs.types import Run, RunToken
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.runner.answers import Answers
    from muniment.relayer.runner.forms import Made


@dataclass(frozen=True, slots=True)
class NotingGenerations(Generations):
    """Remembers the settlement contracts whose generation it did not find."""

    unknown: set[Address] = field(default_factory=set[Address])

    async def of(self, settlers: Iterable[Address]) -> dict[Address, Generation]:
        """As `Generations.of`. Raises `Incomplete`."""
        named = list(settlers)
        known = await Generations.of(self, named)
        self.unknown.update(each for each in named if each not in known)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """A verdict that is made again as `engine`; `report` gets how it differs.

    The function is told `settlers`, as the record has them; `left_out` are those of further chains of the chains file.
    """

    sandbox: Sandbox
    engine: Engine
    generations: NotingGenerations
    run: Run
    settlers: Sequence[RunToken]
    left_out: Sequence[RunToken]
    trigger: Trigger
    function: Function
    report: Report

    async def make(self, own: Answers | None) -> None:
        """Make the run again with the recorded answers, which are compared with `own`."""
        replaying = self._replaying(self.report, own)
        try:
            made, intents = await self._attempt(self.settlers, replaying)
        except NotRecorded as error:
            self.report.faults.append(str(error))
            return
        except Incomplete as error:
            self.report.doubts.append(error.text)
            return
        if not is_verdict(made.result, made.reason or None):
            self.report.doubts.append(f"the run was stopped here ({made.reason}), which depends on the machine")
            return
        self._compare_questions(replaying)
        comparison = Report()
        compare(self.run, made, intents, replaying.asked, self.engine, comparison)
        if comparison.faults and self.generations.unknown:
            named = " and ".join(sorted(self.generations.unknown))
            self.report.doubts.append(f"the generation of {named} is not known: no node of its chain is here")
            return
        self.report.add(comparison)
        if self.left_out and not comparison.faults:
            await self._compare_with_all(made, intents)

    def _compare_questions(self, replaying: Replaying) -> None:
        self.report.faults.extend(
            f"the record has a question that the function does not ask: {each.query}" for each in replaying.not_asked()
        )
        self.report.faults.extend(
            f"the record has a block of chain {each.chain_id}, which the function does not ask about"
            for each in self.run.blocks if each.chain_id not in replaying.chains
        )  # fmt: skip

    async def _compare_with_all(self, made: GuestRun, intents: Sequence[Made]) -> None:
        """Whether the function comes to the same when it is told the settlement contracts that were left out too."""
        chains = ", ".join(str(each.chain_id) for each in self.left_out)
        settlers = sorted((*self.settlers, *self.left_out), key=lambda each: each.chain_id)
        try:
            other, others = await self._attempt(settlers, self._replaying(Report(), None))
        except (NotRecorded, Incomplete):
            is_same = False
        else:
            is_same = _told(made, intents) == _told(other, others)
        where = self.report.omissions if is_same else self.report.doubts
        where.append(
            f"the function was not told the settlement contracts of chains {chains}; with them it comes to "
            f"{'the same' if is_same else 'something else'}"
        )

    def _replaying(self, report: Report, own: Answers | None) -> Replaying:
        return Replaying(inputs=self.run.inputs or [], timestamp_ms=self.run.timestamp, report=report, own=own)

    async def _attempt(self, settlers: Sequence[RunToken], answers: Replaying) -> tuple[GuestRun, list[Made]]:
        """Raises `NotRecorded`, `Incomplete`."""
        run = self.run
        due = Due(run.trigger_sig, run.trigger_type, run.trigger_data.raw, run.timestamp, run.timestamp)
        settling = Settling(settlers=settlers, generations=self.generations)
        return await attempt(
            due, Consent.of(self.trigger), self.function, sandbox=self.sandbox, answers=answers, settling=settling
        )  # fmt: skip


def _told(made: GuestRun, intents: Sequence[Made]) -> object:
    return made.result, made.reason, made.text, made.logs, [each.hash for each in intents]
