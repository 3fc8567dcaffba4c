"""The checks of intents: every hash is computed again from the stored record.

The columns and rows by which listings and the watcher find an intent must say the same as its record.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, LiteralString, TypeAlias

import msgspec

from muniment.errors import Integrity
from muniment.evm.hex import Bytes32, HexString
from muniment.intents.generations import FIRST, SECOND
from muniment.intents.hashes import intent_hash, proposal_hash
from muniment.intents.types import Hashed, HashedOperations, NewOperationsProposal, NewProposal
from muniment.maintenance.checks import fault_of, rows
from muniment.storage.sql import placeholders
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muniment.context import Context
    from muniment.storage.database import Row


class _Named(Hashed, frozen=True, kw_only=True):
    hash: Bytes32


class _NamedOperations(HashedOperations, frozen=True, kw_only=True):
    hash: Bytes32


class _NamedProposal(NewProposal, frozen=True, kw_only=True):
    hash: Bytes32


class _NamedOperationsProposal(NewOperationsProposal, frozen=True, kw_only=True):
    hash: Bytes32


_AnyIntent: TypeAlias = type[_Named | _NamedOperations]
_AnyProposal: TypeAlias = type[_NamedProposal | _NamedOperationsProposal]
# The forms of the records of each generation.
_FORMS: Final[dict[int, tuple[_AnyIntent, _AnyProposal]]] = {
    FIRST: (_Named, _NamedProposal), SECOND: (_NamedOperations, _NamedOperationsProposal),
}  # fmt: skip


async def check_intents(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each intent and each proposal."""
    select = (
        "SELECT seq, generation, hash, record, settler, trigger_sig, deadline, user_address, op, operation_count "
        "FROM intents"
    )
    async for seq, generation, digest, record, *columns in rows(context, select):
        form, proposal_form = _FORMS[generation]
        wrong = fault_of(_check_intent, form, digest, record, columns)
        if wrong is None and generation == SECOND:
            wrong = await _filter_fault(context, seq, record)
        yield f"intent {HexString.from_raw(digest)}: {wrong}" if wrong else None
        # At most 1,000 of at most 64 KiB; usually a handful.
        for proposal_digest, proposed in await context.database.fetch_slow(
            "SELECT hash, record FROM intent_proposals WHERE intent_seq = ? ORDER BY n", (seq,)
        ):
            wrong = fault_of(_check_proposal, proposal_form, digest, proposal_digest, proposed)
            yield f"proposal {HexString.from_raw(proposal_digest)}: {wrong}" if wrong else None


def _check_intent(form: _AnyIntent, digest: bytes, record: str, columns: Row) -> None:
    intent = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == intent.hash.raw == intent_hash(intent):
        raise Integrity("its hash does not match its fields")
    if list(columns) != _columns_of(intent):
        raise Integrity("its columns differ from its record")


def _columns_of(intent: Hashed | HashedOperations) -> list[object]:
    deadline = int(intent.deadline).to_bytes(32)
    if isinstance(intent, HashedOperations):
        return [intent.settler.raw, intent.trigger_sig.raw, deadline, None, None, len(intent.operations)]
    return [intent.settler.raw, intent.config_sig.raw, deadline, intent.user.raw, intent.op, None]


async def _filter_fault(context: Context, seq: int, record: str) -> str | None:
    """The fault of an intent of the second form that listings miss under one of its users or types of operation."""
    intent = msgspec.json.decode(record, type=_NamedOperations, dec_hook=decode_text)
    users = {intent.fee_payer.raw, *(each.user.raw for each in intent.operations)}
    ops = {each.op_type for each in intent.operations}
    named: dict[tuple[LiteralString, LiteralString], Collection[object]] = {
        ("intent_users", "address"): users, ("intent_ops", "op_type"): ops,
    }  # fmt: skip
    for (table, column), values in named.items():
        ((count,),) = await context.database.fetch_slow(
            f"SELECT count(*) FROM {table} WHERE {column} IN ({placeholders(len(values))}) AND seq = ?",
            (*values, seq),
        )
        if count != len(values):
            return f"rows of {table} are missing"
    return None


def _check_proposal(form: _AnyProposal, intent_digest: bytes, digest: bytes, record: str) -> None:
    proposal = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == proposal.hash.raw == proposal_hash(intent_digest, proposal):
        raise Integrity("its hash does not match its fields")
