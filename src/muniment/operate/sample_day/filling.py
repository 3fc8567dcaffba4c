"""Writes the sample day, or what an interrupted filling has not written of it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx2

from muniment.client import AsyncRegistry, KeySigner, TriggerNotFound
from muniment.operate.in_process import InProcess
from muniment.operate.sample_day.intents import SampleIntent, intents_alone, run_of, runs_of
from muniment.operate.sample_day.operator import renew_key
from muniment.operate.sample_day.triggers import ADDRESSES, TRIGGERS, SampleFunction, SampleTrigger, functions, time_of
from muniment.operate.sample_day.wallets import KEYS, RELAYER
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.lifecycle import INTENT_MOVES, reachable
from muniment.protocol.runs.types import NewRun
from muniment.service.app import Application, build_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.client import Bundle
    from muniment.service.context import Context
    from muniment.service.running.settings import Settings

# No server is in between, so no request goes there.
_URL: Final = "http://sample-day.invalid"


class Step(NamedTuple):
    """Something that a client does at a time, in milliseconds since 1970. `number` decides between equal times."""

    at_ms: int
    number: int
    act: Callable[[], Awaitable[object]]


@dataclass(slots=True)
class WalkingClock:
    """A clock that goes where it is told, never back. Milliseconds since 1970."""

    ms: int

    def read(self) -> int:
        """The time."""
        return self.ms

    def go_to(self, ms: int) -> None:
        """Go on to a later time."""
        self.ms = max(self.ms, ms)


class Filled(NamedTuple):
    """How many records of each kind the day has."""

    functions: int
    triggers: int
    runs: int
    intents: int


def fill(settings: Settings, transfer: Bundle, begin_ms: int) -> Filled:
    """Write the day that begins at `begin_ms`, or what an interrupted filling of this day has not written.

    `transfer` is one of its functions. The database has its migrations. Raises `Refusal` and `OSError`.
    """
    return asyncio.run(_fill(settings, transfer, begin_ms))


async def _fill(settings: Settings, transfer: Bundle, begin_ms: int) -> Filled:
    clock = WalkingClock(begin_ms)
    async with _application(settings, clock) as application:
        key = await renew_key(application.context.database, begin_ms, ADDRESSES[RELAYER])
        day = _Day(
            begin_ms=begin_ms, clock=clock, http=httpx2.AsyncClient(transport=InProcess(application)),
            protocol=settings.protocol_name, operator_key=key, transfer=transfer,
            settlers=_settlers(application.context),
        )  # fmt: skip
        return await day.live()


@asynccontextmanager
async def _application(settings: Settings, clock: WalkingClock) -> AsyncGenerator[Application]:
    """The application of the settings with this clock, at no public URL, and without the limits of clients."""
    own = replace(
        settings, public_url="",
        rate_limit_client="off", rate_limit_login="off", rate_limit_owner="off", rate_limit_stop="off",
    )  # fmt: skip
    context = build_context(own, now_ms=clock.read)
    try:
        yield Application(context)
    finally:
        for resource in (context.outgoing, context.outgoing_webhooks, context.database):
            await resource.close()


def _settlers(context: Context) -> list[dict[str, object]]:
    """The newest settlement contract of each chain, as a relayer tells them to functions."""
    chains = sorted(context.chains.values(), key=lambda chain: chain.id)
    return [{"address": str(chain.settlers[0]), "chainId": chain.id} for chain in chains if chain.settlers]


@dataclass(kw_only=True, slots=True)
class _Day:
    """The day that begins at `begin_ms`, while it is written."""

    begin_ms: int
    clock: WalkingClock
    http: httpx2.AsyncClient
    protocol: str
    operator_key: str
    transfer: Bundle
    settlers: list[dict[str, object]]
    # The CIDs and the versions of functions, by name.
    deployed: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    # The statuses of intents that an interrupted filling has recorded, by hash.
    known: dict[str, str] = field(default_factory=dict[str, str])
    # What is still to come: a heap.
    steps: list[Step] = field(default_factory=list[Step])
    planned: int = 0
    runs: int = 0
    intents: int = 0

    async def live(self) -> Filled:
        """Do all that happens, in the order of time."""
        # At the begin of the day no deadline has passed, so no intent reads as expired.
        self.known = {each.hash: each.status async for each in self._registry().intents.list()}
        for name, function in functions(self.transfer).items():
            self._plan(time_of(self.begin_ms, function.minute), partial(self._deploy, name, function))
        for name, trigger in TRIGGERS.items():
            self._plan(time_of(self.begin_ms, trigger.minute), partial(self._register, name, trigger))
        while self.steps:
            step = heapq.heappop(self.steps)
            self.clock.go_to(step.at_ms)
            await step.act()
        return Filled(len(self.deployed), len(TRIGGERS), self.runs, self.intents)

    def _plan(self, at_ms: int, act: Callable[[], Awaitable[object]]) -> None:
        self.planned += 1
        heapq.heappush(self.steps, Step(at_ms, self.planned, act))

    def _registry(self, wallet: int | None = None) -> AsyncRegistry:
        """The registry as the operator sees it, or as a wallet does."""
        signer = None if wallet is None else KeySigner(KEYS[wallet])
        key = self.operator_key if wallet is None else None
        return AsyncRegistry(_URL, http=self.http, protocol=self.protocol, signer=signer, operator_key=key)

    async def _deploy(self, name: str, function: SampleFunction) -> None:
        deployed = await self._registry(function.developer).functions.deploy(function.bundle)
        self.deployed[name] = (deployed.cid, function.version)

    async def _register(self, name: str, trigger: SampleTrigger) -> None:
        """Register a trigger, and plan what follows from it."""
        registry = self._registry(trigger.owner)
        signed = await registry.triggers.sign(trigger.draft(*self.deployed[trigger.function], self.begin_ms))
        try:
            await registry.triggers.get(signed.sig, signer=signed.signer)
        except TriggerNotFound:
            await registry.triggers.create(signed)
        if trigger.ended is not None:
            self._plan(time_of(self.begin_ms, trigger.ended), partial(registry.triggers.deactivate, [signed.sig]))
        for due in runs_of(name, self.begin_ms):
            self.runs += 1
            run = run_of(due, signed.sig, self.settlers)
            record: NewRun = decode_record(run.body, NewRun)
            self._plan(run.at_ms, partial(self._registry().runs.record, record))
            self._plan_intent(run.intent)
        for intent in intents_alone(name, signed.sig, self.begin_ms):
            self._plan_intent(intent)

    def _plan_intent(self, intent: SampleIntent) -> None:
        """Plan the writes of an intent that an interrupted filling has not made.

        A write is one transaction, and those of the recorded status change nothing when they are repeated.
        """
        self.intents += 1
        recorded = self.known.get(intent.hash_text, "created")
        passed = {each for each in INTENT_MOVES if recorded in reachable(INTENT_MOVES, each)}
        for stage in intent.stages(self.protocol):
            if stage.body.get("status", "created") not in passed:
                self._plan(stage.at_ms, partial(self._registry().intents.put, stage.body))
