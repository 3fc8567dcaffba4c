"""A registry with a record of every kind, and a proxy before it that lies to its clients."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from facades_world import CHAIN_ID, QUICK, bundle, draft, new_intent, plain_http, signer

from builders import event
from middle import Middle, before
from muniment.client import Bundle, Registry
from muniment.client.offers import sign_proposal
from operator_client import FAR_DEADLINE, SETTLER
from service import Service

INPUTS = {"to": "address", "amount": "TokenAmount", "note": "string"}
GIVEN: dict[str, Any] = {
    "to": SETTLER,
    "amount": {"token": {"address": SETTLER, "chainId": 1}, "amount": "7"},
    "note": "hi",
}
Read = Callable[[Registry], object]
# Facts that only the service knows: it may say anything of them.
CLAIMED_OF_TRIGGERS = ["description", "createdAt", "deactivateSig"]
CLAIMED_OF_PROPOSALS = ["feeUsd", "status", "description", "verified", "signers", "transactionHash"]
CLAIMED_OF_INTENTS = [
    "executionHash", "createdAt", "status", "transactionHash", "destTransactionHash", "logs", "proposals",
    *(f"proposals.*.{name}" for name in CLAIMED_OF_PROPOSALS),
]  # fmt: skip


@dataclass
class Lying:
    """The proxy, an operator's client through it, and the records as the service has them."""

    middle: Middle
    key: str
    bundle: Bundle
    cid: str
    other_cid: str
    # Signatures of three triggers, and hashes of three intents of each generation, the oldest first.
    sigs: list[str]
    hashes: dict[int, list[str]]
    http: httpx2.Client

    def registry(self, **given: Any) -> Registry:
        """A client that has read nothing yet."""
        named: dict[str, Any] = {
            "signer": signer(7),
            "operator_key": self.key,
            "chains": {CHAIN_ID: SETTLER},
            "retry": QUICK,
        }
        named |= given
        return Registry(self.middle.url, **named)

    def truth(self, target: str) -> Any:
        """The answer of the service."""
        return self.http.get(self.middle.behind + target).json()


def _records(service: Service, middle: Middle, http: httpx2.Client) -> Lying:
    key = service.operator_key()
    first, second = bundle(inputs=INPUTS), bundle(inputs=INPUTS)
    with Registry(service.url, signer=signer(7), operator_key=key) as registry:
        cid, other_cid = (registry.functions.deploy(each).cid for each in (first, second))
        drafts = [draft(cid, input=GIVEN, config=event(), version=f"{n}.0.0") for n in range(3)]
        sigs = [str(registry.triggers.create(each).sig) for each in drafts]
        hashes: dict[int, list[str]] = {1: [], 2: []}
        for generation, found in hashes.items():
            for _ in range(3):
                intent = registry.intents.put(new_intent(generation))
                offer = sign_proposal(
                    signer(72), intent, chain_id=CHAIN_ID, fees=["3", "4"], deadline=FAR_DEADLINE, data="0xbeef"
                )
                registry.intents.propose(intent.hash, offer)
                registry.intents.log(intent.hash, "info", "a line")
                found.append(str(intent.hash))
    return Lying(middle, key, first, str(cid), str(other_cid), sigs, hashes, http)


@contextmanager
def lying_registry(directory: Path) -> Generator[Lying]:
    """A service on a new directory, with its records, and the proxy."""
    with Service(directory / "data") as service, before(service.url) as middle, plain_http() as http:
        yield _records(service, middle, http)


def trigger_reads(world: Lying) -> dict[str, Read]:
    """The operations that answer the second trigger."""
    sig = world.sigs[1]
    return {
        "get": lambda registry: registry.triggers.get(sig),
        "list": lambda registry: [*registry.triggers.list(signer=signer(7).address)],
        "list of a function": lambda registry: [*registry.triggers.list(function_cid=world.cid)],
        "follow": lambda registry: next(iter(registry.triggers.follow())),
        "refresh": lambda registry: registry.triggers.refresh(world.sigs),
        "create": lambda registry: registry.triggers.create(
            draft(world.cid, input=GIVEN, config=event(), version="1.0.0")
        ),
    }
