"""The checks of intents: every hash is computed again from the stored record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from muniment.errors import Integrity
from muniment.evm.hex import Bytes32, HexString
from muniment.intents.hashes import intent_hash, proposal_hash
from muniment.intents.types import Hashed, HashedOperations, NewOperationsProposal, NewProposal
from muniment.maintenance.checks import fault_of, rows
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muniment.context import Context


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
# The tables of intents and of their proposals, with the forms of their records.
_FORMS: Final[tuple[tuple[str, _AnyIntent, str, _AnyProposal], ...]] = (
    ("intents", _Named, "intent_proposals", _NamedProposal),
    ("intents_2", _NamedOperations, "intent_proposals_2", _NamedOperationsProposal),
)


async def check_intents(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each intent and each proposal."""
    for intents, form, proposals, proposal_form in _FORMS:
        async for seq, digest, record in rows(context, f"SELECT seq, hash, record FROM {intents}"):  # noqa: S608 - a table name of ours
            wrong = fault_of(_check_intent, form, digest, record)
            yield f"intent {HexString.from_raw(digest)}: {wrong}" if wrong else None
            # At most 1,000 of at most 64 KiB; usually a handful.
            for proposal_digest, proposed in await context.database.fetch_slow(
                f"SELECT hash, record FROM {proposals} WHERE intent_seq = ? ORDER BY n",  # noqa: S608 - a table name of ours
                (seq,),
            ):
                wrong = fault_of(_check_proposal, proposal_form, digest, proposal_digest, proposed)
                yield f"proposal {HexString.from_raw(proposal_digest)}: {wrong}" if wrong else None


def _check_intent(form: _AnyIntent, digest: bytes, record: str) -> None:
    intent = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == intent.hash.raw == intent_hash(intent):
        raise Integrity("its hash does not match its fields")


def _check_proposal(form: _AnyProposal, intent_digest: bytes, digest: bytes, record: str) -> None:
    proposal = msgspec.json.decode(record, type=form, dec_hook=decode_text)
    if not digest == proposal.hash.raw == proposal_hash(intent_digest, proposal):
        raise Integrity("its hash does not match its fields")
