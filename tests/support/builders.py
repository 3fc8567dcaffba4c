"""Wallets, bundles and triggers that are valid unless a test changes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from answers import ok
from muniment.protocol.evm.signature import address_of_key, personal_digest, sign
from muniment.protocol.evm.typed_data import compile_types, digest
from muniment.protocol.triggers.typed_data import deactivation_digests, registry_domain, types_for

SAMPLES = Path(__file__).parents[1] / "vectors" / "bundles"
DOMAIN = registry_domain("Mimic")
EMPTY_WASM = b"\0asm\1\0\0\0"


@dataclass(frozen=True)
class Wallet:
    """A wallet; `Wallet(1)` has the same key in every test."""

    number: int = 1

    @property
    def key(self) -> bytes:
        return self.number.to_bytes(32)

    @property
    def address(self) -> str:
        return str(address_of_key(self.key))

    def sign_text(self, text: str) -> str:
        return self.sign_bytes(text.encode())

    def sign_bytes(self, message: bytes) -> str:
        return str(sign(personal_digest(message), self.key))

    def sign_typed_data(self, params: dict[str, Any]) -> str:
        domain = registry_domain(params["domain"]["name"].removesuffix(" Protocol - Registry"))
        struct_hash = compile_types(params["types"], params["primaryType"]).struct_hash(params["message"])
        return str(sign(digest(domain, struct_hash), self.key))

    def sign_deactivation(self, sigs: list[str], *, as_text: bool = False) -> str:
        text, typed = deactivation_digests(sigs, DOMAIN)  # pyright: ignore[reportArgumentType] - canonical texts
        return str(sign(text if as_text else typed, self.key))


@dataclass
class Bundle:
    """A function bundle; each name and version has another CID."""

    name: str = "Hello"
    version: str = "1.0.0"
    description: str = "Logs one line"
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    wasm: bytes = EMPTY_WASM

    @property
    def manifest(self) -> bytes:
        members = {"version": self.version, "name": self.name, "description": self.description, "inputs": self.inputs}
        return json.dumps(members, indent=2).encode()

    @property
    def files(self) -> list[tuple[str, tuple[str, bytes, str]]]:
        """As httpx2 and the deploy tools send it."""
        return [
            ("file", ("manifest.json", self.manifest, "application/json")),
            ("file", ("function.wasm", self.wasm, "application/wasm")),
        ]


def cron(**changes: Any) -> dict[str, Any]:
    """A valid cron config."""
    return {"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": 0, **changes}


def event(**changes: Any) -> dict[str, Any]:
    """A valid event config."""
    return {
        "type": 1, "chainId": 8453, "contract": Wallet(99).address, "topics": [["0x" + "ab" * 32], []],
        "delta": "1h", "endDate": 0, **changes,
    }  # fmt: skip


def once(**changes: Any) -> dict[str, Any]:
    """A valid once config."""
    return {"type": 2, "startDate": 0, "delta": "1h", "endDate": 0, **changes}


@dataclass
class TriggerDraft:
    """A trigger to sign. `inputs` are the types of the function's inputs by name."""

    cid: str
    wallet: Wallet = field(default_factory=Wallet)
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    description: str = "Every six hours"
    version: str = "1.0.0"
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    config: dict[str, Any] = field(default_factory=cron)
    fee_limit: Any = "0"
    min_validations: Any = 1
    types: dict[str, Any] | None = None

    @property
    def values(self) -> dict[str, Any]:
        return {
            "functionCid": self.cid, "version": self.version, "input": self.input, "config": self.config,
            "executionFeeLimit": self.fee_limit, "minValidations": self.min_validations,
        }  # fmt: skip

    def signed(self) -> dict[str, Any]:
        """The body of POST /triggers, signed by the wallet with our own encoder."""
        types = self.types or types_for(self.inputs, self.config["type"])
        struct_hash = compile_types(types, "Trigger").struct_hash(self.values)
        sig = str(sign(digest(DOMAIN, struct_hash), self.wallet.key))
        return {
            "description": self.description, "typedData": {"types": types, "values": self.values},
            "sig": sig, "signer": self.wallet.address,
        }  # fmt: skip


async def log_in(client: httpx2.AsyncClient, wallet: Wallet) -> str:
    """Log in over HTTP; the token."""
    nonce = ok(await client.post("/users/nonce", json={"address": wallet.address})).json()["nonce"]
    login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
    response = await client.post("/users/authenticate", json=login)
    assert response.status_code == 200, response.text
    return response.json()["token"]


async def api_key_of(client: httpx2.AsyncClient, wallet: Wallet) -> str:
    """The current API key of the wallet."""
    token = await log_in(client, wallet)
    return ok(await client.get("/users/api-key", headers={"x-auth-token": token})).json()["apiKey"]


async def deploy(client: httpx2.AsyncClient, bundle: Bundle | None = None, wallet: Wallet | None = None) -> str:
    """Deploy a bundle; its CID."""
    headers = {"x-api-key": await api_key_of(client, wallet or Wallet())}
    response = await client.post("/functions", files=(bundle or Bundle()).files, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["CID"]


async def signed_in(url: str) -> tuple[str, str]:
    """An API key at a service, and a function to make triggers for."""
    async with httpx2.AsyncClient(base_url=url) as client:
        return await api_key_of(client, Wallet()), await deploy(client)


async def register(client: httpx2.AsyncClient, draft: TriggerDraft) -> dict[str, Any]:
    """Register a trigger; the answer."""
    response = await client.post("/triggers", json=draft.signed())
    assert response.status_code == 200, response.text
    return response.json()
