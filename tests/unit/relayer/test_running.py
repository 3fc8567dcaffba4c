"""The time that one run may take, with its answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

import guest_functions
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import FIRST
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import Engine
from muniment.protocol.runs.types import RunToken
from muniment.protocol.triggers.types import Trigger
from muniment.relayer.runner.attempt import Settling
from muniment.relayer.runner.results import Made, NotYet
from muniment.relayer.runner.running import RUN_SECONDS_MAX, FunctionRunning
from muniment.relayer.schedule.due import Due
from muniment.relayer.settings import RelayerSettings, Served
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture

SETTLER, TOKEN = (Address.parse("0x" + pair * 20) for pair in ("22", "cd"))
GIVEN = {"chainId": 8453, "token": str(TOKEN), "amount": "1", "recipient": str(TOKEN), "fee": "1", "above": "1"}
# On a slow machine the time is over before the function asks, which ends alike.
SECONDS = 1
DUE = Due(Signature.parse("0x" + "11" * 64 + "1b"), 0, time_payload(60_000), 60_000, 120_000)


@pytest.mark.usefixtures("warm_sandbox")
async def test_a_run_whose_answers_take_too_long_ends_incomplete_and_frees_its_place() -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async def generations(_: object) -> Any:
        return {SETTLER: FIRST}

    async def bundle(trigger: Trigger) -> Any:
        name = "balance" if trigger.input else "nothing"
        made = guest_functions.bundle(name)
        return SimpleNamespace(wasm=made.wasm, manifest=made.manifest)

    async with Sandbox.open() as sandbox:

        def running(seconds_max: float) -> FunctionRunning:
            return FunctionRunning(
                settings=RelayerSettings(registry="", served=Served(None, None, None)), sandbox=sandbox,
                following=cast("Any", SimpleNamespace(bundle=bundle)), engine=Engine("tests"),
                pins=cast("Any", SimpleNamespace(nodes={8453: None}, pin=never)), seconds_max=seconds_max,
                settling=Settling(
                    settlers=[RunToken(address=SETTLER, chain_id=8453)],
                    generations=cast("Any", SimpleNamespace(of=generations)),
                ),
            )  # fmt: skip

        trigger: Trigger = decode_record({**Trigger.example, "input": GIVEN}, Trigger)
        ended = await running(SECONDS).run(trigger, DUE)
        assert ended == NotYet("no-answer", f"the run and its answers took longer than {SECONDS} seconds")
        other: Trigger = decode_record({**Trigger.example, "input": {}}, Trigger)
        found = await running(RUN_SECONDS_MAX).run(other, DUE)
        assert isinstance(found, Made)
        assert found.run.result == "nothing"
