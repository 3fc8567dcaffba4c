"""Proposals of a solver, signed for one settlement contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from muniment.client.signers import checked_signature
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import HexString
from muniment.protocol.intents.hashes import proposal_hash, settlement_digest
from muniment.protocol.intents.types import Intent, NewOperationsProposal, NewProposal
from muniment.protocol.wire import Amount

if TYPE_CHECKING:
    from muniment.client.signers import Signer
    from muniment.protocol.intents.types import AnyIntent, AnyNewProposal

_MEMBERS: Final = (("intent", "bytes32"), ("solver", "address"), ("deadline", "uint256"))
_FEES: Final = ("fees", "uint256[]")


def sign_proposal(
    signer: Signer,
    intent: AnyIntent,
    *,
    chain_id: int,
    fees: Sequence[str | int],
    deadline: str | int,
    data: str | Sequence[str] = "0x",
    description: str = "",
    protocol: str = "Mimic",
) -> AnyNewProposal:
    """A proposal to `intent` by `signer`, signed for the intent's settler on the chain `chain_id` (EIP-712).

    `fees` are base units, one for each of the intent's `max_fees`; `deadline` is in Unix seconds. `data` is hex: one
    text, or for an intent of the second generation one for each operation. Raises `NotSignedBy`, and `Invalid` for
    members of another form.
    """
    solver = Address.parse(signer.address)
    offer = _offer(intent, solver, [Amount.parse(str(fee)) for fee in fees], Amount.parse(str(deadline)), data)
    # One list holds the signatures of both forms; the text is not signed.
    offer = replace(offer, description=type(offer.description).parse(description))
    digest = settlement_digest(proposal_hash(intent.hash.raw, offer), protocol, chain_id, intent.settler)
    given = signer.sign_typed_data(typed_proposal(intent, offer, chain_id, protocol))
    return replace(offer, signatures=[checked_signature(given, solver, digest)])


def typed_proposal(intent: AnyIntent, offer: AnyNewProposal, chain_id: int, protocol: str) -> dict[str, Any]:
    """The typed data of a proposal, as JSON. Their digest is `settlement_digest`."""
    if isinstance(offer, NewProposal):
        work, content = ("data", "bytes"), {"data": offer.data}
    else:
        work, content = ("datas", "bytes[]"), {"datas": [*offer.datas]}
    return {
        "domain": {
            "name": f"{protocol} Protocol Settler", "version": "1", "chainId": chain_id,
            "verifyingContract": intent.settler,
        },
        "primaryType": "Proposal",
        "types": {"Proposal": [{"name": name, "type": kind} for name, kind in (*_MEMBERS, work, _FEES)]},
        "message": {
            "intent": intent.hash, "solver": offer.solver, "deadline": offer.deadline, **content, "fees": [*offer.fees],
        },
    }  # fmt: skip


def _offer(
    intent: AnyIntent, solver: Address, fees: list[Amount], deadline: Amount, data: str | Sequence[str]
) -> AnyNewProposal:
    if isinstance(intent, Intent):
        if not isinstance(data, str):
            raise TypeError("an intent of the first generation has one `data`")
        return NewProposal(solver=solver, data=HexString.parse(data), deadline=deadline, fees=fees)
    given = [data] * len(intent.operations) if isinstance(data, str) else data
    datas = [HexString.parse(each) for each in given]
    return NewOperationsProposal(solver=solver, datas=datas, deadline=deadline, fees=fees)
