"""Wiring: builds the `Context` from the settings."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar, cast

from muniment.chains.catalogue import Chain, load_chains
from muniment.chains.holdings import Holdings
from muniment.chains.prices import PriceApi, PriceSource, StaticPrices
from muniment.chains.token_lists import TokenLists
from muniment.chains.tokens import PACKAGED_LIST
from muniment.outgoing import Outgoing
from muniment.service.auth.secrets import RingFile, parse_secrets, ring_of
from muniment.service.blocks import block_directory, open_blocks, place_of_blocks
from muniment.service.context import Context
from muniment.service.http.admission import ClientAddresses
from muniment.service.resources.functions.store import find_inputs
from muniment.service.resources.log.witnesses import read_policy
from muniment.service.running.clock import STEADY_MS, Clock
from muniment.service.running.limits.disk import DiskReserve
from muniment.service.running.limits.limiter import Limiter
from muniment.service.running.metrics.recorder import DatabaseMetrics, Metrics
from muniment.service.running.tracing import open_tracer
from muniment.service.storage import open_database, open_replicated, sqlite_file
from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits
from muniment.service.storage.epoch import Epochs
from muniment.service.storage.service_number import ServiceNumber

if TYPE_CHECKING:
    from muniment.service.blocks.store import BlockStore
    from muniment.service.running.settings import Settings
    from muniment.service.running.tracing.tracer import Attributes, Tracer
    from muniment.service.storage.database import Database, Parameters, Reader, Row, Work

T = TypeVar("T")

_TABLE: Final = re.compile(r"\bFROM\s+(\w+)")
# The few dozen texts of the stores, times their forms.
_STATEMENTS_KEPT: Final = 512


class TracedReader:
    """A `Reader` that makes a span of each read."""

    def __init__(self, reader: Reader, tracer: Tracer, system: str) -> None:
        """`system` is the name of the engine in the semantic conventions (`db.system.name`)."""
        self._reader = reader
        self._tracer = tracer
        self._system = system

    def __getattr__(self, name: str) -> Any:
        """Everything else as the reader has it."""
        return getattr(self._reader, name)

    async def fetch(self, sql: LiteralString, parameters: Parameters = ()) -> list[Row]:
        """All rows."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch(sql, parameters)

    async def fetch_one(self, sql: LiteralString, parameters: Parameters = ()) -> Row | None:
        """The first row."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_one(sql, parameters)

    async def fetch_some(
        self, sql: LiteralString, parameters: Parameters, *, rows_max: int, bytes_max: int
    ) -> tuple[list[Row], int]:
        """The first rows."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_some(sql, parameters, rows_max=rows_max, bytes_max=bytes_max)

    async def fetch_slow(self, sql: LiteralString, parameters: Parameters = (), *, client: str = "") -> list[Row]:
        """All rows of a long read."""
        with self._tracer.child(*_described(sql, self._system)):
            return await self._reader.fetch_slow(sql, parameters, client=client)


class TracedDatabase(TracedReader):
    """A `Database` that makes a span of each read, and of each write: its wait, its statements and its commit."""

    async def write(self, work: Work[T], *, order: bytes = b"", urgent: bool = False) -> T:
        """Run `work`; its result once the transaction is durable."""
        with self._tracer.child("COMMIT", {"db.system.name": self._system, "db.operation.name": "COMMIT"}):
            return await cast("Database", self._reader).write(work, order=order, urgent=urgent)


def traced(
    database: Database, list_reader: Callable[[], Reader], tracer: Tracer
) -> tuple[Database, Callable[[], Reader]]:
    """The database and the readers of listings, with spans."""
    system = "postgresql" if database.is_shared else "sqlite"
    whole = cast("Database", TracedDatabase(database, tracer, system))

    def traced_reader() -> Reader:
        reader = list_reader()
        return whole if reader is database else cast("Reader", TracedReader(reader, tracer, system))

    return whole, traced_reader


@lru_cache(_STATEMENTS_KEPT)
def _described(sql: LiteralString, system: str) -> tuple[str, Attributes]:
    """The name of a statement's span, and its attributes: the operation and the first table, never a value."""
    operation = sql.split(None, 1)[0].upper()
    attributes: Attributes = {"db.system.name": system, "db.operation.name": operation}
    if (match := _TABLE.search(sql)) is None:
        return operation, attributes
    attributes["db.collection.name"] = match[1]
    return f"{operation} {match[1]}", attributes


# Inputs of functions kept in memory: a function has at most 64, so at most some 40 MB.
_INPUTS_KEPT: Final = 4_096
# Receivers of webhooks, and their name servers, are anywhere in the world.
_HOOK_CONNECT_SECONDS_MAX: Final = 5.0
# More than requests at a time, deliveries and tests: a silent name keeps its thread for some seconds after its request.
_HOOK_LOOKUP_THREADS: Final = 64
# Addresses that share a byte of it get slots after each other's, which does no harm.
_LAST_SLOTS: Final = 65_536


def build_context(
    settings: Settings,
    *,
    now_ms: Callable[[], int] | None = None,
    monotonic_ms: Callable[[], int] | None = None,
    steady_ms: int = STEADY_MS,
    database_limits: DatabaseLimits = DATABASE_LIMITS,
) -> Context:
    """The context for `settings`. The clocks and chance enter here and nowhere else.

    A clock `now_ms` without a monotonic one is never judged. `steady_ms` is how long a clock that stepped must be
    steady before it is trusted again.

    Blocks in the database can be used only when this is called where the database's event loop runs.
    """
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    metrics = Metrics()
    tracer = open_tracer(settings.trace_endpoint, settings.trace_ratio)
    database, list_reader = _database(settings, database_limits, DatabaseMetrics(metrics))
    if tracer is not None:
        database, list_reader = traced(database, list_reader, tracer)
    fixed = parse_secrets(settings.secret) if settings.secret else None
    clock = _clock(now_ms, monotonic_ms, steady_ms)
    if settings.tlog_name:
        read_policy(settings)  # raises for an unusable file, before resources are opened
    chains = load_chains(settings.chains_file)
    secrets = (lambda: fixed) if fixed else RingFile(settings.data_dir)
    outgoing = Outgoing(allow_private=settings.allow_private_networks, node_metrics=metrics, tracer=tracer)
    return Context(
        settings=settings,
        database=database,
        list_reader=list_reader,
        epochs=Epochs(database),
        clients=ClientAddresses(settings.proxies),
        blocks=_blocks(settings, database),
        limiter=Limiter(settings.rate_limits, time.monotonic_ns, exempt=settings.exempt_networks),
        disk=DiskReserve(directories_of(settings)),
        metrics=metrics,
        chains=chains,
        secrets=secrets,
        clock=clock,
        random_bytes=os.urandom,
        number=ServiceNumber(database, lambda: [each.id for each in ring_of(secrets()).secrets], os.urandom),
        last_slots=bytearray(os.urandom(_LAST_SLOTS)),
        find_inputs=_remembered(database),
        holdings=build_holdings(settings, chains, outgoing, clock, settings.data_dir / "token-lists"),
        outgoing=outgoing,
        # Without a tracer: receivers are third parties, and must not see the trace of a delivery.
        outgoing_webhooks=Outgoing(
            allow_private=settings.allow_private_networks,
            connect_seconds_max=_HOOK_CONNECT_SECONDS_MAX,
            lookup_threads=_HOOK_LOOKUP_THREADS,
        ),
        tracer=tracer,
    )


def _clock(now_ms: Callable[[], int] | None, monotonic_ms: Callable[[], int] | None, steady_ms: int) -> Clock:
    if now_ms is not None and monotonic_ms is None:
        return Clock.trusted(now_ms)
    return Clock(now_ms or _wall_ms, monotonic_ms or _monotonic_ms, steady_ms=steady_ms)


# On Linux with the time for which the machine was suspended (clock_gettime(2)).
_SINCE_START: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_ms() -> int:
    """The time since the machine was started."""
    return time.clock_gettime_ns(_SINCE_START) // 1_000_000


def _database(
    settings: Settings, limits: DatabaseLimits, metrics: DatabaseMetrics
) -> tuple[Database, Callable[[], Reader]]:
    """The database, and the readers of listings."""
    if not settings.read_urls:
        database = open_database(settings.database_url, data_dir=settings.data_dir, limits=limits, metrics=metrics)
        return database, lambda: database
    replicated = open_replicated(
        settings.database_url, settings.read_urls,
        lag_s_max=settings.replica_lag_s_max, limits=limits, metrics=metrics,
    )  # fmt: skip
    return replicated, replicated.list_reader


def _blocks(settings: Settings, database: Database) -> BlockStore:
    """The block store of the settings, on the event loop that runs here, if one does."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    return open_blocks(
        settings.blocks_url, data_dir=settings.data_dir,
        database=database, database_url=settings.database_url, loop=loop,
    )  # fmt: skip


def directories_of(settings: Settings) -> list[Path]:
    """The local directories that store clients' data. Raises `ValueError` for an unusable setting of blocks."""
    file = sqlite_file(settings.database_url, data_dir=settings.data_dir)
    blocks = block_directory(place_of_blocks(settings.blocks_url, settings.database_url), settings.data_dir)
    others = [file.parent if file else None, blocks]
    return [settings.data_dir, *(each for each in others if each is not None)]


def build_holdings(
    settings: Settings, chains: Mapping[int, Chain], outgoing: Outgoing, clock: Clock, directory: Path
) -> Holdings:
    """Chains, token lists and prices; lists from URLs are kept in `directory`. Raises `ValueError`."""
    served = {chain.id: chain for chain in chains.values() if chain.rpc_urls}
    lists = dict.fromkeys(entry for chain in served.values() for entry in chain.token_lists)
    tokens = TokenLists(
        [*lists, PACKAGED_LIST], chains=chains, directory=directory,
        outgoing=outgoing, now_ms=clock.monotonic_ms,
    )  # fmt: skip
    sources: list[PriceSource] = []
    if settings.prices_file:
        sources.append(StaticPrices.read(Path(settings.prices_file)))
    if settings.price_api_url:
        slugs = {chain.id: chain.price_slug for chain in served.values() if chain.price_slug}
        sources.append(PriceApi(settings.price_api_url, outgoing, slugs))
    return Holdings(
        served, tokens, sources, outgoing,
        now_ms=clock.now_ms, monotonic_ms=clock.monotonic_ms, seconds_max=settings.balances_timeout_s,
    )  # fmt: skip


def _remembered(database: Database) -> Callable[[bytes], Any]:
    """`find_inputs` with a cache: a function's inputs never change, and every trigger needs them."""
    known: dict[bytes, Mapping[str, str]] = {}

    async def find(digest: bytes) -> Mapping[str, str] | None:
        if (inputs := known.get(digest)) is not None:
            return inputs
        inputs = await find_inputs(database, digest)
        if inputs is not None:
            if len(known) >= _INPUTS_KEPT:
                known.clear()
            known[digest] = inputs
        return inputs

    return find
