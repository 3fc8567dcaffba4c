"""The checks of intents: every hash is computed again from the stored record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from muniment.errors import Integrity
from muniment.evm.hex import Bytes32, HexString
from muniment.intents.hashes import intent_hash, proposal_hash
from muniment.intents.types import Hashed, NewProposal
from muniment.maintenance.checks import fault_of, rows
from muniment.wire import decode_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muniment.context import Context


class _Named(Hashed, frozen=True, kw_only=True):
    hash: Bytes32


class _NamedProposal(NewProposal, frozen=True, kw_only=True):
    hash: Bytes32


async def check_intents(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each intent and each proposal."""
    async for seq, digest, record in rows(context, "SELECT seq, hash, record FROM intents"):
        wrong = fault_of(_check_intent, digest, record)
        yield f"intent {HexString.from_raw(digest)}: {wrong}" if wrong else None
        # At most 1,000 of at most 64 KiB; usually a handful.
        for proposal_digest, proposed in await context.database.fetch_slow(
            "SELECT hash, record FROM intent_proposals WHERE intent_seq = ? ORDER BY n", (seq,)
        ):
            wrong = fault_of(_check_proposal, digest, proposal_digest, proposed)
            yield f"proposal {HexString.from_raw(proposal_digest)}: {wrong}" if wrong else None


def _check_intent(digest: bytes, record: str) -> None:
    intent = msgspec.json.decode(record, type=_Named, dec_hook=decode_text)
    if not digest == intent.hash.raw == intent_hash(intent):
        raise Integrity("its hash does not match its fields")


def _check_proposal(intent_digest: bytes, digest: bytes, record: str) -> None:
    proposal = msgspec.json.decode(record, type=_NamedProposal, dec_hook=decode_text)
    if not digest == proposal.hash.raw == proposal_hash(intent_digest, proposal):
        raise Integrity("its hash does not match its fields")
