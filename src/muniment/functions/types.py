"""The shapes of the functions slice."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from muniment.evm.address import Address
from muniment.ipfs.cid import Cid
from muniment.wire import DateTime, Record, SemVer


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
