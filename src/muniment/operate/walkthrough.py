"""The main operations of a service, shown by the Python client with a throw-away wallet."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muniment.client import KeySigner, Registry, TriggerDraft

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.client import Bundle
    from muniment.protocol.evm.address import Address

_DAY_MS: Final = 86_400_000
# What the sample function transfers: USDC on Base (the addresses of `chains/tokens.json`), to nobody.
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Walkthrough:
    """A walk through the service at `url`, on which `bundle` is deployed.

    `on_step` gets the name and the outcome of each step. With `leaves_trigger` the last step signs a trigger that is
    due each minute for a day, which a relayer may run.
    """

    url: str
    bundle: Bundle
    on_step: Callable[[str, str], None]
    protocol: str = "Mimic"
    leaves_trigger: bool = False

    def run(self) -> None:
        """Log in, deploy, sign a trigger, list it, deactivate it, list it again.

        Raises the errors of the client.
        """
        wallet = KeySigner(secrets.token_bytes(32))
        self.on_step("wallet", f"{wallet.address} (a new key, which is not stored)")
        with Registry(self.url, signer=wallet, protocol=self.protocol) as registry:
            token = registry.account.log_in()
            self.on_step("login", f"a signed nonce proves the address; token {token[:12]}…, valid for a day")
            self.on_step("API key", f"{registry.account.api_key()[:16]}…, for deploying")
            cid = self._deploy(registry)
            sig = self._sign_trigger(registry, cid)
            self._list(registry, wallet.address, "active")
            registry.triggers.deactivate([sig])
            self.on_step("deactivate", "signed by the owner; it is final")
            self._list(registry, wallet.address, "deactivated")
            if self.leaves_trigger:
                self._leave_trigger(registry, cid)

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

    def _leave_trigger(self, registry: Registry, cid: str) -> None:
        draft = TriggerDraft.of(
            cid, description="Every minute, for a day", input=_INPUT,
            config={"type": 0, "schedule": "* * * * *", "delta": "10m", "endDate": _now_ms() + _DAY_MS},
        )  # fmt: skip
        sig = registry.triggers.create(draft).sig
        self.on_step("left active", f"{sig[:18]}…, a transfer each minute, for a day")

    def _list(self, registry: Registry, address: Address, expected: str) -> None:
        active = [*registry.triggers.list(signer=address, active=True)]
        known = [*registry.triggers.list(signer=address)]
        self.on_step("list", f"{len(active)} active of {len(known)} by this wallet, each checked: it is {expected}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
