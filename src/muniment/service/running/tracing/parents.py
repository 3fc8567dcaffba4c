"""Reads the trace context of a request (W3C Trace Context, https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Section 3.2.2: version, trace-id, parent-id, trace-flags. There is no version ff, and version 00 ends there (section
# 3.2.2.1). Ids of zeros are invalid (sections 3.2.2.3 and 3.2.2.4).
_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
# Section 3.2.2.5.1: the lowest bit of the flags.
_SAMPLED: Final = 1
# Section 3.3.1: entries `key=value`, at most 32 of them, each key once.
_ENTRY: Final = re.compile(r"([a-z0-9][a-z0-9_\-*/@]{0,255})=([ -+\--<>-~]{0,255}[!-+\--<>-~])")
_ENTRIES_MAX: Final = 32
# Section 3.3.1 asks for 512 characters at least; more of a stranger's text is not kept with each span.
_STATE_LENGTH_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span, and whether the caller records the trace."""

    trace_id: str
    span_id: str
    is_sampled: bool
    # The entries of `tracestate`, in their order.
    state: tuple[tuple[str, str], ...] = ()


def read_parent(traceparents: Sequence[str], tracestates: Sequence[str] = ()) -> Parent | None:
    """The parent that the values of the two header fields name; None without a valid `traceparent`.

    Several `traceparent` are ignored, because they contradict each other. An invalid or too long `tracestate` is left
    out (section 3.3); several form one list.
    """
    match = _TRACEPARENT.fullmatch(traceparents[0]) if len(traceparents) == 1 else None
    if match is None:
        return None
    return Parent(match[1], match[2], bool(int(match[3], 16) & _SAMPLED), _state(tracestates))


def _state(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    text = ",".join(values)
    if not text or len(text) > _STATE_LENGTH_MAX:
        return ()
    matches = [_ENTRY.fullmatch(part.strip(" \t")) for part in text.split(",") if part.strip(" \t")]
    entries = tuple((match[1], match[2]) for match in matches if match is not None)
    is_valid = len(entries) == len(matches) <= _ENTRIES_MAX and len(dict(entries)) == len(entries)
    return entries if is_valid else ()
