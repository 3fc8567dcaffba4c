"""The results of runs and the closed list of reasons: which of them are verdicts, and which are notes. Pure.

A *verdict* follows from the bytes of the function and from blocks, so every honest relayer comes to the same one. A
*note* says what happened at one relayer, and is neither counted nor compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta

RunResult = Annotated[
    Literal["intents", "nothing", "stopped", "missed", "skipped", "incomplete"],
    Meta(
        description="The function sent intents, or nothing, or was stopped; the time was missed; the relayer skipped "
        "the run; or no node gave an answer that the function needs. A run that was `stopped`, `missed` or `skipped` "
        "was not carried out; one that the function itself ended (`stopped`, reason `abort`) is called declined",
        examples=["intents"],
    ),
]
# These follow from the function, its inputs and the answers: every machine finds the same.
StopVerdict = Literal[
    "abort", "trap", "fuel", "refused-import", "refused-call", "bad-module", "bad-text", "bad-argument", "bad-input",
    "limit-code", "limit-memory", "limit-host-calls", "limit-queries", "limit-answers", "limit-intents",
    "limit-intent-bytes", "limit-log-calls", "limit-text", "limit-abi",
]  # fmt: skip
# These depend on the machine.
StopNote = Literal["time", "memory", "crash"]
StopReason = StopVerdict | StopNote
RunReasonCode = Annotated[
    Literal[
        StopVerdict, StopNote,
        "gap", "overtaken", "resting", "too-late", "unanswered",
        "fee-limit", "run-cap", "intent-cap", "not-configured", "too-busy", "ended", "other-block", "not-allowed",
        "no-block", "no-answer", "nodes-differ",
    ],
    Meta(description="Why there are no intents", examples=["abort"]),
]  # fmt: skip

# The byte of each result in the hash of a run: its place in the list.
RESULT_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {name: n for n, name in enumerate(get_args(get_args(RunResult)[0]))}
)
# The reasons of each result that has one, and what they mean.
REASONS: Final[Mapping[RunResult, Mapping[RunReasonCode, str]]] = MappingProxyType(
    {
        "stopped": MappingProxyType(
            {
                "abort": "the function called abort",
                "trap": "an instruction failed: a division by zero, an access outside of the memory, `unreachable`",
                "fuel": "the function used up its fuel",
                "refused-import": "the function imports what no run provides",
                "refused-call": "the function made an unsupported call, or sent what no settler accepts",
                "bad-module": "the module cannot be run: it is not valid, or lacks an export",
                "bad-text": "a pointer or a length that the function passed leads to no text",
                "bad-argument": "the function passed a value that the call rejects",
                "bad-input": "the value of an input does not fit the type that the function imports",
                "limit-code": "the code is larger than a run may have",
                "limit-memory": "the function asked for more memory than a run has",
                "limit-host-calls": "more calls than a run may make",
                "limit-queries": "more different questions than a run may ask",
                "limit-answers": "the answers together were longer than allowed",
                "limit-intents": "more intents than a run may send",
                "limit-intent-bytes": "an intent was longer than a run may send",
                "limit-log-calls": "more log calls than a run may make",
                "limit-text": "a text was longer than allowed",
                "limit-abi": "encoding or decoding took more steps, or deeper types, than allowed",
                "time": "the function used up its time",
                "memory": "the machine had no more memory for the function, or its stack was used up",
                "crash": "the process of the run ended in a way that no other reason names",
            }
        ),
        "missed": MappingProxyType(
            {
                "gap": "no relayer of this operator ran then",
                "overtaken": "an earlier run sent intents meanwhile, or more than ten runs were due at once",
                "resting": "the trigger rested after failures",
                "too-late": "it was too late for the deadline that the function gives its intents",
                "unanswered": "the answers came too late for the trigger's delta",
                "nodes-differ": "nodes did not agree that the event happened",
            }
        ),
        "skipped": MappingProxyType(
            {
                "fee-limit": "the fee of this operator is above the trigger's executionFeeLimit",
                "run-cap": "the trigger reached this operator's daily limit of runs",
                "intent-cap": "this operator reached its daily limit of intents: of the trigger, its signer, or all",
                "not-configured": "this operator is not set up to answer a question of the function",
                "too-busy": "the events are more than this operator reads for the trigger or its signer",
                "ended": "the trigger was deactivated",
                "other-block": "the same event was in another block, and an intent for it was submitted",
                "not-allowed": "this operator does not serve the signer, the function or the chain",
            }
        ),
        "incomplete": MappingProxyType(
            {
                "no-block": "the block to read at is not known yet",
                "no-answer": "no node answered",
                "nodes-differ": "nodes gave different answers",
            }
        ),
    }
)
# Notes that an operator records once an hour of each trigger.
HOURLY: Final = ("run-cap", "intent-cap", "not-configured", "too-busy")
_VERDICTS: Final = ("intents", "nothing", "stopped")


def is_verdict(result: RunResult, reason: RunReasonCode | None) -> bool:
    """Whether a run with this result is a verdict; `reason` is None where the result has none."""
    return result in _VERDICTS and reason not in get_args(StopNote)
