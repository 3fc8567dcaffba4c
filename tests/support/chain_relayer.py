"""A relayer of a registry in this process, at the time of the newest block of a local chain."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from conftest import Clock
from muniment.client import AsyncRegistry, Retry
from muniment.protocol.runs.texts import Engine
from muniment.relayer.clock import RegistryClock
from muniment.relayer.events.runs import EventRuns
from muniment.relayer.figures import Figures
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives.following import Following
from muniment.relayer.lives.logged_ends import LoggedEnds
from muniment.relayer.loop import Relayer
from muniment.relayer.outbox.publication import Publication
from muniment.relayer.runner.caps import Caps
from muniment.relayer.runner.funds import Funds
from muniment.relayer.runner.pinning import Pins
from muniment.relayer.runner.results import Running
from muniment.relayer.settings import RelayerSettings, Served
from pinned_world import CHAIN_ID, Nodal

ENGINE = Engine("a test")
SETTINGS = RelayerSettings(registry="http://test", served=Served(None, None, None))


@dataclass(frozen=True, kw_only=True)
class ChainRelayer:
    """A relayer that asks the nodes `urls`, by default the chain's own.

    `running` gives what runs functions. `plain` leads to the registry; `key` and `path` are the relayer's own.
    """

    nodal: Nodal
    plain: httpx2.AsyncClient
    clock: Clock
    key: str
    path: Path
    running: Callable[[Following, Pins], Running]
    urls: tuple[str, ...] = ()
    pin_confirmations: int = 0

    def now_ms(self) -> int:
        return self.nodal.now_ms

    def to_newest(self) -> None:
        """Set all clocks to the time of the newest block."""
        newest_ms = 1_000 * self.nodal.newest_s
        self.nodal.now_s += max(0, newest_ms - self.nodal.now_ms) / 1_000
        self.clock.now_ms = self.nodal.now_ms = newest_ms

    async def step(self, confirmations: int = 0) -> bool:
        """One step of a relayer that is started anew; events have so many `confirmations`. Whether nothing is left."""
        self.to_newest()
        async with self.started(confirmations) as made:
            return await made.once()

    @asynccontextmanager
    async def started(self, confirmations: int = 0) -> AsyncGenerator[Relayer]:
        now_ms, clock = self.now_ms, RegistryClock(self.now_ms, lambda: 0.0)
        pins = self.nodal.pins(*self.urls, confirmations=self.pin_confirmations)

        async def ask_time() -> None:
            clock._told = (now_ms(), 0.0)

        with Journal.open(self.path) as journal:
            registry = AsyncRegistry("http://test", operator_key=self.key, http=self.plain, retry=Retry(tries=1))
            following = Following(
                registry=registry, journal=journal, served=SETTINGS.served, own_ms=now_ms,
                ends=LoggedEnds(registry=registry, journal=journal, protocol="Mimic", own_ms=now_ms),
            )  # fmt: skip
            watched = pins.nodes[CHAIN_ID].chain
            events = EventRuns(
                chains={CHAIN_ID: type(watched)(CHAIN_ID, "Local", confirmations=confirmations)}, pins=pins,
                registry=registry, following=following, journal=journal, settings=SETTINGS, figures=Figures(),
                own_ms=now_ms,
            )  # fmt: skip
            yield Relayer(
                settings=SETTINGS, journal=journal, following=following, running=self.running(following, pins),
                publishing=Publication(
                    registry=registry, asked_again=following.asked_again, now_ms=now_ms,
                    is_canonical=events.is_canonical,
                ),
                clock=clock, caps=Caps(registry=registry, settings=SETTINGS, signer_of=following.signer_of),
                figures=Figures(), engine=ENGINE,
                events=events, funds=Funds(nodes=pins.nodes, figures=Figures(), registry=registry),
                ask_time=ask_time, steady_s=lambda: self.nodal.now_ms / 1_000, places=16,
            )  # fmt: skip
