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
        "the run; or an answer that the function needs was not to be had",
        examples=["intents"],
    ),
]
RunReasonCode = Annotated[
    Literal[
        "abort", "trap", "fuel", "limit", "refused", "module",
        "time", "memory", "stack", "crashed",
        "gap", "overtaken", "unanswered",
        "fee-limit", "run-cap", "intent-cap", "ended", "deadline", "other-block", "not-allowed",
        "no-block", "no-answer", "nodes-differ",
    ],
    Meta(description="Why there are no intents", examples=["abort"]),
]  # fmt: skip

# The byte of each result in the hash of a run.
RESULT_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {name: n for n, name in enumerate(("intents", "nothing", "stopped", "missed", "skipped", "incomplete"))}
)
# The reasons of each result that has one, and what they mean.
REASONS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "stopped": MappingProxyType(
            {
                "abort": "the function called abort",
                "trap": "an instruction failed: a division by zero, an access outside of the memory, `unreachable`",
                "fuel": "the function used up its fuel",
                "limit": "a counted limit was passed: calls, queries, answers, intents",
                "refused": "the function asked for what a run never gives: an import, a query, an operation, a form",
                "module": "the module cannot be run: it lacks an export or is beyond a limit of modules",
                "time": "the function used up its time",
                "memory": "the function asked for more memory than it may have",
                "stack": "the function used up its stack",
                "crashed": "the process of the run ended in a way that no other reason names",
            }
        ),
        "missed": MappingProxyType(
            {
                "gap": "no relayer of this operator ran then",
                "overtaken": "several runs were due at once, and only the newest was made",
                "unanswered": "the answers came too late for the trigger's delta",
            }
        ),
        "skipped": MappingProxyType(
            {
                "fee-limit": "the fee is above the trigger's limit",
                "run-cap": "the trigger had as many runs as this operator allows",
                "intent-cap": "as many intents were made as this operator allows",
                "ended": "the trigger was deactivated",
                "deadline": "the deadline of an intent was not ahead any more",
                "other-block": "the same event was seen in another block",
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
# `stopped` for these reasons depends on the machine, so it is a note.
_OF_THE_MACHINE: Final = frozenset({"time", "memory", "stack", "crashed"})
VERDICTS: Final = ("intents", "nothing", "stopped")
ALL_REASONS: Final[tuple[str, ...]] = get_args(get_args(RunReasonCode)[0])


def is_verdict(result: RunResult, reason: RunReasonCode | None) -> bool:
    """Whether a run with this result is a verdict; `reason` is None where the result has none."""
    return result in VERDICTS and reason not in _OF_THE_MACHINE
