"""The main operations of a service, shown by the Python client with a throw-away wallet."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muniment.chains.catalogue import load_chains
from muniment.client import KeySigner, Registry, TriggerDraft
from muniment.operate.http_request import ask
from muniment.protocol.evm.address import Address
from muniment.protocol.wire import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.client import Bundle
    from muniment.service.running.settings import Settings

_BALANCES_SHOWN: Final = 5
_COINS_SECONDS_MAX: Final = 10.0
_DAY_MS: Final = 86_400_000
# The description of the trigger that a walk leaves, and the least time that it still has if a later walk leaves none.
_LEFT: Final = "Every minute, for a day"
_LEFT_MS_MIN: Final = 600_000
# What the sample function transfers: USDC on Base (the addresses of `chains/tokens.json`), to nobody.
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip


def development_nodes(settings: Settings) -> list[str]:
    """The RPC URLs on this machine: development nodes, which give coins to any address."""
    chains = load_chains(settings.chains_file).values()
    urls = [url for chain in chains for url in chain.rpc_urls]
    return [url for url in urls if urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthrough:
    """A walk through the service at `url`, on which `bundle` is deployed.

    `on_step` gets the name and the outcome of each step. `nodes` are URLs of development nodes. With
    `leaves_trigger` the last step signs a trigger that is due each minute for a day, which a relayer may run.
    """

    url: str
    bundle: Bundle
    on_step: Callable[[str, str], None]
    protocol: str = "Mimic"
    nodes: Sequence[str] = ()
    leaves_trigger: bool = False

    def run(self) -> str | None:
        """Log in, deploy, sign a trigger, list it, deactivate it, list it again.

        The result is the signature of the trigger that is left active, if one is. Raises the errors of the client.
        """
        wallet = KeySigner(secrets.token_bytes(32))
        self._give_coins(wallet.address)
        self.on_step("wallet", f"{wallet.address} (a new key, which is not stored)")
        with Registry(self.url, signer=wallet, protocol=self.protocol) as registry:
            token = registry.account.log_in()
            self.on_step("login", f"a signed nonce proves the address; token {token[:12]}…, valid for a day")
            self._show_balances(registry)
            self.on_step("API key", f"{registry.account.api_key()[:16]}…, for deploying")
            cid = self._deploy(registry)
            sig = self._sign_trigger(registry, cid)
            self._list(registry, wallet.address, "active")
            registry.triggers.deactivate([sig])
            self.on_step("deactivate", "signed by the owner; it is final")
            self._list(registry, wallet.address, "deactivated")
            return self._leave_trigger(registry, cid) if self.leaves_trigger else None

    def find_left(self) -> str | None:
        """The signature of a trigger that an earlier walk has left, if it is active for some more minutes.

        Then there is no need to leave another one. Raises the errors of the client.
        """
        with Registry(self.url, protocol=self.protocol) as registry:
            for cid in self.bundle.cids():
                # Those under a protocol name that was changed later read as forged.
                for trigger in registry.triggers.list(function_cid=cid, active=True, on_forged=lambda _: None):
                    if trigger.description == _LEFT and trigger.end_date - _now_ms() > _LEFT_MS_MIN:
                        until = moment(trigger.end_date)
                        self.on_step("left active", f"{trigger.sig[:18]}…, a transfer each minute, until {until}")
                        return trigger.sig
        return None

    def _give_coins(self, address: Address) -> None:
        for url in self.nodes:
            call = {"method": "hardhat_setBalance", "params": [address, hex(10**18)]}  # anvil accepts it too
            body = json.dumps({"jsonrpc": "2.0", "id": 1, **call}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body))}
            with suppress(OSError):
                ask(url, method="POST", pieces=[body], headers=headers, seconds_max=_COINS_SECONDS_MAX)

    def _show_balances(self, registry: Registry) -> None:
        for each in registry.account.balances()[:_BALANCES_SHOWN]:
            amount = Decimal(each.balance).scaleb(-each.decimals).normalize()
            price = f"at {each.price} US dollars" if each.price else "at an unknown price"
            self.on_step("balance", f"{amount:f} {each.symbol} on chain {each.chain_id}, {price}")

    def _deploy(self, registry: Registry) -> str:
        function = registry.functions.deploy(self.bundle)
        self.on_step("deploy", f"{function.name} {function.version} is {function.cid}, computed here too")
        return function.cid

    def _sign_trigger(self, registry: Registry, cid: str) -> str:
        draft = TriggerDraft.of(
            cid, description="Every six hours, from the walk-through", input=_INPUT,
            config={"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": _now_ms() + 30 * _DAY_MS},
            execution_fee_limit="5000000000000000",
        )  # fmt: skip
        preview = registry.triggers.preview(draft)
        self.on_step("preview", f"every six hours, for thirty days; next run {preview.next_runs[0]}")
        signed = registry.triggers.sign(draft)
        self.on_step("signature", f"{signed.sig[:18]}…, which is also the trigger's id")
        trigger = registry.triggers.create(signed)
        self.on_step("trigger", f"registered at {trigger.created_at}")
        return trigger.sig

    def _leave_trigger(self, registry: Registry, cid: str) -> str:
        draft = TriggerDraft.of(
            cid, description=_LEFT, input=_INPUT,
            config={"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": _now_ms() + _DAY_MS},
        )  # fmt: skip
        sig = registry.triggers.create(draft).sig
        self.on_step("left active", f"{sig[:18]}…, a transfer each minute, for a day")
        return sig

    def _list(self, registry: Registry, address: Address, expected: str) -> None:
        active = [*registry.triggers.list(signer=address, active=True)]
        known = [*registry.triggers.list(signer=address)]
        self.on_step("list", f"{len(active)} of {len(known)} triggers active, each checked; the new one: {expected}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
