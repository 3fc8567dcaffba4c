"""The shapes of the log on the wire."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta

from muniment.protocol.wire import Record

# The log promises that a fact is in a signed checkpoint this many seconds after the response.
MERGE_DELAY_S: Final = 600
# `closing`: its last entry is in the tree, and may not be signed yet.
State = Literal["open", "closing", "frozen", "halted", "closed"]


class LogEpoch(Record, frozen=True):
    """An epoch of the log: a tree of its own with a key of its own."""

    origin: Annotated[str, Meta(description="The name of the tree in its checkpoints")]
    vkeys: Annotated[
        list[str],
        Meta(description="The keys (c2sp.org/signed-note) that sign each checkpoint, first its tree, then its time"),
    ]
    prefix: Annotated[str, Meta(description="Where its checkpoint and tiles are, relative to the registry's URL")]
    state: Annotated[
        State,
        Meta(
            description="`open`: it grows; `closing`: its last entry waits for its signature; `frozen`: stopped by "
            "an operator; `halted`: stopped because it would contradict itself; "
            "`closed`: the next epoch follows"
        ),
    ]
    why: Annotated[str | None, Meta(description="Why it is halted or frozen")]
    size: Annotated[int, Meta(description="Leaves of the last signed tree; 0 before the first checkpoint")]
    merge_delay_seconds: Annotated[
        int, Meta(description="The log promises that a record is in a signed tree this long after its answer")
    ]

    example: ClassVar[dict[str, Any]] = {
        "origin": "registry.example.org/log/1",
        "vkeys": ["registry.example.org/log/1+a3f0b2c1+AYy2Nq0ro6PoxjAStqKpHrD2Yo8bZjnLiYkdH5FWNqNn"],
        "prefix": "log/1", "state": "open", "why": None, "size": 1070, "mergeDelaySeconds": MERGE_DELAY_S,
    }  # fmt: skip


class LogShown(Record, frozen=True):
    """The log of this registry."""

    epochs: Annotated[list[LogEpoch], Meta(description="All epochs, the newest first")]

    example: ClassVar[dict[str, Any]] = {"epochs": [LogEpoch.example]}
