"""One attempt at a run: a function with its inputs and answers, to a result and intents. Nothing is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from muniment.guest.types import Answering, Compiled, GuestRun, inputs_of
from muniment.relayer.runner.context import context_text
from muniment.relayer.runner.forms import Made, formed, named_settlers

if TYPE_CHECKING:
    from muniment.guest.sandbox import Sandbox
    from muniment.protocol.evm.address import Address
    from muniment.protocol.runs.types import RunToken
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.runner.settlers import Generations
    from muniment.relayer.schedule.due import Due


class Consent(NamedTuple):
    """In whose name a function runs, with which values of its inputs, and how many validations its intents need."""

    user: Address
    input: Mapping[str, Any]
    min_validations: int

    @classmethod
    def of(cls, trigger: Trigger) -> Self:
        """What the owner of a trigger signed."""
        return cls(trigger.signer, trigger.input, trigger.min_validations)


class Function(NamedTuple):
    """A compiled module, and the type words of its inputs by name."""

    compiled: Compiled
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """The settlement contracts that a function is told, one for each chain, and what knows their generations."""

    settlers: Sequence[RunToken]
    generations: Generations


async def attempt(
    due: Due, consent: Consent, function: Function, *, sandbox: Sandbox, answers: Answering, settling: Settling
) -> tuple[GuestRun, list[Made]]:
    """Run a function once for what is due; its intents are in the registry's form.

    Raises what `answers` raises: `Incomplete` where no node gives an answer now.
    """
    context = context_text(
        sig=due.sig, kind=due.kind, payload=due.payload, timestamp_ms=due.timestamp_ms, user=consent.user,
        settlers=settling.settlers,
    )  # fmt: skip
    inputs = inputs_of(function.inputs, consent.input)
    sent = await sandbox.run_module(function.compiled, context=context, inputs=inputs, answer=answers)
    generations = await settling.generations.of(named_settlers(sent))
    # Thirty-two intents of the longest kind take seconds, in which others would have no turn.
    return await asyncio.to_thread(
        formed, sent, sig=due.sig, min_validations=consent.min_validations, generations=generations
    )
