"""Answers from the record of a run, compared with those of nodes where there are nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

from muniment.guest.types import Answer, Question
from muniment.protocol.evm.address import Address
from muniment.protocol.wire import encode, encode_text
from muniment.relayer.runner import questions
from muniment.relayer.runner.calls import Wanted, call_all
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.runner.questions import Balances, Refused

if TYPE_CHECKING:
    from muniment.protocol.runs.types import RunBlock, RunCall, RunInput
    from muniment.relayer.runner.answers import Answers
    from muniment.relayer.verify.report import Report


class NotRecorded(Exception):
    """The function asked what the record does not have."""


@dataclass(slots=True, kw_only=True)
class Replaying:
    """Answers the questions of a run of `timestamp_ms` that is made again: call it with each.

    With `own`, each answer is compared with one from nodes. `report` gets what comes of it.
    """

    inputs: Sequence[RunInput]
    timestamp_ms: int
    report: Report
    own: Answers | None = None
    # The inputs as the function asks them, where the record may have shortened them, and the chains that they may read.
    asked: list[RunInput] = field(default_factory=list["RunInput"])
    chains: set[int] = field(default_factory=set[int])
    _characters: int = 0

    async def __call__(self, question: Question) -> Answer:
        """The recorded answer. Raises `NotRecorded`."""
        recorded = self._next(question)
        self._characters += questions.length_of(question)
        is_settled = self._is_settled(question, recorded)
        if self.own is not None:
            await self._compare(self.own, question, recorded, is_settled=is_settled)
        answer = recorded.answer
        if not answer.success:
            # Of the type that a frame of the pipe takes.
            return Answer(success=False, error=str(answer.error or ""))
        return Answer(success=True, data=to_builtins(answer.data, enc_hook=_answered))

    def not_asked(self) -> Sequence[RunInput]:
        """The recorded questions that the function did not ask."""
        return self.inputs[len(self.asked) :]

    def _next(self, question: Question) -> RunInput:
        """The next question of the record, which must be this one. Raises `NotRecorded`.

        One that got an answer is there whole; of others a record cuts long parameters, or leaves them out.
        """
        whole, short = (questions.kept(question, is_short=is_short) for is_short in (True, False))
        name = _named(question.query, short)
        if len(self.asked) == len(self.inputs):
            raise NotRecorded(f"the function asks {name}, which the record does not have")
        recorded = self.inputs[len(self.asked)]
        is_it = recorded.params == whole or (not recorded.answer.success and recorded.params in (short, {}))
        if recorded.query != question.query or not is_it:
            there = _named(recorded.query, recorded.params)
            raise NotRecorded(f"the function asks {name}, which the record does not have: it has {there} there")
        self.asked.append(recorded if recorded.params else replace(recorded, params=short))
        return recorded

    def _is_settled(self, question: Question, recorded: RunInput) -> bool:
        """Whether the question alone decides that it gets no answer, which the record must then have."""
        if self._characters > questions.PARAMS_CHARACTERS_MAX:
            return True  # what the record has is compared where `own` counts too
        try:
            asked = questions.read(question, self.timestamp_ms)
        except Refused as refused:
            if self.own is None and (recorded.answer.success or recorded.answer.error != str(refused)):
                self.report.faults.append(f"{_named(recorded.query, recorded.params)}: it has no answer: {refused}")
            return True
        self.chains.update(asked.tokens if isinstance(asked, Balances) else [asked.chain_id])
        return False

    async def _compare(self, own: Answers, question: Question, recorded: RunInput, *, is_settled: bool) -> None:
        name = _named(recorded.query, recorded.params)
        if recorded.query == "tokenPrice" and recorded.answer.success and recorded.block is UNSET:
            self.report.doubts.append(f"{name}: the price is of an API, which cannot be asked again")
            return
        try:
            await own(question)
        except Incomplete as error:
            self.report.doubts.append(f"{name}: {error.text}; an archive node may be needed")
            return
        here = own.inputs[-1]
        is_same = here.answer == recorded.answer
        if not is_settled and not (_follows_from_blocks(here) and (is_same or _follows_from_blocks(recorded))):
            told = f"here {_told(here)}, in the record {_told(recorded)}"
            self.report.doubts.append(f"{name}: the answer depends on settings: {told}")
        elif not is_same:
            self._differs(name, here, recorded)
        elif _place(here.block) != _place(recorded.block):
            self.report.faults.append(f"{name}: the record does not have the block at which it was read")
        else:
            await self._compare_calls(own, name, here, recorded)

    def _differs(self, name: str, here: RunInput, recorded: RunInput) -> None:
        """Another answer is wrong, unless the record shows that it was made from other contracts: feeds of a file."""
        if _requests(recorded) and _requests(recorded) != _requests(here):
            self.report.doubts.append(f"{name}: the answer was made from other calls: the feeds may differ")
        else:
            told = f"the nodes answer {_told(here)}, the record has {_told(recorded)}"
            self.report.faults.append(f"{name}: {told}")

    async def _compare_calls(self, own: Answers, name: str, here: RunInput, recorded: RunInput) -> None:
        """The calls of an answer that is right. Those of another program may be others, but must be true."""
        if recorded.calls is UNSET or [*map(_call, recorded.calls)] == [*map(_call, here.calls or ())]:
            return
        try:
            fault = await _call_fault(own, recorded.calls)
        except Incomplete as error:
            self.report.doubts.append(f"{name}: {error.text}; an archive node may be needed")
            return
        if fault:
            self.report.faults.append(f"{name}: {fault}")
        else:
            self.report.omissions.append(f"{name}: the calls are other ones than here; each of them answers so")


async def _call_fault(own: Answers, calls: Sequence[RunCall]) -> str:
    """How one of these calls, each at a block of the run, answers otherwise; empty: none. Raises `Incomplete`."""
    for chain_id, pin in own.pinned.items():
        there = [each for each in calls if each.block.chain_id == chain_id]
        wanted = [Wanted(None if each.to is UNSET else each.to, each.data.raw) for each in there]
        for call, returned in zip(there, await call_all(own.pins.nodes[chain_id], pin, wanted), strict=True):
            if call.answer.raw != returned.data:
                return f"a call answers 0x{returned.data.hex()[:64]}, the record has {call.answer[:66]}"
    return ""


def _answered(value: object) -> str:
    """A text as the function got it: addresses in lower case, whose record has the letters of EIP-55."""
    return value.lower() if isinstance(value, Address) else encode_text(value)


def _follows_from_blocks(input: RunInput) -> bool:
    """Whether nodes decide an answer, and not what an operator set: chains, feeds, prices."""
    return input.answer.success or input.block is not UNSET


def _place(block: RunBlock | Any) -> object:
    """Where a block is; whether it was quiet is no part of it."""
    return None if block is UNSET else (block.chain_id, block.number, block.hash)


def _call(call: Any) -> object:
    return call.to, call.data, call.answer, _place(call.block)


def _requests(input: RunInput) -> list[object]:
    return [(each.to, each.data) for each in input.calls or ()]


def _told(input: RunInput) -> str:
    return encode(input.answer).decode()[:200]


def _named(query: str, params: Any) -> str:
    return f"{query} {encode(params).decode()[:200]}"
