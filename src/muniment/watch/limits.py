"""The limits of the watcher: its waits for nodes, the size of its transactions, and the older blocks that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """The limits of one watcher. Times are seconds."""

    # A node that fails rests for 1, 2, 4 … 60 seconds: an outage of minutes costs a request a minute.
    rest_seconds_first: float = 1.0
    rest_seconds_max: float = 60.0
    # The time of one request to a node.
    answer_seconds_max: float = 20.0
    # A node that lacks followed blocks may lag while its machine starts. When all nodes lack them for this long, the
    # node that named these blocks lied.
    behind_seconds: float = 180.0
    # A node that fails for this long counts as one that lacks the followed blocks, so that the others are believed.
    silent_seconds: float = 1_800.0
    # Facts in one transaction. Each may touch an intent, which takes the writer about a millisecond.
    facts_per_write: int = 500
    # Intents of each kind whose receipts are asked for in one turn.
    intents_per_turn: int = 100
    # The hash of at least one block of each range is kept, so these reach back at least as many blocks. No chain of the
    # catalogue has taken back 200.
    blocks_kept: int = 1_000
    # Of older hashes the first in each run of this many blocks stays: a chain is read again from there if a node lied.
    blocks_between: int = 100_000


WATCH_LIMITS: Final = WatchLimits()
