"""A relayer with all that it works with: the registry, the journal, the sandbox, the nodes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx2

from muniment.chains.catalogue import load_chains
from muniment.chains.prices import PriceApi
from muniment.client import AsyncRegistry, Retry
from muniment.guest.limits import CHILDREN_MAX
from muniment.outgoing import Outgoing
from muniment.relayer.clock import RegistryClock
from muniment.relayer.events.runs import EventRuns
from muniment.relayer.figures import Figures
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Following
from muniment.relayer.lives.logged_ends import LoggedEnds
from muniment.relayer.loop import Relayer
from muniment.relayer.outbox.outbox import Publishing
from muniment.relayer.outbox.publication import Publication, Published
from muniment.relayer.runner.attempt import Settling
from muniment.relayer.runner.caps import Caps
from muniment.relayer.runner.content import Content
from muniment.relayer.runner.context import settlers_of
from muniment.relayer.runner.engine import this_engine
from muniment.relayer.runner.funds import Funds
from muniment.relayer.runner.pinning import Pins, nodes_of
from muniment.relayer.runner.running import FunctionRunning
from muniment.relayer.runner.settlers import Generations
from muniment.relayer.schedule.turns import LEFT_BY_FUNCTION
from muniment.tls import tls_context

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.guest.sandbox import Sandbox
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.settings import RelayerSettings

_DAY_MS: Final = 86_400_000
# The feed waits 25 s for an event.
_TIMEOUT_S: Final = 30.0
# A run has other turns: what fails is tried again by the loop, and not by the client for minutes.
_RETRY: Final = Retry(tries=3, seconds_max=20.0)
# A run waits for nodes and for the registry most of its time.
_PLACES_PER_CPU: Final = 4


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
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal.open(settings.state) if publishing is None else Journal.in_memory())
        journal.events_kept_ms = settings.event_window_max_ms + _DAY_MS  # so that no event runs twice
        registry = await stack.enter_async_context(connected(settings, clock))
        outgoing = await stack.enter_async_context(Outgoing(allow_private=True))  # the operator wrote the URLs
        following = Following(
            registry=registry, journal=journal, served=settings.served, own_ms=own_ms,
            ends=LoggedEnds(registry=registry, journal=journal, protocol=settings.protocol, own_ms=own_ms),
        )  # fmt: skip
        chains = {
            chain_id: chain
            for chain_id, chain in load_chains(settings.chains_file).items()
            if settings.served.has_chain(chain_id)
        }
        nodes = nodes_of(outgoing, chains.values(), now_s=time.monotonic, chance=random.random)
        figures = Figures()
        pins = Pins(nodes=nodes, now_ms=own_ms)
        events = EventRuns(
            chains={chain_id: chains[chain_id] for chain_id in nodes}, pins=pins, registry=registry,
            following=following, journal=journal, settings=settings, figures=figures, own_ms=own_ms,
        )  # fmt: skip
        running = FunctionRunning(
            settings=settings, following=following, sandbox=sandbox, pins=pins, engine=this_engine(),
            settling=Settling(settlers=settlers_of(chains.values()), generations=Generations(nodes)),
            api=_api(settings, outgoing, chains),
        )  # fmt: skip
        yield Relayer(
            settings=settings, journal=journal, following=following, running=running,
            publishing=publishing or Publication(
                registry=registry, asked_again=following.asked_again, now_ms=clock.likely_ms,
                is_canonical=events.is_canonical,
            ),
            clock=clock, caps=Caps(registry=registry, settings=settings, signer_of=following.signer_of),
            figures=figures, engine=running.engine,
            events=events, funds=Funds(nodes=nodes, figures=figures, registry=registry if publishing is None else None),
            ask_time=registry.events.begin, steady_s=time.monotonic,
            places=min(CHILDREN_MAX, LEFT_BY_FUNCTION + _PLACES_PER_CPU * (os.cpu_count() or 1)),
        )  # fmt: skip


def _api(settings: RelayerSettings, outgoing: Outgoing, chains: Mapping[int, Chain]) -> PriceApi | None:
    if settings.price_source != "api":
        return None
    slugs = {chain_id: chain.price_slug for chain_id, chain in chains.items() if chain.price_slug is not None}
    return PriceApi(settings.price_url, outgoing, slugs)


@dataclass(frozen=True, slots=True)
class Printing:
    """Publishes nothing: `show` gets what would be published."""

    show: Callable[[object], None]

    async def publish(self, entry: Entry) -> Published:
        """Show a run with its intents."""
        run, intents = Content.read(entry.body)
        self.show({"run": run, "intents": intents})
        return Published(None)
