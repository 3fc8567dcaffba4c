"""A registry in this process with relayers of it, clocks that jump, and functions that do as told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, register
from conftest import NOW_MS, Clock
from intent_bodies import operations_body
from muniment.client import AsyncRegistry, Retry, Unreachable
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.texts import Engine
from muniment.protocol.runs.types import NewRun, NewRunOutput, RunReason
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import encode
from muniment.relayer.clock import RegistryClock
from muniment.relayer.events.runs import EventRuns
from muniment.relayer.figures import Figures
from muniment.relayer.journal.entries import Entry
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Following
from muniment.relayer.lives.logged_ends import LoggedEnds
from muniment.relayer.loop import Relayer
from muniment.relayer.outbox.outbox import Publishing
from muniment.relayer.outbox.publication import Publication, Published
from muniment.relayer.runner.caps import Caps
from muniment.relayer.runner.funds import Funds
from muniment.relayer.runner.pinning import Pins
from muniment.relayer.runner.results import Made, NotYet
from muniment.relayer.schedule.due import Due
from muniment.relayer.settings import RelayerSettings, Served
from muniment.service.app import Application
from muniment.service.context import Context
from operator_client import FAR_DEADLINE, SETTLER, operator_key
from without_server import InProcess

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# The first whole minute after the time of the tests.
TICK = NOW_MS - NOW_MS % MINUTE + MINUTE
ENGINE = Engine("a test")


def nothing(due: Due) -> Made:
    return Made(_run(due, "nothing"), [])


def stopped(due: Due, code: Any = "abort") -> Made:
    return Made(replace_run(_run(due, "stopped"), reason=RunReason(code=code)), [])


def intent(due: Due, number: int = 1, deadline: int = FAR_DEADLINE) -> AnyNewIntent:
    """An intent of generation 2, whose nonce follows from what was due."""
    members = {
        "feePayer": Wallet(71).address, "settler": SETTLER, "deadline": str(deadline), "maxFees": [],
        "triggerSig": str(due.sig),
        "operations": [{"opType": 1, "user": Wallet(71).address, "data": f"0x{number:02x}", "events": []}],
    }  # fmt: skip
    nonce = f"0x{due.timestamp_ms:056x}{number:08x}"
    return decode_record({**operations_body(number, **members), "nonce": nonce}, AnyNewIntent)


def intent_body_of(new: AnyNewIntent) -> dict[str, Any]:
    """An intent as JSON, without the members that are not set."""
    return {name: value for name, value in json.loads(encode(new)).items() if value is not None}


def intents(*numbers: int, deadline: int = FAR_DEADLINE) -> Callable[[Due], Made]:
    def made(due: Due) -> Made:
        found = [intent(due, number, deadline) for number in numbers]
        outputs = [NewRunOutput(hash=Bytes32.from_raw(intent_hash(each))) for each in found]
        return Made(replace_run(_run(due, "intents"), outputs=outputs), found)

    return made


def _run(due: Due, result: Any) -> NewRun:
    return NewRun(
        trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
        timestamp=due.timestamp_ms, result=result, engine=ENGINE,
    )  # fmt: skip


def replace_run(run: NewRun, **members: Any) -> NewRun:
    return NewRun(**{**{name: getattr(run, name) for name in run.__struct_fields__}, **members})


@dataclass
class Told:
    """Functions that do as told; `ran` has what was run, `meanwhile` happens during a run."""

    does: Callable[[Due], Made | NotYet] = nothing
    meanwhile: Callable[[], Awaitable[object]] | None = None
    ran: list[int] = field(default_factory=list[int])

    async def run(self, trigger: Trigger, due: Due) -> Made | NotYet:
        assert trigger.sig == due.sig
        self.ran.append(due.timestamp_ms)
        if self.meanwhile is not None:
            await self.meanwhile()
        return self.does(due)


class Silent:
    """A registry that does not answer what is published."""

    async def publish(self, entry: Entry) -> Published:
        raise Unreachable(f"nobody takes {entry.sig}", sent=False)


@dataclass
class Heard:
    """Publishes, and tells when something was published."""

    publication: Publishing
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self, entry: Entry) -> Published:
        published = await self.publication.publish(entry)
        self.done.set()
        return published


@dataclass
class World:
    """A registry with an operator's key, and relayers of it."""

    client: httpx2.AsyncClient
    # That of the relayers: it can stream refusals, and compares nothing.
    plain: httpx2.AsyncClient
    context: Context
    clock: Clock
    key: str
    directory: Path
    cid: str
    told: Told = field(default_factory=Told)
    own_ms: int = 0
    registry_ms: int = 0

    def at(self, now_ms: int, own_ms: int | None = None) -> None:
        """Set the time of the registry, and of the relayer's machine if it is another."""
        self.clock.now_ms = self.registry_ms = now_ms
        self.own_ms = now_ms if own_ms is None else own_ms

    async def sign(self, number: int = 1, **members: Any) -> str:
        given: dict[str, Any] = {"config": cron(schedule="* * * * *"), "wallet": Wallet(number), **members}
        return (await register(self.client, TriggerDraft(self.cid, **given)))["sig"]

    @asynccontextmanager
    async def relayer(self, name: str = "relayer", key: str = "", **settings: Any) -> AsyncGenerator[Relayer]:
        served = settings.pop("served", Served(None, None, None))
        given = RelayerSettings(registry="http://test", served=served, **settings)
        looks = count()

        def tick() -> float:
            return self.registry_ms / 1_000 + next(looks) / 1_000_000

        clock = RegistryClock(lambda: self.own_ms, tick)

        async def ask_time() -> None:
            clock.hear(formatdate(self.registry_ms / 1_000, usegmt=True))

        retry = Retry(tries=1)
        with Journal.open(self.directory / f"{name}.db") as journal:
            registry = AsyncRegistry("http://test", operator_key=key or self.key, http=self.plain, retry=retry)
            following = Following(
                registry=registry, journal=journal, served=served, own_ms=lambda: self.own_ms,
                ends=LoggedEnds(registry=registry, journal=journal, protocol="Mimic", own_ms=lambda: self.own_ms),
            )  # fmt: skip

            async def is_canonical(_: object, __: int) -> bool:
                return True

            publication = Publication(
                registry=registry, asked_again=following.asked_again, now_ms=clock.likely_ms,
                is_canonical=is_canonical,
            )  # fmt: skip
            events = EventRuns(
                chains={}, pins=Pins(nodes={}, now_ms=lambda: self.own_ms), registry=registry, following=following,
                journal=journal, settings=given, figures=Figures(), own_ms=lambda: self.own_ms,
            )  # fmt: skip
            yield Relayer(
                events=events, settings=given, journal=journal, following=following, running=self.told,
                publishing=publication,
                clock=clock, caps=Caps(registry=registry, settings=given, signer_of=following.signer_of),
                figures=Figures(), engine=ENGINE,
                funds=Funds(nodes={}, figures=Figures(), registry=registry), ask_time=ask_time, steady_s=tick, places=4,
            )  # fmt: skip

    async def step(self, now_ms: int, own_ms: int | None = None, **given: Any) -> bool:
        """One step of a relayer that was started anew."""
        self.at(now_ms, own_ms)
        async with self.relayer(**given) as made:
            return await made.once()

    async def get(self, path: str, **parameters: Any) -> Any:
        return ok(await self.client.get(path, params=parameters)).json()

    async def runs(self, sig: str) -> list[tuple[str, int]]:
        """Result and time of the trigger's runs in the registry, the oldest first."""
        found = await self.get("/executions", triggerSig=sig, sort=1, limit=100)
        return [(each["result"], each["timestamp"]) for each in found]


@pytest.fixture
async def world(client: httpx2.AsyncClient, app: Application, clock: Clock, tmp_path: Path) -> AsyncIterator[World]:
    cid = await deploy(client)
    transport = InProcess(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as plain:
        made = World(client, plain, app.context, clock, await operator_key(app.context), tmp_path, cid)
        made.at(NOW_MS)
        yield made
