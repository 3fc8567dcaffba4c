"""The fields of the log's texts: base64, decimal numbers, names, times. Each value has one spelling."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from typing import Final

# Implementations that count in signed 64-bit numbers, such as golang.org/x/mod/sumdb/tlog, reach it.
SIZE_MAX: Final = 2**63 - 1
HASH_BYTES: Final = 32

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
# Spaces of Unicode, the plus, control characters.
_NOT_IN_NAMES: Final = re.compile(r"[\s+\x00-\x1f\x7f-\x9f]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# The hour is here because Python 3.14 reads 24:00 as the next day's 00:00, where earlier ones refuse it.
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def base64_of(data: bytes) -> str:
    """Standard base64 with padding (RFC 4648, section 4)."""
    return b64encode(data).decode("ascii")


def bytes_of(text: str, what: str) -> bytes:
    """The bytes of base64 in the one spelling that `base64_of` gives. Raises `ValueError` that names `what`."""
    try:
        data = b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        data = None
    if data is None or base64_of(data) != text:
        raise ValueError(f"{what} is not base64")
    return data


def hash_of(text: str, what: str) -> bytes:
    """The 32 bytes of a hash in base64. Raises `ValueError` that names `what`."""
    data = bytes_of(text, what)
    if len(data) != HASH_BYTES:
        raise ValueError(f"{what} has {len(data)} bytes in place of 32")
    return data


def number_of(text: str, what: str) -> int:
    """A decimal number without leading zeros, below 2^63. Raises `ValueError` that names `what`."""
    if not _DECIMAL.fullmatch(text) or (number := int(text)) > SIZE_MAX:
        raise ValueError(f"{what} is not a decimal number below 2^63")
    return number


def check_name(name: str) -> str:
    """`name` as the name of a key (signed-note, section "Format"): no space, no plus. Raises `ValueError`."""
    if not name or _NOT_IN_NAMES.search(name):
        raise ValueError("the name of a key is not empty and has no space, no plus and no control character")
    return name


def check_line(text: str, what: str) -> str:
    """`text` as one line: not empty, UTF-8, no control character. Raises `ValueError` that names `what`."""
    if not text or _CONTROL.search(text):
        raise ValueError(f"{what} is empty or has a control character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a character that UTF-8 cannot write") from None
    return text


def time_ms_of(text: str, what: str) -> int:
    """Milliseconds since 1970 of a time as answers have it, `2026-11-20T19:48:00.123Z`. Raises `ValueError`."""
    try:
        moment = datetime.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"{what} is not a time such as 2026-11-20T19:48:00.123Z")
    return (moment - _EPOCH) // _MILLISECOND
