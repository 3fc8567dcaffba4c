"""What the tests of witnesses share: witnesses that know the log, its settings, turns of an integrator that asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tlog_world import add_triggers, epoch_of

from applications import another_process
from conftest import Clock
from muniment.protocol.log.notes import parse_note, verified
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.store import Epoch
from muniment.service.resources.log.witnesses import Outcome
from muniment.service.running.metrics.exposition import render
from scraped import Scraped
from witness_site import Reply, WitnessSite


async def grow(context: Context, clock: Clock, integrator: Integrator, count: int = 0, first: int = 1) -> Epoch:
    """The epoch after one more turn, with so many more triggers."""
    await add_triggers(context, count, first)
    clock.advance(seconds=1)
    await integrator.turn()
    return await epoch_of(context)


@asynccontextmanager
async def restarted(context: Context) -> AsyncGenerator[Integrator]:
    """The integrator of another process, which remembers no witness."""
    async with another_process(context) as other:
        made = Integrator(other)
        try:
            yield made
        finally:
            await made.close()


def signers(epoch: Epoch, witnesses: list[WitnessSite]) -> dict[int, int]:
    """The witnesses that cosigned the checkpoint which is shown, by their place, each with its time."""
    assert epoch.note
    keys = [site.key.verifier for site in witnesses]
    return {keys.index(key): at_s for key, at_s in verified(parse_note(epoch.note.encode()), keys).items()}


def answers(context: Context, witness: str) -> dict[str, float]:
    """How often a witness gave which answer."""
    found, name = Scraped(render(context.metrics).decode()), "tlog_witness_answers_total"
    counts = {each.value: found.value(name, witness=witness, outcome=each.value) for each in Outcome}
    assert None not in counts.values()
    return {outcome: count for outcome, count in counts.items() if count}


def waits_once(site: WitnessSite, body: bytes) -> Reply:
    """The first request waits until the witness is released; those that come meanwhile are answered at once."""
    site.lie = None
    site.released.wait(600)
    return site.add(body)


@asynccontextmanager
async def one_thinks(clock: Clock, integrator: Integrator, site: WitnessSite) -> AsyncGenerator[None]:
    """A turn of `integrator`, a minute later, waits for a witness, which answers at the end of what is inside."""
    clock.advance(seconds=61)
    site.lie = waits_once
    turn = asyncio.create_task(integrator.turn())
    await until_it_is_asked(site, 2)
    async with asyncio.timeout(60):
        while site.lie is not None:  # from here on others are answered at once
            await asyncio.sleep(0.01)
    yield
    site.released.set()
    await turn


async def until_it_is_asked(site: WitnessSite, times: int) -> None:
    async with asyncio.timeout(60):
        while len(site.bodies) < times:
            await asyncio.sleep(0.01)
