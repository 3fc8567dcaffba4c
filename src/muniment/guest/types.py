"""What a run is given and what it gives: questions and answers, inputs, intents, the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from muniment.protocol.runs.reasons import StopReason
from muniment.protocol.runs.texts import Query

# `runnerTarget` 0.0.1, or none, is B; 0.1.0 is C.
Generation = Literal["B", "C"]
IntentKind = Literal["transfer", "swap", "evmCall", "intent"]

# The levels of `log._log`, 0 to 4.
LOG_LEVELS: Final = ("Critical", "Error", "Warning", "Info", "Debug")


# The value of a parameter; a frame of the pipe holds nothing else.
Param = str | list[str | dict[str, str]]


class Question(msgspec.Struct, frozen=True):
    """What a module asks of the world.

    `params` are the members of its JSON object: texts, lists of texts, and for `tokens` of relevantTokens a list of
    mappings of texts. Numbers have become decimal texts; a member that is null or absent is not there. `timestamp` 0
    counts as absent.
    """

    query: Query
    params: Mapping[str, Param]


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question. `data` is a JSON value: a text of hex for evmCall, a list for the others.

    An answer without success has an `error`, which the module reads.
    """

    success: bool
    data: Any = ""
    error: str = ""


Answering = Callable[[Question], Awaitable[Answer]]


class GuestInput(msgspec.Struct, frozen=True):
    """The value of one input of a trigger, and its type word in the manifest."""

    type: str
    value: Any


class GuestIntent(msgspec.Struct, frozen=True):
    """An intent that a module sent. `body` is the JSON object as it sent it, unchecked but for its size."""

    kind: IntentKind
    body: Mapping[str, Any]


class GuestRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run.

    `reason` is empty unless the run was stopped; `text` says what happened, in at most 1,000 characters. A stopped run
    has no intents. `fuel_used` is 0 where nothing was executed, and where that is not known: after `time`, or where the
    process ended without a word. `logs` are lines such as `[Info] text`; `logs_cut` says that there were more.
    """

    result: Literal["intents", "nothing", "stopped"]
    reason: StopReason | Literal[""] = ""
    text: str = ""
    fuel_used: int = 0
    logs: tuple[str, ...] = ()
    logs_cut: bool = False
    generation: Generation = "B"
    intents: tuple[GuestIntent, ...] = ()


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A module that is ready to run, or why it cannot be: then `failure` is what each of its runs gives.

    `code` is for the engine of this machine and for no other; only a child reads it.
    """

    sha256: bytes
    generation: Generation = "B"
    code: bytes = b""
    failure: GuestRun | None = None


def inputs_of(types: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, GuestInput]:
    """The inputs of a run: `types` are the type words of a manifest's inputs, `values` those of a signed trigger."""
    return {name: GuestInput(word, values[name]) for name, word in types.items()}
