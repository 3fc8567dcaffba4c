"""Why a run was stopped: the closed list of reasons, and which of them follow from bytes and blocks alone."""

from __future__ import annotations

from typing import Final, Literal, get_args

# These follow from the module, its inputs and the answers: every machine finds the same.
VerdictReason = Literal[
    "abort",  # the module called env.abort
    "trap",  # the module did what WebAssembly forbids: unreachable, outside of memory, division by zero
    "fuel",  # 2 x 10^9 units are used up
    "refused-import",  # it imports what this sandbox does not have
    "refused-call",  # it called what this sandbox does not answer
    "bad-module",  # it is no module of this kind: invalid, no main, no memory, no __new
    "bad-text",  # a pointer, length or text that it passed, or a pointer from its __new, is nonsense
    "bad-argument",  # JSON, a type or a value that it passed is not what the import takes
    "bad-input",  # an input's value does not fit the global that the module imports
    "limit-code",
    "limit-memory",
    "limit-host-calls",
    "limit-queries",
    "limit-answers",
    "limit-intents",
    "limit-intent-bytes",
    "limit-log-calls",
    "limit-text",
]
# These depend on the machine.
NoteReason = Literal[
    "time",  # ten seconds, or two of the guest's own
    "memory",  # the process had no more memory, or the stack of 512 KiB was used up
    "crash",  # the process ended, or did what it never does
]
Reason = VerdictReason | NoteReason

VERDICTS: Final[frozenset[str]] = frozenset(get_args(VerdictReason))
NOTES: Final[frozenset[str]] = frozenset(get_args(NoteReason))
