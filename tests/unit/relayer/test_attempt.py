"""One attempt at a run: its forms are made beside the other work of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from muniment.chains.catalogue import SECOND_SETTLER
from muniment.chains.settlers import KNOWN
from muniment.guest.types import Compiled, GuestIntent, GuestRun
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.relayer.attempt import Consent, Function, Settling, attempt
from muniment.relayer.due import Due
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


async def test_others_have_turns_while_the_intents_of_a_run_are_encoded() -> None:
    turns = begun = 0

    class Generations:
        async def of(self, _: Iterable[Address]) -> Any:
            nonlocal begun
            begun = turns
            return KNOWN

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    run, made = await attempt(
        DUE, Consent(Address.parse(USER), {}, 1), Function(Compiled(sha256=b""), {}), sandbox=cast("Any", _Sandbox()),
        answers=cast("Any", None), settling=Settling(settlers=[], generations=cast("Any", Generations())),
    )  # fmt: skip
    ended = turns
    beside.cancel()
    assert (run.result, len(made)) == ("intents", 1)
    assert ended > begun
