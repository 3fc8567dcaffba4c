"""Runs for tests: as relayers send them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import httpx2

from answers import ok
from builders import TriggerDraft, deploy, event, once, register
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.service.context import Context
from muniment.service.resources import operators

SIX_HOURS_MS = 6 * 60 * 60 * 1000
# The first tick of "0 */6 * * *" after the time of the tests, 2026-11-20T19:48:00.123Z.
TICK = 1_795_219_200_000
BLOCK = {"chainId": 8453, "number": 38_000_000, "hash": "0x" + "02" * 32}


def run_body(trigger: dict[str, Any], tick: int = TICK, **changes: Any) -> dict[str, Any]:
    """A run of a cron trigger that made nothing, unless it is changed."""
    return {
        "triggerSig": trigger["sig"], "triggerType": trigger["config"]["type"],
        "triggerData": f"0x{time_payload(tick).hex()}", "timestamp": tick, "result": "nothing",
        "fuelUsed": "7000000", "logs": ["[Info] price 1.02"], "engine": "tests 1", **changes,
    }  # fmt: skip


def with_intents(*hashes: str) -> dict[str, Any]:
    """The changes of a run that made these intents."""
    return {"result": "intents", "outputs": [{"hash": each} for each in hashes]}


def stopped(code: str = "abort", text: str = "") -> dict[str, Any]:
    """The changes of a run that was stopped."""
    return {"result": "stopped", "reason": {"code": code, "text": text}}


def skipped(code: str = "ended") -> dict[str, Any]:
    """The changes of a note about a run that was skipped."""
    return {"result": "skipped", "reason": {"code": code, "text": ""}}


def event_body(trigger: dict[str, Any], block_hash: str = "0x" + "02" * 32, **changes: Any) -> dict[str, Any]:
    """A run of an event trigger."""
    config = trigger["config"]
    payload = event_payload(
        EventPayload(
            config["chainId"], Bytes32.parse(block_hash), 3, Address.parse(config["contract"]),
            (Bytes32.parse("0x" + "ab" * 32), Bytes32.parse("0x" + "01" * 32)), HexString.parse("0xbeef"),
        )
    )  # fmt: skip
    return {**run_body(trigger), "triggerData": f"0x{payload.hex()}", **changes}


def once_body(trigger: dict[str, Any], time_ms: int, **changes: Any) -> dict[str, Any]:
    """A run of a once trigger that was registered at `time_ms`, or begins then."""
    return run_body(trigger, time_ms, **changes)


def hash_of(body: dict[str, Any]) -> str:
    """The hash of a run, by the function that the registry uses too."""
    outputs = [bytes.fromhex(each["hash"][2:]) for each in body.get("outputs", [])]
    payload = bytes.fromhex(body["triggerData"][2:])
    digest = execution_hash(Signature.parse(body["triggerSig"]), body["triggerType"], payload, body["result"], outputs)
    return f"0x{digest.hex()}"


@dataclass(frozen=True)
class Relayer:
    """An operator that records runs."""

    client: httpx2.AsyncClient
    key: str
    address: str = "0x" + "00" * 20

    @property
    def headers(self) -> dict[str, str]:
        return {"x-operator-key": self.key}

    async def post(self, body: dict[str, Any]) -> httpx2.Response:
        return await self.client.post("/executions", json=body, headers=self.headers)

    async def record(self, body: dict[str, Any]) -> dict[str, Any]:
        """Record a run; the answer."""
        return ok(await self.post(body)).json()

    async def orphan(self, run_hash: str, block: dict[str, Any]) -> httpx2.Response:
        body = {"chainId": block["chainId"], "blockHash": block["hash"]}
        return await self.client.post(f"/executions/{run_hash}/orphan", json=body, headers=self.headers)


async def relayer(context: Context, client: httpx2.AsyncClient, name: str = "relayer", number: int = 0) -> Relayer:
    """A new operator; its address ends with `number`, and 0 is none."""
    key = operators.new_key(secrets.token_bytes)
    address = Address.from_raw(number.to_bytes(20)) if number else None
    await context.database.write(lambda tx: operators.add(tx, name, key, context.clock.now_ms(), address))
    return Relayer(client, key, str(Address.from_raw(number.to_bytes(20))))


async def registered(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """A trigger of every six hours, unless it is changed."""
    return await register(client, TriggerDraft(await deploy(client), **changes))


async def registered_once(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """A trigger of one run, as soon as possible."""
    return await registered(client, config=once(), **changes)


async def registered_event(client: httpx2.AsyncClient) -> dict[str, Any]:
    """A trigger of an event."""
    return await registered(client, config=event())


async def read(client: httpx2.AsyncClient, run_hash: str) -> dict[str, Any]:
    return ok(await client.get(f"/executions/{run_hash}")).json()


async def listed(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    """The hashes of a page."""
    return [each["hash"] for each in ok(await client.get("/executions", params=query)).json()]
