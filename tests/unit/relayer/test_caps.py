"""The caps of a day: what the registry counts for one day is not taken for another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.typed_data import ONCE
from muniment.relayer.runner.caps import Caps
from muniment.relayer.schedule.due import Plan
from muniment.relayer.settings import RelayerSettings, Served

SIG = Signature.parse("0x" + "11" * 64 + "1b")
DAY_MS = 86_400_000
PLAN = Plan(sig=SIG, kind=ONCE, created_ms=0, end_ms=0, delta_ms=0)


async def test_intents_that_are_counted_over_midnight_are_those_of_the_day_before() -> None:
    async def list_runs(**_: object) -> AsyncIterator[Any]:
        assert await caps.reached(PLAN, DAY_MS) is None  # another run, after midnight
        yield SimpleNamespace(trigger_sig=SIG, outputs=[None, None])

    registry: Any = SimpleNamespace(runs=SimpleNamespace(list=list_runs))
    settings = RelayerSettings(registry="http://test", served=Served(None, None, None), intents_per_day_max=2)
    caps = Caps(registry=registry, settings=settings, signer_of=lambda _: None, relayer="0x" + "22" * 20)
    await caps.reached(PLAN, DAY_MS - 1)
    assert await caps.reached(PLAN, DAY_MS + 1) is None
