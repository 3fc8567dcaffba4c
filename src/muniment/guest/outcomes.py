"""Why a run was stopped: the closed list of reasons, and which of them follow from bytes and blocks alone."""

from __future__ import annotations

from typing import Final, Literal, get_args

from muniment.guest.limits import REASON_LENGTH_MAX

# These follow from the module, its inputs and the answers: every machine finds the same.
VerdictReason = Literal[
    "abort",  # the module called env.abort
    "trap",  # the module did what WebAssembly forbids: unreachable, outside of memory, division by zero
    "fuel",
    "refused-import",  # it imports what this sandbox does not have
    "refused-call",  # it called what this sandbox does not answer
    "bad-module",  # it is no module of this kind: invalid, no main, no memory, no __new
    "bad-text",  # a pointer or length that it passed, or a pointer from its __new, is nonsense
    "bad-argument",  # JSON, a type or a value that it passed is not what the import takes
    "bad-input",  # an input's value does not fit the global that the module imports
    "limit-code",
    "limit-memory",  # it needs more than 64 MiB of memory, or a larger table, to begin
    "limit-host-calls",
    "limit-queries",
    "limit-answers",
    "limit-intents",
    "limit-intent-bytes",
    "limit-log-calls",
    "limit-text",
    "limit-abi",
]
# These depend on the machine.
NoteReason = Literal[
    "time",  # ten seconds, or two CPU seconds of the guest
    "memory",  # the process had no more memory, or the stack of 512 KiB was used up
    "crash",  # the process ended, or did what it never does
]
Reason = VerdictReason | NoteReason

VERDICTS: Final[frozenset[str]] = frozenset(get_args(VerdictReason))
NOTES: Final[frozenset[str]] = frozenset(get_args(NoteReason))


class Stop(Exception):
    """A run is stopped for `reason`; `text` says what happened, with a bounded length and without U+0000."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(reason, text)
        self.reason: Reason = reason
        self.text: str = bounded(text)


def bounded(text: str) -> str:
    """`text` with at most as many characters as a record takes, and without U+0000, which PostgreSQL cannot store."""
    shown = text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 1]}…"
    return shown.replace("\0", "\ufffd")
