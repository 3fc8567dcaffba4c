"""A relayer with all that it works with: the registry, the journal, the sandbox, the nodes."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import httpx2

from muniment.client import AsyncRegistry, Retry
from muniment.client.tls import tls_context
from muniment.protocol.runs.texts import Engine
from muniment.relayer.caps import Caps
from muniment.relayer.clock import RegistryClock
from muniment.relayer.figures import Figures
from muniment.relayer.following import Following
from muniment.relayer.journal import Journal
from muniment.relayer.loop import Publishing, Relayer
from muniment.relayer.publication import Content, Publication, Published

if TYPE_CHECKING:
    from muniment.guest.sandbox import Sandbox
    from muniment.protocol.runs.payloads import EventPayload
    from muniment.relayer.journal import Entry
    from muniment.relayer.settings import RelayerSettings

# The feed waits 25 s for an event.
_TIMEOUT_S: Final = 30.0
# A run has other turns: what fails is tried again by the loop, and not by the client for minutes.
_RETRY: Final = Retry(tries=3, seconds_max=20.0)
# A run waits for nodes and for the registry most of its time.
_PLACES_PER_CPU: Final = 4


def engine() -> Engine:
    """The program that makes runs, as records name it."""
    return Engine.parse(f"muniment {version('muniment')}, wasmtime {version('wasmtime')}")


def own_ms() -> int:
    """The clock of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def connected(settings: RelayerSettings, clock: RegistryClock) -> AsyncGenerator[AsyncRegistry]:
    """A client of the registry, whose answers tell `clock` the time."""
    async with (
        httpx2.AsyncClient(
            timeout=_TIMEOUT_S, verify=tls_context(), event_hooks={"response": [clock.heard]}
        ) as http,
        AsyncRegistry(
            settings.registry, operator_key=settings.operator_key, protocol=settings.protocol, retry=_RETRY, http=http,
            timeout_s=_TIMEOUT_S,
        ) as registry,
    ):  # fmt: skip
        yield registry


@asynccontextmanager
async def assembled(
    settings: RelayerSettings, sandbox: Sandbox, *, publishing: Publishing | None = None
) -> AsyncGenerator[Relayer]:
    """A relayer for these settings. With `publishing` nothing is recorded: the journal is in memory.

    Raises `JournalError`.
    """
    clock = RegistryClock(own_ms, time.monotonic)
    async with connected(settings, clock) as registry:
        with ExitStack() as stack:
            opening = Journal.open(settings.state) if publishing is None else Journal.in_memory()
            journal = stack.enter_context(opening)
            following = Following(registry=registry, journal=journal, served=settings.served, own_ms=own_ms)
            yield Relayer(
                settings=settings, journal=journal, following=following, running=FunctionRunning(following=following, sandbox=sandbox, settings=settings),
                publishing=publishing or Publication(
                    registry=registry, asked_again=following.asked_again, now_ms=own_ms, is_canonical=_always,
                ),
                clock=clock, caps=Caps(registry=registry, settings=settings), figures=Figures(), engine=engine(),
                ask_time=registry.events.begin, steady_s=time.monotonic,
                places=_PLACES_PER_CPU * (os.cpu_count() or 1),
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Printing:
    """Publishes nothing: `show` gets what would be published."""

    show: Callable[[object], None]

    async def publish(self, entry: Entry) -> Published:
        """Show a run with its intents."""
        run, intents = Content.read(entry.body)
        self.show({"run": run, "intents": intents})
        return Published(None)


async def _always(_event: EventPayload) -> bool:
    return True
