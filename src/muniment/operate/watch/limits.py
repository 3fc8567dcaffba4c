"""Limits of a watcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muniment.chains.nodes import NodeLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits(NodeLimits):
    """Limits of a watcher, and of its requests to nodes. Times are seconds."""

    # Facts in one transaction. Each may touch an intent, which takes the writer about a millisecond.
    facts_per_write: int = 500
    # Intents of each kind whose receipts are asked for in one step.
    intents_per_step: int = 100
    # The hash of at least one block of each range is kept, so these reach back at least as many blocks. No chain of the
    # catalogue has taken back 200.
    blocks_kept: int = 1_000
    # Of older hashes the first in each run of this many blocks stays: a chain is read again from there if a node lied.
    blocks_between: int = 100_000


WATCH_LIMITS: Final = WatchLimits()
