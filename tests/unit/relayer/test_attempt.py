"""One attempt at a run: its forms are made beside the other work of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any, cast

import pytest

from muniment.chains.catalogue import SECOND_SETTLER
from muniment.chains.settlers import KNOWN
from muniment.guest.types import Compiled, GuestIntent, GuestRun
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.relayer.runner import attempt as attempts
from muniment.relayer.runner.attempt import Consent, Function, Settling
from muniment.relayer.runner.forms import Made, formed
from muniment.relayer.schedule.due import Due
from operation_data import BASE, RECIPIENT, USDC

USER = "0x" + "aa" * 20
TRANSFER = {"token": USDC, "amount": "1", "recipient": RECIPIENT}
INTENT = {
    "user": USER, "settler": SECOND_SETTLER, "nonce": "0x" + "c1" * 32, "deadline": "1", "maxFees": [],
    "chainId": BASE, "transfers": [TRANSFER],
}  # fmt: skip
DUE = Due(Signature.parse("0x" + "11" * 64 + "1b"), 0, time_payload(60_000), 60_000, 120_000)


class _Sandbox:
    """Runs nothing: each run sends one intent."""

    async def run_module(self, *_: object, **__: object) -> GuestRun:
        return GuestRun(result="intents", intents=(GuestIntent("transfer", INTENT),))


async def test_others_have_turns_while_the_intents_of_a_run_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    had_a_turn = threading.Event()
    beside: list[asyncio.Task[None]] = []

    async def other() -> None:
        had_a_turn.set()

    class Generations:
        async def of(self, _: Iterable[Address]) -> Any:
            beside.append(asyncio.create_task(other()))  # the last that happens before intents are encoded
            return KNOWN

    def encoded(*args: Any, **named: Any) -> tuple[GuestRun, list[Made]]:
        assert had_a_turn.wait(60)
        return formed(*args, **named)

    monkeypatch.setattr(attempts, "formed", encoded)
    run, made = await attempts.attempt(
        DUE, Consent(Address.parse(USER), {}, 1), Function(Compiled(sha256=b""), {}), sandbox=cast("Any", _Sandbox()),
        answers=cast("Any", None), settling=Settling(settlers=[], generations=cast("Any", Generations())),
    )  # fmt: skip
    assert (run.result, len(made)) == ("intents", 1)
    await asyncio.gather(*beside)
