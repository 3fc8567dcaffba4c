"""A walk through the main operations of a service over HTTP, with a throw-away wallet."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from muniment.chains.catalogue import load_chains
from muniment.evm.signature import address_of_key, personal_digest, sign
from muniment.evm.typed_data import Domain, compile_types, digest
from muniment.maintenance.http_client import Client, RequestFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muniment.settings import Settings

_BALANCES_SHOWN: Final = 5
_LIFETIME_MS: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Wallet:
    """A new key for one walk-through. It is kept nowhere."""

    key: bytes

    @property
    def address(self) -> str:
        """The wallet's address."""
        return address_of_key(self.key)

    def sign_text(self, text: str) -> str:
        """The signature that `personal_sign` of a wallet returns (EIP-191)."""
        return sign(personal_digest(text.encode()), self.key)

    def sign_typed_data(self, params: dict[str, Any]) -> str:
        """The signature that `eth_signTypedData_v4` of a wallet returns (EIP-712)."""
        encoder = compile_types(params["types"], params["primaryType"])
        return sign(digest(Domain(**params["domain"]), encoder.struct_hash(params["message"])), self.key)


def development_nodes(settings: Settings) -> list[str]:
    """The RPC URLs on this machine: development nodes, which give coins to any address."""
    chains = load_chains(Path(settings.chains_file) if settings.chains_file else None).values()
    urls = [url for chain in chains for url in chain.rpc_urls]
    return [url for url in urls if urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthrough:
    """A walk through the service of `client`, in which the files `bundle` are deployed.

    `on_step` gets the name and the outcome of each step. `nodes` are URLs of development nodes.
    """

    client: Client
    bundle: Mapping[str, bytes]
    on_step: Callable[[str, str], None]
    nodes: Sequence[str] = ()

    def run(self) -> None:
        """Log in, deploy, sign a trigger, list it, deactivate it, list it again. Raises `RequestFailed`."""
        wallet = Wallet(secrets.token_bytes(32))
        self._give_coins(wallet)
        self.on_step("wallet", f"{wallet.address} (a new key, kept nowhere)")
        token = self._log_in(wallet)
        self._show_balances(token)
        api_key = self._read_api_key(token)
        cid = self._deploy(api_key)
        sig = self._sign_trigger(wallet, cid)
        self._list(wallet, "active")
        self._deactivate(wallet, sig)
        self._list(wallet, "deactivated")

    def _give_coins(self, wallet: Wallet) -> None:
        for url in self.nodes:
            with suppress(RequestFailed):
                call = {"method": "hardhat_setBalance", "params": [wallet.address, hex(10**18)]}  # anvil knows it too
                Client(url).post("/", {"jsonrpc": "2.0", "id": 1, **call})

    def _log_in(self, wallet: Wallet) -> str:
        nonce = self.client.post("/users/nonce", {"address": wallet.address})["nonce"]
        self.on_step("nonce", f"{nonce[:18]}… to sign, valid for one login")
        login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
        token = self.client.post("/users/authenticate", login)["token"]
        self.on_step("login", f"the signature proves the address; token {token[:12]}…, valid for a day")
        return token

    def _show_balances(self, token: str) -> None:
        """Without configured chains there are none."""
        balances = self.client.get("/users/tokens", x_auth_token=token)
        for each in balances[:_BALANCES_SHOWN]:
            amount = Decimal(each["balance"]).scaleb(-each["decimals"]).normalize()
            price = f"at {each['price']} US dollars" if each["price"] else "at an unknown price"
            self.on_step("balance", f"{amount:f} {each['symbol']} on chain {each['chainId']}, {price}")

    def _read_api_key(self, token: str) -> str:
        api_key = self.client.get("/users/api-key", x_auth_token=token)["apiKey"]
        self.on_step("API key", f"{api_key[:16]}…, for deploying")
        return api_key

    def _deploy(self, api_key: str) -> str:
        function = self.client.post_files("/functions", self.bundle, x_api_key=api_key)
        self.on_step("deploy", f"{function['name']} {function['version']} is {function['CID']}")
        return function["CID"]

    def _sign_trigger(self, wallet: Wallet, cid: str) -> str:
        params = self.client.post("/triggers/sign-params", {
            "functionCid": cid, "version": "1.0.0", "input": {"chainId": 8453, "limit": "1000000000000000000"},
            "config": {
                "type": 0, "schedule": "0 */6 * * *", "delta": "10m",
                "endDate": time.time_ns() // 1_000_000 + _LIFETIME_MS,
            },
            "executionFeeLimit": "5000000000000000",
        })  # fmt: skip
        self.on_step("sign-params", f"typed data under '{params['domain']['name']}': every six hours, for thirty days")
        sig = wallet.sign_typed_data(params)
        self.on_step("signature", f"{sig[:18]}…, which is also the trigger's id")
        trigger = self.client.post("/triggers", {
            "description": "Every six hours, from the walk-through", "sig": sig, "signer": wallet.address,
            "typedData": {"types": params["types"], "values": params["message"]},
        })  # fmt: skip
        self.on_step("trigger", f"registered at {trigger['createdAt']}")
        return sig

    def _list(self, wallet: Wallet, expected: str) -> None:
        active = self.client.get(f"/triggers?signer={wallet.address}&active=true")
        known = self.client.get(f"/triggers?signer={wallet.address}")
        self.on_step("list", f"{len(active)} active of {len(known)} by this wallet: it is {expected}")

    def _deactivate(self, wallet: Wallet, sig: str) -> None:
        params = self.client.post("/triggers/deactivate/sign-params", {"triggerSigs": [sig]})
        consent = {"triggerSigs": [sig], "signature": wallet.sign_typed_data(params["typedData"])}
        self.client.post("/triggers/deactivate", consent)
        self.on_step("deactivate", "signed by the owner, for ever")
