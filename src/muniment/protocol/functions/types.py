"""The records of functions, and the JSON Schema of manifest.json."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from muniment.protocol.evm.address import Address
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.wire import BoundedText, DateTime, Record, SemVer

_TYPE: Final = {
    "title": "InputType", "type": "string", "examples": ["uint256"],
    "pattern": "^(u?int(8|16|32|64|128|256)?|bool|address|bytes([1-9]|[12][0-9]|3[0-2])?|string|Token|TokenAmount)$",
    "description": "An EIP-712 type, `Token` or `TokenAmount`",
}  # fmt: skip
_INPUT: Final = {
    "anyOf": [
        _TYPE,
        {
            "title": "DescribedInput", "type": "object", "required": ["type"], "additionalProperties": True,
            "properties": {"type": _TYPE, "description": {"type": "string"}},
            "examples": [{"type": "uint256", "description": "In base units"}],
        },
    ]
}  # fmt: skip
# The members of an accepted manifest, which may have further ones.
MANIFEST_SCHEMA: Final[dict[str, Any]] = {
    "title": "Manifest",
    "description": "A function's manifest.json",
    "type": "object",
    "required": ["version", "name", "description", "inputs"],
    "properties": {
        "version": {"title": "SemVer", **SemVer.schema},
        "name": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 1000},
        "inputs": {
            "type": "object", "maxProperties": 64, "additionalProperties": _INPUT,
            "description": "Type by name, in the order in which they are signed",
        },
        "abis": {"type": "object", "additionalProperties": {"type": "string"}, "description": "ABI by name"},
        "metadata": {"type": "object", "additionalProperties": True},
    },
    "additionalProperties": True,
    "examples": [
        {"version": "1.0.0", "name": "Hello", "description": "Logs one line", "inputs": {"chainId": "uint64"}},
    ],
}  # fmt: skip


class NamePrefix(
    BoundedText, length_min=2, length_max=100, example="Rebal",
    description="The beginning of a name; upper and lower case are the same, and so are compatible characters (NFKC)",
):  # fmt: skip
    """The beginning of a function's name, to find it by."""

    __slots__ = ()


class Function(Record, frozen=True):
    """A registered function. Name, version and description are its manifest's; the creator is the first uploader."""

    cid: Cid = msgspec.field(name="CID")
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    version: SemVer
    description: Annotated[str, Meta(min_length=1, max_length=1000)]
    created_at: DateTime
    creator: Address

    example: ClassVar[dict[str, Any]] = {
        "CID": "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4",
        "name": "Hello",
        "version": "1.0.0",
        "description": "Logs one line",
        "createdAt": "2026-11-20T19:48:00.123Z",
        "creator": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    }
