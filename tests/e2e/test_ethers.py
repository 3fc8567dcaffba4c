"""ethers signs the typed data of the service, and verifies stored triggers and signatures of this code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from javascript import NODE_TESTS, with_ethers

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, once, register
from muniment.protocol.triggers.typed_data import types_for
from service import Service

pytestmark = NODE_TESTS

_TOKEN = {"address": Wallet(41).address, "chainId": 8453}
# An input of every kind that a manifest can name, with a value that a wallet can sign.
_INPUTS: dict[str, tuple[str, Any]] = {
    "token": ("Token", _TOKEN),
    "amount": ("TokenAmount", {"token": _TOKEN, "amount": "0.1"}),
    "second": ("TokenAmount", {"token": _TOKEN, "amount": "100"}),
    "owner": ("address", Wallet(42).address),
    "small": ("uint8", 255),
    "large": ("uint256", str(2**256 - 1)),
    "bare": ("uint", "7"),
    "negative": ("int", "-7"),
    "flag": ("bool", True),
    "word": ("bytes32", "0x" + "ab" * 32),
    "data": ("bytes", "0x"),
    "text": ("string", "größer ≥ 1 ✓ 😀"),
}
_TYPE_OF = {name: kind for name, (kind, _) in _INPUTS.items()}
_VALUES = {name: value for name, (_, value) in _INPUTS.items()}

configs = pytest.mark.parametrize(
    "config",
    [cron(endDate=4_102_444_800_000), event(), once(startDate=4_102_444_800_000)],
    ids=["cron", "event", "once"],
)
inputs = pytest.mark.parametrize("values", [{}, _VALUES], ids=["none", "every-kind"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("registry") / "data") as service:
        yield service


@dataclass(frozen=True)
class Functions:
    """The CIDs of two registered functions: one that takes nothing, one that takes an input of every kind."""

    plain: str
    rich: str

    def taking(self, values: dict[str, Any]) -> str:
        return self.rich if values else self.plain


async def _deployed(url: str) -> Functions:
    async with httpx2.AsyncClient(base_url=url) as client:
        rich = await deploy(client, Bundle(name="Rich", inputs=_TYPE_OF))
        return Functions(await deploy(client, Bundle(name="Plain")), rich)


@pytest.fixture(scope="module")
def functions(running: Service) -> Functions:
    return asyncio.run(_deployed(running.url))


@pytest.fixture
async def client(running: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=running.url) as made:
        yield made


async def ethers(task: str, **values: Any) -> str:
    """The result of one task; the event loop goes on meanwhile."""
    (result,) = await asyncio.to_thread(with_ethers, {"task": task, **values})
    return result


def _key(wallet: Wallet) -> str:
    return "0x" + wallet.key.hex()


async def sign_typed_data(wallet: Wallet, params: dict[str, Any]) -> str:
    """As a browser application does it: the answer of sign-params goes to the wallet as it is."""
    asked = {name: params[name] for name in ("domain", "types", "message")}
    return await ethers("signTypedData", key=_key(wallet), **asked)


@inputs
@configs
async def test_ethers_signs_a_trigger_that_is_accepted_and_verifies_the_stored_one(
    client: httpx2.AsyncClient, functions: Functions, values: dict[str, Any], config: dict[str, Any]
) -> None:
    wallet = Wallet(11)
    asked = {"functionCid": functions.taking(values), "version": "1.0.0", "input": values, "config": config}
    params = ok(await client.post("/triggers/sign-params", json=asked)).json()
    sig = await sign_typed_data(wallet, params)
    typed_data = {"types": params["types"], "values": params["message"]}
    body = {"description": "Signed by ethers", "typedData": typed_data, "sig": sig, "signer": wallet.address}
    response = await client.post("/triggers", json=body)
    assert response.status_code == 200, response.text
    stored = ok(await client.get(f"/triggers/{sig}")).json()
    signed = {name: stored[name] for name in params["message"]}
    assert await _signer(params["domain"], stored["types"], signed, stored["sig"]) == stored["signer"] == wallet.address


@inputs
@configs
async def test_ethers_verifies_a_trigger_that_this_code_has_signed(
    client: httpx2.AsyncClient, functions: Functions, values: dict[str, Any], config: dict[str, Any]
) -> None:
    cid = functions.taking(values)
    draft = TriggerDraft(
        cid, Wallet(12), _TYPE_OF if values else {}, input=values, config=config, fee_limit="1", description="Ours"
    )
    stored = await register(client, draft)
    domain = {"name": "Mimic Protocol - Registry", "version": "1"}
    signed = {name: stored[name] for name in draft.values}
    assert await _signer(domain, stored["types"], signed, stored["sig"]) == draft.wallet.address
    changed = {**signed, "minValidations": 2}
    assert await _signer(domain, stored["types"], changed, stored["sig"]) != draft.wallet.address


@pytest.mark.parametrize(("task", "name"), [("signText", "text"), ("signBytes", "hex")])
async def test_ethers_logs_in(client: httpx2.AsyncClient, task: str, name: str) -> None:
    wallet = Wallet(13)
    nonce = ok(await client.post("/users/nonce", json={"address": wallet.address})).json()["nonce"]
    signature = await ethers(task, key=_key(wallet), **{name: nonce})
    login = await client.post("/users/authenticate", json={"address": wallet.address, "signature": signature})
    assert login.status_code == 200, login.text
    key = await client.get("/users/api-key", headers={"x-auth-token": login.json()["token"]})
    assert key.json()["address"] == wallet.address


@pytest.mark.parametrize("scheme", ["message", "typedData"])
async def test_ethers_deactivates_triggers(client: httpx2.AsyncClient, functions: Functions, scheme: str) -> None:
    wallet = Wallet(14 if scheme == "message" else 15)
    drafts = [TriggerDraft(functions.plain, wallet, fee_limit=limit) for limit in ("1", "2")]
    sigs = [(await register(client, draft))["sig"] for draft in drafts]
    params = ok(await client.post("/triggers/deactivate/sign-params", json={"triggerSigs": sigs})).json()
    if scheme == "message":
        signature = await ethers("signText", key=_key(wallet), text=params["message"])
    else:
        signature = await sign_typed_data(wallet, params["typedData"])
    response = await client.post("/triggers/deactivate", json={"triggerSigs": sigs, "signature": signature})
    assert response.status_code == 204, response.text
    assert ok(await client.get(f"/triggers/{sigs[1]}")).json()["deactivateSig"] == signature


def test_ethers_verifies_texts_and_typed_data_of_many_keys() -> None:
    types = types_for({}, 0)
    domain = {"name": "Mimic Protocol - Registry", "version": "1"}
    tasks: list[dict[str, Any]] = []
    wallets = [Wallet(number) for number in (1, 2, 3, 2**128 + 1, 2**255 - 19)]
    for wallet in wallets:
        message = TriggerDraft("QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ", wallet).values
        params = {"domain": domain, "types": types, "primaryType": "Trigger", "message": message}
        signature = wallet.sign_typed_data(params)
        tasks += [
            {"task": "signerOfTypedData", **params, "signature": signature},
            {"task": "signerOfText", "text": "0x✓\n" * 40, "signature": wallet.sign_text("0x✓\n" * 40)},
        ]
    assert with_ethers(*tasks) == [wallet.address for wallet in wallets for _ in range(2)]


async def _signer(domain: dict[str, str], types: Any, message: dict[str, Any], signature: str) -> str:
    asked = {"domain": domain, "types": types, "message": message, "signature": signature}
    return await ethers("signerOfTypedData", **asked)
