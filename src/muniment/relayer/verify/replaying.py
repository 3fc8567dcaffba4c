"""Answers from the record of a run, compared with those of nodes where there are nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, to_builtins

from muniment.guest.types import Answer, Question
from muniment.protocol.wire import encode, encode_text
from muniment.relayer.runner import questions
from muniment.relayer.runner.pinning import Incomplete

if TYPE_CHECKING:
    from muniment.protocol.runs.types import RunInput
    from muniment.relayer.runner.answers import Answers


class NotRecorded(Exception):
    """The function asked what the record does not have."""


@dataclass(slots=True, kw_only=True)
class Replaying:
    """Answers the questions of a run that is made again: call it with each.

    With `own`, each answer is compared with one from nodes; `different` and `unchecked` say what came of it.
    """

    inputs: Sequence[RunInput]
    own: Answers | None = None
    different: list[str] = field(default_factory=list[str])
    unchecked: list[str] = field(default_factory=list[str])
    _asked: set[int] = field(default_factory=set[int])

    async def __call__(self, question: Question) -> Answer:
        """The recorded answer. Raises `NotRecorded`."""
        place = self._place(question)
        self._asked.add(place)
        recorded = self.inputs[place]
        if self.own is not None:
            await self._compare(self.own, question, recorded)
        answer = recorded.answer
        if not answer.success:
            return Answer(success=False, error=answer.error or "")
        return Answer(success=True, data=to_builtins(answer.data, enc_hook=encode_text))

    def not_asked(self) -> list[RunInput]:
        """The recorded questions that the function did not ask."""
        return [each for place, each in enumerate(self.inputs) if place not in self._asked]

    def _place(self, question: Question) -> int:
        """Where the record has a question; long parameters of a refused one are cut there. Raises `NotRecorded`."""
        forms = [questions.kept(question, is_short=is_short) for is_short in (True, False)]
        for place, each in enumerate(self.inputs):
            if place not in self._asked and each.query == question.query and each.params in forms:
                return place
        raise NotRecorded(f"the function asks {_named(question.query, forms[1])}, which the record does not have")

    async def _compare(self, own: Answers, question: Question, recorded: RunInput) -> None:
        name = _named(recorded.query, recorded.params)
        if recorded.query == "tokenPrice" and recorded.answer.success and recorded.block is UNSET:
            self.unchecked.append(f"{name}: the price is of an API, which cannot be asked again")
            return
        try:
            await own(question)
        except Incomplete as error:
            self.unchecked.append(f"{name}: {error.text}; an archive node may be needed")
            return
        found = own.inputs[-1]
        if found.answer == recorded.answer:
            return
        ours, theirs = (encode(each.answer).decode()[:200] for each in (found, recorded))
        if _follows_from_blocks(found) and _follows_from_blocks(recorded):
            self.different.append(f"{name}: the nodes answer {ours}, the record has {theirs}")
        else:
            self.unchecked.append(f"{name}: the answer depends on settings: here {ours}, in the record {theirs}")


def _follows_from_blocks(found: RunInput) -> bool:
    """Whether nodes decide an answer, and not what an operator set: chains, feeds, prices."""
    return found.answer.success or found.block is not UNSET


def _named(query: str, params: Any) -> str:
    return f"{query} {encode(params).decode()[:200]}"
