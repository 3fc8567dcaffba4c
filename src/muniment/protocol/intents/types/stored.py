"""The members of an intent that never change, as its row keeps them in `record`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.intents.types.first import Hashed, NewIntent
from muniment.protocol.intents.types.second import HashedOperations
from muniment.protocol.wire import DateTime, encode, iso_time

if TYPE_CHECKING:
    from muniment.protocol.intents.types.forms import AnyNewIntent


class _Unchanging(Hashed, frozen=True):
    """Of the first form. `execution_hash` is "0x" until it is set."""

    hash: Bytes32
    execution_hash: HexString
    created_at: DateTime


class _UnchangingOperations(HashedOperations, frozen=True):
    """Of the second form."""

    hash: Bytes32
    execution_hash: HexString
    created_at: DateTime


def record_of(new: AnyNewIntent, intent_hash: bytes, created_at_ms: int) -> str:
    """The `record` of an intent that arrived at `created_at_ms`, as JSON."""
    hashed, shape = (Hashed, _Unchanging) if isinstance(new, NewIntent) else (HashedOperations, _UnchangingOperations)
    members = shape(
        **{name: getattr(new, name) for name in hashed.__struct_fields__},
        hash=Bytes32.from_raw(intent_hash), execution_hash=new.execution_hash, created_at=iso_time(created_at_ms),
    )  # fmt: skip
    return encode(members).decode()
