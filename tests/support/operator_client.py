"""An operator's client of the API, and drafts of the intents, proposals and logs that it writes."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Self

import httpx2

from answers import ok
from builders import Wallet
from intent_bodies import intent_body, operations_body, proposal_body
from muniment.chains.catalogue import Chain
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import sign
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash, proposal_hash, settlement_digest
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal
from muniment.service.context import Context
from muniment.service.resources import operators

USER = Wallet(71)
SOLVER = Wallet(72)
SETTLER = "0x609d831C0068844e11eF85a273c7F356212Fd6D1"
# A day after the time of the tests.
DEADLINE = 1_795_290_480
# In the year 2096, for services that look at the clock on the wall.
FAR_DEADLINE = 4_000_000_000
HEX32 = "0x" + "ab" * 32


@dataclass(frozen=True)
class IntentDraft:
    """An intent to write; each `number` makes another. `members` are those outside of the hash."""

    number: int = 1
    deadline: int = DEADLINE
    members: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def body(self) -> dict[str, Any]:
        members = {
            "user": USER.address, "settler": SETTLER, "deadline": str(self.deadline), "data": "0x01",
            "maxFees": [{"token": Wallet(73).address, "amount": "5"}],
            "events": [{"topic": HEX32, "data": "0xbeef"}], "configSig": "0x" + "12" * 64 + "1b",
        }  # fmt: skip
        return intent_body(self.number, **{**members, **self.members})

    @property
    def hash(self) -> str:
        return "0x" + intent_hash(decode_record(self.body, AnyNewIntent)).hex()

    def saying(self, **members: Any) -> Self:
        """The same intent with more members."""
        return replace(self, members={**self.members, **members})


@dataclass(frozen=True)
class OperationsDraft(IntentDraft):
    """The same in generation 2, with two operations of two users."""

    @property
    def body(self) -> dict[str, Any]:
        event = {"topic": HEX32, "data": "0xbeef"}
        operations = [
            {"opType": 4, "user": USER.address, "data": "0x01", "events": [event]},
            {"opType": 1, "user": Wallet(74).address, "data": "0x", "events": []},
        ]
        members = {
            "feePayer": Wallet(75).address, "settler": SETTLER, "deadline": str(self.deadline),
            "maxFees": [{"token": Wallet(73).address, "amount": "5"}], "triggerSig": "0x" + "12" * 64 + "1b",
            "operations": operations,
        }  # fmt: skip
        return operations_body(self.number, **{**members, **self.members})


def operations_proposal(number: int = 1, **members: Any) -> dict[str, Any]:
    """A proposal to an `OperationsDraft`; each `number` makes another."""
    datas = [f"0x{number:064x}", "0x"]
    return {"solver": SOLVER.address, "datas": datas, "deadline": str(DEADLINE), "fees": ["3"], **members}


def proposal(number: int = 1, **members: Any) -> dict[str, Any]:
    """A proposal; each `number` makes another."""
    own = {"solver": SOLVER.address, "data": f"0x{number:064x}", "deadline": str(DEADLINE), "fees": ["3"]}
    return proposal_body(number, **{**own, **members})


def log(number: int = 1, **members: Any) -> dict[str, Any]:
    """A log line; each `number` makes another."""
    return {"level": "info", "data": f"line {number}", "id": f"relayer/{number}", **members}


def hash_of_proposal(to: str, body: dict[str, Any]) -> str:
    new: AnyNewProposal = decode_record(body, AnyNewProposal)
    return "0x" + proposal_hash(bytes.fromhex(to[2:]), new).hex()


def signed(to: str, body: dict[str, Any], chain: Chain, wallet: Wallet = SOLVER) -> dict[str, Any]:
    """A proposal with a solver's signature under the domain of a chain's settler."""
    assert chain.settler is not None
    digest = settlement_digest(bytes.fromhex(hash_of_proposal(to, body)[2:]), "Mimic", chain.id, chain.settler)
    return {**body, "signatures": [*body.get("signatures", []), str(sign(digest, wallet.key))]}


async def operator_key(context: Context, name: str = "relayer", address: str | None = None) -> str:
    """A new operator's key; `address` names the operator in runs."""
    key, named = operators.new_key(secrets.token_bytes), None if address is None else Address.parse(address)
    await context.database.write(lambda tx: operators.add(tx, name, key, context.clock.now_ms(), named))
    return key


@dataclass(frozen=True)
class OperatorClient:
    """Writes and reads intents through the API with an operator's key."""

    client: httpx2.AsyncClient
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"x-operator-key": self.key}

    async def put(self, draft: IntentDraft, path_hash: str = "") -> httpx2.Response:
        url = f"/intents/{path_hash or draft.hash}"
        return await self.client.put(url, json=draft.body, headers=self.headers)

    async def recorded(self, draft: IntentDraft | None = None) -> str:
        """Write an intent; its hash."""
        draft = draft or IntentDraft()
        response = await self.put(draft)
        assert response.status_code == 200, response.text
        return draft.hash

    async def append(self, to: str, kind: str, body: dict[str, Any]) -> httpx2.Response:
        """Append one of the `proposals` or `logs`."""
        return await self.client.post(f"/intents/{to}/{kind}", json=body, headers=self.headers)

    async def move(self, of: str, status: str, **members: Any) -> httpx2.Response:
        body = {"status": status, **members}
        return await self.client.post(f"/intents/{of}/status", json=body, headers=self.headers)

    async def read(self, of: str) -> dict[str, Any]:
        return ok(await self.client.get(f"/intents/{of}")).json()
