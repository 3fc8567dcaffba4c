"""Records as flat rows, for data frames."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from muniment.protocol.wire import Record, encode


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """A dictionary for each record, with the names of the interface: for pandas, Polars or Arrow.

    A member of an object is a column `object.member`; a list is JSON text. Amounts stay texts of decimal digits, since
    a uint256 has up to 78 of them, more than any column type of a data frame holds.
    """
    return [_flat(json.loads(encode(record))) for record in records]


def _flat(members: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, dict):
            row |= _flat(cast("dict[str, Any]", value), f"{prefix}{name}.")
        elif isinstance(value, list):
            row[prefix + name] = json.dumps(value, separators=(",", ":"))
        else:
            row[prefix + name] = value
    return row
