"""What a function is told of its run: `environment._getContext` as the tooling of the field reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from muniment.protocol.runs.types import BLOCKS_MAX, RunContext, RunToken, TriggerType
from muniment.protocol.wire import encode

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature

# The answers of one relayer are enough for a run.
CONSENSUS_THRESHOLD: Final = 1


def settlers_of(chains: Iterable[Chain]) -> list[RunToken]:
    """The first settler of each chain that has one, by chain id; at most as many as a record holds."""
    settlers = [
        RunToken(address=chain.settlers[0], chain_id=chain.id)
        for chain in sorted(chains, key=lambda chain: chain.id)
        if chain.settlers
    ]
    return settlers[:BLOCKS_MAX]


def context_text(
    *, sig: Signature, kind: TriggerType, payload: bytes, timestamp_ms: int, user: Address, settlers: Sequence[RunToken]
) -> str:
    """The JSON that a function gets. Addresses are in lower case, and `data` is the payload as 0x and hex digits.

    The functions compute the nonces of their intents from `triggerSig`, `timestamp` and `data`, so the same run gives
    the same nonces. Source: packages/lib-ts/src/context of mimic-protocol/tooling at eadecbf.
    """
    context = {
        "timestamp": timestamp_ms,
        "consensusThreshold": CONSENSUS_THRESHOLD,
        "user": user.lower(),
        "settlers": [{"address": each.address.lower(), "chainId": each.chain_id} for each in settlers],
        "triggerSig": sig,
        "triggerPayload": {"type": kind, "data": "0x" + payload.hex()},
        "oracleResponses": {},
    }
    return encode(context).decode()


def run_context(settlers: Sequence[RunToken]) -> RunContext:
    """The context as a record of a run has it."""
    return RunContext(consensus_threshold=CONSENSUS_THRESHOLD, settlers=list(settlers))
