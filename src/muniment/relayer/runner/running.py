"""Runs the function of a trigger that is due, and makes the record of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muniment.client.proof import read_manifest_bytes
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.runner.record import recorded_run
from muniment.relayer.runner.results import Made, NotYet

if TYPE_CHECKING:
    from muniment.chains.prices import PriceSource
    from muniment.guest.sandbox import Sandbox
    from muniment.guest.types import Answer, Question
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.lives.following import Following
    from muniment.relayer.runner.pinning import Pins
    from muniment.relayer.schedule.due import Due
    from muniment.relayer.settings import RelayerSettings

T = TypeVar("T")

# What a run may wait, all together: for its bundle, and for its answers. A question has five seconds at each node; but
# schedules have a tick a minute, and a run that waits longer would keep the next one waiting. What the function itself
# computes is not in it: that ends with its fuel.
RUN_SECONDS_MAX: Final = 60.0


class _Patience:
    """The seconds that a run may still wait."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Raises `TimeoutError` when no time is left."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        finally:
            self._seconds -= loop.time() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRunning:
    """Runs functions in a sandbox, with answers from nodes. `api` gives prices in place of the feeds on chain."""

    settings: RelayerSettings
    following: Following
    sandbox: Sandbox
    pins: Pins
    settling: Settling
    engine: Engine
    api: PriceSource | None = None
    seconds_max: float = RUN_SECONDS_MAX

    async def run(self, trigger: Trigger, due: Due) -> Made | NotYet:
        """Run the function of a trigger, whose bundle is proved by its CID. Raises the errors of the client."""
        try:
            return await self._run(trigger, due, _Patience(self.seconds_max))
        except TimeoutError:
            return NotYet("no-answer", f"the run and its answers took longer than {self.seconds_max:g} seconds")

    async def _run(self, trigger: Trigger, due: Due, patience: _Patience) -> Made | NotYet:
        bundle = await patience.wait(self.following.bundle(trigger))
        compiled = await patience.wait(self.sandbox.compile_module(bundle.wasm))
        function = Function(compiled, read_manifest_bytes(bundle.manifest).inputs)
        payload = read_payload(due.kind, due.payload)
        answers = Answers(
            pins=self.pins,
            timestamp_ms=due.timestamp_ms,
            event=payload if isinstance(payload, EventPayload) else None,
            api=self.api,
            has_prices=self.settings.price_source != "off",
        )  # fmt: skip

        async def answered(question: Question) -> Answer:
            return await patience.wait(answers(question))

        try:
            ran, made = await attempt(
                due, Consent.of(trigger), function, sandbox=self.sandbox, answers=answered, settling=self.settling
            )
        except Incomplete as error:
            return NotYet(error.code, error.text)
        run, intents = recorded_run(
            due, ran, made, answers=answers, settlers=self.settling.settlers, engine=self.engine,
            fee=self.settings.fee_of(trigger),
        )  # fmt: skip
        return Made(run, intents)
