"""The time of the last checkpoint, as the log has signed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.tlog.keys import COSIGNATURE, parse_verifier_key
from muniment.tlog.notes import parse_note, verified

if TYPE_CHECKING:
    from muniment.tlog.sequencing.store import Epoch


def signed_at_ms(epoch: Epoch) -> int | None:
    """The time of the last checkpoint, in milliseconds since 1970; None: there is none, or it is damaged."""
    if epoch.note is None:
        return None
    try:
        keys = [parse_verifier_key(each) for each in epoch.vkeys.split("\n")]
        times = verified(parse_note(epoch.note.encode()), keys)
    except ValueError:
        return None
    return max((1000 * at_s for key, at_s in times.items() if key.kind == COSIGNATURE), default=None)
