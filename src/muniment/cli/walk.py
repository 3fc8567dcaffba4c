"""The walk of `muniment demo`: the main operations of a service, by the Python client."""

from __future__ import annotations

import secrets
import time
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from muniment.cli import output
from muniment.client import Bundle, KeySigner, Registry, TriggerDraft
from muniment.protocol.wire import moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.protocol.evm.address import Address
    from muniment.service.running.settings import Settings

_BALANCES_SHOWN: Final = 5
_DAY_MS: Final = 86_400_000
# The description of the trigger that a walk leaves, and the least time that it still has if a later walk leaves none.
_LEFT: Final = "Every minute, for a day"
_LEFT_MS_MIN: Final = 600_000
# What the sample function transfers: USDC on Base (the addresses of `chains/tokens.json`), to nobody.
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip


def sample() -> Bundle:
    """The function that a walk deploys."""
    folder = files("muniment.cli") / "sample"
    return Bundle((folder / "manifest.json").read_bytes(), (folder / "function.wasm").read_bytes())


def walk(url: str, protocol: str) -> None:
    """Log in, deploy, sign a trigger, list it, deactivate it, list it again. Raises the errors of the client."""
    wallet = KeySigner(secrets.token_bytes(32))
    with Registry(url, signer=wallet, protocol=protocol) as registry:
        _walk(registry, wallet.address, "a new key, which is not stored", output.print_text)


def walk_and_leave(url: str, settings: Settings) -> tuple[str, str]:
    """Walk as a public wallet, and sign a trigger that is due each minute for a day, which a relayer may run.

    Returns its signature, and what was done, a line each. There is no walk while the trigger of an earlier one is
    active. Raises the errors of the client.
    """
    from muniment.operate.sample_day.records import KEYS

    wallet, lines = KeySigner(KEYS[0]), list[str]()  # whoever looks at a demo can stop its trigger
    with Registry(url, signer=wallet, protocol=settings.protocol_name) as registry:
        for cid in sample().cids():
            # Those under a protocol name that was changed later read as forged.
            left = registry.triggers.list(
                signer=wallet.address, function_cid=cid, active=True, on_forged=lambda _: None
            )
            for trigger in left:
                if trigger.description == _LEFT and trigger.end_date - _now_ms() > _LEFT_MS_MIN:
                    words = f"{trigger.sig[:18]}…, a transfer each minute, until {moment(trigger.end_date)}"
                    return trigger.sig, _line("left active", words)
        about = "the first test account of anvil and Hardhat, whose key everybody knows"
        cid = _walk(registry, wallet.address, about, lines.append)
        sig = registry.triggers.create(_draft(cid, _LEFT, "* * * * *", days=1)).sig
        lines.append(_line("left active", f"{sig[:18]}…, a transfer each minute, for a day"))
        return sig, "\n".join(lines)


def _walk(registry: Registry, address: Address, about: str, tell: Callable[[str], object]) -> str:
    """Walk as the wallet with this address, and tell each step in a line; the CID of the function."""

    def step(name: str, outcome: str) -> None:
        tell(_line(name, outcome))

    step("wallet", f"{address} ({about})")
    token = registry.account.log_in()
    step("login", f"a signed text proves the address; token {token[:12]}…, valid for a day")
    for each in registry.account.balances()[:_BALANCES_SHOWN]:
        amount = Decimal(each.balance).scaleb(-each.decimals).normalize()
        price = f"at {each.price} US dollars" if each.price else "at an unknown price"
        step("balance", f"{amount:f} {each.symbol} on chain {each.chain_id}, {price}")
    step("API key", f"{registry.account.api_key()[:16]}…, for deploying")
    function = registry.functions.deploy(sample())
    step("deploy", f"{function.name} {function.version} is {function.cid}, computed here too")
    draft = _draft(function.cid, "Every six hours, from the walk-through", "0 */6 * * *", days=30)
    preview = registry.triggers.preview(draft)
    step("preview", f"every six hours, for thirty days; next run {preview.next_runs[0]}")
    signed = registry.triggers.sign(draft)
    step("signature", f"{signed.sig[:18]}…, which is also the trigger's id")
    step("trigger", f"registered at {registry.triggers.create(signed).created_at}")
    step("list", _listed(registry, address, "active"))
    registry.triggers.deactivate([signed.sig])
    step("deactivate", "signed by the owner; it is final")
    step("list", _listed(registry, address, "deactivated"))
    return function.cid


def _draft(cid: str, description: str, schedule: str, *, days: int) -> TriggerDraft:
    config = {"type": 0, "schedule": schedule, "delta": "5m", "endDate": _now_ms() + days * _DAY_MS}
    return TriggerDraft.of(cid, description=description, input=_INPUT, config=config)


def _listed(registry: Registry, address: Address, expected: str) -> str:
    active = [*registry.triggers.list(signer=address, active=True)]
    known = [*registry.triggers.list(signer=address)]
    return f"{len(active)} of {len(known)} triggers active, each checked; the new one: {expected}"


def _line(name: str, outcome: str) -> str:
    return f"  {name:<12} {outcome}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
