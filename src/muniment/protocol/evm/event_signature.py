"""Topic 0 of an event by its signature, such as `Transfer(address,address,uint256)`.

It is the keccak-256 of name and canonical types (Solidity documentation, "Contract ABI Specification", section Events).
"""

from __future__ import annotations

import re
from typing import Final

from muniment.protocol.evm.hashing import keccak256

_BITS: Final = "|".join(str(8 * n) for n in range(32, 0, -1))
_TYPE: Final = rf"(?:address|bool|string|u?int(?:{_BITS})|bytes(?:3[0-2]|[12][0-9]|[1-9])?)(?:\[(?:[1-9][0-9]*)?\])*"
_LIST: Final = rf"{_TYPE}(?:,{_TYPE})*"
_TUPLE: Final = re.compile(rf"\({_LIST}\)")
_EVENT: Final = re.compile(rf"[A-Za-z_$][A-Za-z0-9_$]*\((?:{_LIST})?\)")


def event_topic(signature: str) -> str:
    """0x and 64 hex digits. Raises `ValueError` for a signature that is not canonical."""
    name, opening, types = signature.partition("(")
    # Without the outer parentheses, each tuple is replaced by a type, from the inside out.
    plain = types.removesuffix(")")
    while (reduced := _TUPLE.sub("bool", plain)) != plain:
        plain = reduced
    is_closed = bool(opening) and types.endswith(")")
    if not is_closed or not _EVENT.fullmatch(f"{name}({plain})"):
        raise ValueError(
            f"{signature}: an event has the form Transfer(address,address,uint256): the full names of its types, "
            "without names, spaces and `indexed`"
        )
    return f"0x{keccak256(signature.encode('ascii')).hex()}"
