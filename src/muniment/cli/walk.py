"""The walk of `muniment demo`: the main operations of a service, by the Python client with a throw-away wallet."""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muniment.chains.catalogue import load_chains
from muniment.cli import output
from muniment.client import Bundle, KeySigner, Registry, TriggerDraft
from muniment.operate.http_request import ask
from muniment.protocol.wire import moment

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
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


def sample() -> Bundle:
    """The function that a walk deploys."""
    folder = files("muniment.cli") / "sample"
    return Bundle((folder / "manifest.json").read_bytes(), (folder / "function.wasm").read_bytes())


def walk(url: str, protocol: str) -> None:
    """Log in, deploy, sign a trigger, list it, deactivate it, list it again. Raises the errors of the client."""
    wallet = KeySigner(secrets.token_bytes(32))
    with Registry(url, signer=wallet, protocol=protocol) as registry:
        _walk(registry, wallet.address)


def walk_and_leave(url: str, settings: Settings) -> str:
    """`walk`, and sign a trigger that is due each minute for a day, which a relayer may run; its signature.

    There is no walk while the trigger of an earlier one is active. Raises the errors of the client.
    """
    wallet = KeySigner(secrets.token_bytes(32))
    with Registry(url, signer=wallet, protocol=settings.protocol_name) as registry:
        for cid in sample().cids():
            # Those under a protocol name that was changed later read as forged.
            for trigger in registry.triggers.list(function_cid=cid, active=True, on_forged=lambda _: None):
                if trigger.description == _LEFT and trigger.end_date - _now_ms() > _LEFT_MS_MIN:
                    until = moment(trigger.end_date)
                    _step("left active", f"{trigger.sig[:18]}…, a transfer each minute, until {until}")
                    return trigger.sig
        _give_coins(wallet.address, settings)
        cid = _walk(registry, wallet.address)
        sig = registry.triggers.create(_draft(cid, _LEFT, "* * * * *", days=1)).sig
        _step("left active", f"{sig[:18]}…, a transfer each minute, for a day")
        return sig


def _walk(registry: Registry, address: Address) -> str:
    """Walk as the wallet with this address; the CID of the function."""
    _step("wallet", f"{address} (a new key, which is not stored)")
    token = registry.account.log_in()
    _step("login", f"a signed nonce proves the address; token {token[:12]}…, valid for a day")
    for each in registry.account.balances()[:_BALANCES_SHOWN]:
        amount = Decimal(each.balance).scaleb(-each.decimals).normalize()
        price = f"at {each.price} US dollars" if each.price else "at an unknown price"
        _step("balance", f"{amount:f} {each.symbol} on chain {each.chain_id}, {price}")
    _step("API key", f"{registry.account.api_key()[:16]}…, for deploying")
    function = registry.functions.deploy(sample())
    _step("deploy", f"{function.name} {function.version} is {function.cid}, computed here too")
    draft = _draft(function.cid, "Every six hours, from the walk-through", "0 */6 * * *", days=30)
    preview = registry.triggers.preview(draft)
    _step("preview", f"every six hours, for thirty days; next run {preview.next_runs[0]}")
    signed = registry.triggers.sign(draft)
    _step("signature", f"{signed.sig[:18]}…, which is also the trigger's id")
    _step("trigger", f"registered at {registry.triggers.create(signed).created_at}")
    _list(registry, address, "active")
    registry.triggers.deactivate([signed.sig])
    _step("deactivate", "signed by the owner; it is final")
    _list(registry, address, "deactivated")
    return function.cid


def _draft(cid: str, description: str, schedule: str, *, days: int) -> TriggerDraft:
    config = {"type": 0, "schedule": schedule, "delta": "10m", "endDate": _now_ms() + days * _DAY_MS}
    return TriggerDraft.of(cid, description=description, input=_INPUT, config=config)


def _list(registry: Registry, address: Address, expected: str) -> None:
    active = [*registry.triggers.list(signer=address, active=True)]
    known = [*registry.triggers.list(signer=address)]
    _step("list", f"{len(active)} of {len(known)} triggers active, each checked; the new one: {expected}")


def _give_coins(address: Address, settings: Settings) -> None:
    """Have the development nodes on this machine, which give coins to any address, give one to the wallet."""
    urls = [url for chain in load_chains(settings.chains_file).values() for url in chain.rpc_urls]
    for url in urls:
        if urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"}:
            call = {"method": "hardhat_setBalance", "params": [address, hex(10**18)]}  # anvil accepts it too
            body = json.dumps({"jsonrpc": "2.0", "id": 1, **call}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body))}
            with suppress(OSError):
                ask(url, method="POST", pieces=[body], headers=headers, seconds_max=_COINS_SECONDS_MAX)


def _step(name: str, outcome: str) -> None:
    output.print_text(f"  {name:<12} {outcome}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
