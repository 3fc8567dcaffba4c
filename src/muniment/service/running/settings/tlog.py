"""The settings of the transparency log."""

from __future__ import annotations

import re
from typing import Final

# A part of URLs and of names of keys (c2sp.org/signed-note), which have no space and no plus.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:/-]{0,199}", re.ASCII)
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def tlog_fault(name: str, keys: tuple[str, str], policy: str, *, is_required: bool) -> str | None:
    """The fault of the log's settings, or None. `keys`: the current and the next one."""
    key, next_key = keys
    if name and not _NAME.fullmatch(name):
        return "tlog_name has at most 200 letters, digits and . - _ ~ / : and begins with a letter or a digit"
    if key and not _KEY.fullmatch(key):
        return "tlog_key must be 64 hex digits"
    if next_key and (not _KEY.fullmatch(next_key) or next_key.lower() == key.lower()):
        return "tlog_key_next must be 64 hex digits, and others than tlog_key"
    if is_required and not policy:
        return "tlog_witness_required needs a tlog_policy, which names the witnesses"
    return None
