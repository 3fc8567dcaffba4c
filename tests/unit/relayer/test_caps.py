"""The caps of a day: what the registry counts for one day is not taken for another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

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


def sig(number: int) -> Signature:
    return Signature.parse(f"0x{number + 1:064x}{1:064x}1b")


def sender(signers: frozenset[Any] | None, **members: Any) -> Callable[..., Awaitable[int]]:
    """What sends intents of a trigger until a cap is reached: how many were sent.

    Each trigger has a signer of its own; the time is noon of the tenth day.
    """
    now_ms = 9 * DAY_MS + DAY_MS // 2
    settings = RelayerSettings(registry="http://test", served=Served(signers, None, None), **members)
    registry: Any = None
    caps = Caps(registry=registry, settings=settings, signer_of=lambda each: cast("Any", str(each)))

    async def send(number: int, age_ms: int = DAY_MS) -> int:
        plan = Plan(sig=sig(number), kind=ONCE, created_ms=now_ms - age_ms, end_ms=0, delta_ms=0)
        sent = 0
        while await caps.reached(plan, now_ms) is None:
            caps.count(cast("Any", SimpleNamespace(trigger_sig=plan.sig, outputs=[None])), now_ms)
            sent += 1
        return sent

    return send


async def test_a_signer_may_send_a_tenth_of_what_the_others_have_left() -> None:
    send = sender(None, intents_per_day_max=100)
    assert [await send(n) for n in range(5)] == [10, 9, 8, 7, 6]
    assert await send(0) == 0


async def test_young_triggers_leave_half_of_the_intents_to_the_others() -> None:
    send = sender(None, intents_per_day_max=100)
    young = [await send(n, DAY_MS - 1) for n in range(40)]
    assert sum(young) == 50
    assert await send(40) == 5


async def test_a_trigger_has_a_cap_of_intents_of_its_own() -> None:
    send = sender(frozenset[Any](), intents_per_trigger_and_day_max=7, intents_per_day_max=10)
    assert [await send(n, 0) for n in range(3)] == [7, 3, 0]
