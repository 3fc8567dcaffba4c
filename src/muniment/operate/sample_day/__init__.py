"""A day of sample data for a demo: functions, triggers, runs and intents of the twenty-four hours before now.

Everything enters as clients send it: signed by wallets, checked by the service's own rules, over its HTTP interface. No
interface takes the time of a record, so an application of this process answers, whose clock begins a day ago and walks
to now. It writes to a database of its own, which is copied into the registry in one transaction: a day that was
interrupted leaves nothing there. A running service never has such a clock.

The wallets are the published development accounts of anvil and Hardhat, so nobody takes the records for real ones.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
import shutil
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

import httpx2

from muniment.client import AsyncRegistry, KeySigner
from muniment.operate import copy_blocks, copy_database, databases
from muniment.operate.in_process import InProcess
from muniment.operate.sample_day.records import (
    ADDRESSES,
    DAY_MS,
    DEVELOPER,
    KEYS,
    RELAYER,
    TRIGGERS,
    SampleTrigger,
    functions,
    occurrence,
    time_of,
)
from muniment.protocol.forms import decode_record
from muniment.protocol.runs.types import NewRun
from muniment.service.app import Application, build_context
from muniment.service.blocks import place_of_blocks
from muniment.service.resources import operators
from muniment.service.storage.registry_copy import TABLES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from muniment.client import Bundle
    from muniment.protocol.evm.address import Address
    from muniment.service.context import Context
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Database, Transaction

# The folder of the data directory where a day is written before it is copied.
STAGED: Final = "sample-day"
# The operator of a demo: it records the runs and the intents of the day, and those of the demo's relayer.
_OPERATOR: Final = "demo-relayer"
# No server is in between, so no request goes there, and a bare nonce can only be that of this registry.
_URL: Final = "http://sample-day.invalid"


def add_sample_day(settings: Settings, transfer: Bundle) -> str:
    """Add the day that ends now to the registry of the settings, unless it has a row; what was done, in words.

    `transfer` is one of its functions. No service uses the data directory meanwhile. Raises `Refusal`, `ValueError` and
    `OSError`.
    """
    if settings.migrates_at_start:
        databases.migrate(settings, patience_s=databases.START_PATIENCE_S)
    # Times of records follow the order in which they are stored, and a registry with records may be in earnest use.
    if not databases.run(settings, _is_empty):
        return "It has records already, so no sample data were added."
    staged = settings.data_dir / STAGED
    shutil.rmtree(staged, ignore_errors=True)  # of a demo that was killed
    try:
        made = asyncio.run(_write(settings, staged, transfer))
        _copy(settings, staged)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return (
        f"Sample data of the last 24 hours: {made}.\n"
        "Their wallets are test accounts whose keys everybody knows: send them nothing."
    )


async def renew_key(database: Database, now_ms: int, address: Address | None = None) -> str:
    """A new key for the operator of the demo, which is added if there is none yet, in place of the one that it had.

    `address` names it publicly; with None it keeps the address that it had.
    """
    key = operators.new_key(secrets.token_bytes)

    async def renew(tx: Transaction) -> None:
        with suppress(ValueError):  # the first demo of this registry
            await operators.revoke(tx, _OPERATOR, now_ms)
        await operators.add(tx, _OPERATOR, key, now_ms, address)

    await database.write(renew)
    return key


async def _is_empty(database: Database) -> bool:
    return not any([await database.fetch(f"SELECT 1 FROM {table.name} LIMIT 1") for table in TABLES])


def _copy(settings: Settings, staged: Path) -> None:
    """Copy the day to where the registry is: first the blocks, which nobody sees before the rows."""
    blocks = place_of_blocks(settings.blocks_url, settings.database_url)
    copy_blocks.copy(
        settings, f"file://{(staged / 'blocks').absolute()}", blocks,
        on_progress=None, on_finding=lambda _: None, is_stopping=lambda: False,
    )  # fmt: skip
    copy_database.copy(
        settings, f"sqlite:///{(staged / 'muniment.db').absolute()}", settings.database_url,
        blocks_url=None, on_progress=lambda _done, _all: None, on_finding=lambda _: None,
    )  # fmt: skip


async def _write(settings: Settings, staged: Path, transfer: Bundle) -> str:
    """Write the day into a registry of its own, in the folder `staged`; what it has, in words."""
    # At no public URL, and without the limits of clients.
    own = replace(
        settings, data_dir=staged, database_url="sqlite:///muniment.db", database_read_urls="", blocks_url="file:",
        public_url="", bare_nonces=True, rate_limit_client="off", rate_limit_login="off", rate_limit_owner="off",
        rate_limit_stop="off",
    )  # fmt: skip
    clock = [time.time_ns() // 1_000_000 - DAY_MS]
    context = build_context(own, now_ms=lambda: clock[0])
    try:
        await context.database.migrate()
        key = await renew_key(context.database, clock[0], ADDRESSES[RELAYER])
        return await _Day(context, clock, key).live(functions(transfer))
    finally:
        for resource in (context.outgoing, context.outgoing_webhooks, context.database):
            await resource.close()


class _Day:
    """The day that begins at the time of `clock`, which goes on as it is written."""

    def __init__(self, context: Context, clock: list[int], operator_key: str) -> None:
        self._context, self._clock, self._begin_ms = context, clock, clock[0]
        self._operator_key = operator_key
        self._http = httpx2.AsyncClient(transport=InProcess(Application(context)))
        # What is still to come, each at a time; the number decides between equal times.
        self._steps: list[tuple[int, int, Callable[[], Awaitable[object]]]] = []
        self._planned = count()
        self._made: Counter[str] = Counter()

    async def live(self, deployed: dict[str, Bundle]) -> str:
        """Do all that happens, in the order of time; what it was, in words."""
        for place, bundle in enumerate(deployed.values()):
            deploy = self._registry(DEVELOPER).functions.deploy
            self._plan(time_of(self._begin_ms, 3 * place), "functions", partial(deploy, bundle))
        for trigger in TRIGGERS:
            register = partial(self._register, trigger, deployed[trigger.function].cids()[0])
            self._plan(time_of(self._begin_ms, trigger.minute), "triggers", register)
        while self._steps:
            self._clock[0], _, act = heapq.heappop(self._steps)
            await act()
        return ", ".join(f"{self._made[kind]} {kind}" for kind in ("functions", "triggers", "runs", "intents"))

    async def _register(self, trigger: SampleTrigger, cid: str) -> None:
        """Register a trigger, and plan what follows from it."""
        registry, operator = self._registry(trigger.owner), self._registry()
        sig = (await registry.triggers.create(trigger.draft(cid, self._begin_ms))).sig
        if trigger.ended is not None:
            self._plan(time_of(self._begin_ms, trigger.ended), "", partial(registry.triggers.deactivate, [sig]))
        for time_ms, outcome in trigger.times(self._begin_ms):
            made = occurrence(trigger, sig, time_ms, outcome, self._context.settings.protocol_name)
            if made.run is not None:
                run: NewRun = decode_record({**made.run}, NewRun)
                self._plan(time_ms + 1_300, "runs", partial(operator.runs.record, run))
            for at_ms, known in made.stages:
                self._plan(at_ms, "", partial(operator.intents.put, known))
            self._made["intents"] += 1

    def _plan(self, at_ms: int, kind: str, act: Callable[[], Awaitable[object]]) -> None:
        self._made[kind] += 1
        heapq.heappush(self._steps, (at_ms, next(self._planned), act))

    def _registry(self, wallet: int | None = None) -> AsyncRegistry:
        """The registry as the operator sees it, or as a wallet does."""
        signer = None if wallet is None else KeySigner(KEYS[wallet])
        key = self._operator_key if wallet is None else None
        name = self._context.settings.protocol_name
        return AsyncRegistry(_URL, http=self._http, protocol=name, signer=signer, operator_key=key, bare_nonce=True)
