"""The composition root: every route, the middleware and the outside world are named here, once."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import structlog
from msgspec import Meta

from muniment.auth.caller import SECURITY_SCHEMES
from muniment.auth.secrets import RingFile, parse_secrets
from muniment.blocks.files import FileBlockStore
from muniment.context import Context
from muniment.errors import InvalidParameter, NotReady, Unavailable, UnknownPath
from muniment.evm.chains import Chain, load_chains
from muniment.evm.holdings import Holdings
from muniment.evm.prices import PriceApi, PriceSource, StaticPrices
from muniment.evm.token_lists import PACKAGED_LIST, TokenLists
from muniment.functions.routes import OPERATIONS as FUNCTIONS
from muniment.functions.store import find_inputs
from muniment.http.limits import Limits
from muniment.http.middleware import Manners
from muniment.http.openapi import openapi_document
from muniment.http.operation import Answer, operation
from muniment.http.pages import error_page, reference_page
from muniment.http.reply import JSON, Ready
from muniment.http.routing import Paths
from muniment.ipfs.unixfs import PROFILES
from muniment.outgoing import Outgoing
from muniment.settings import MIB, Settings, load_settings
from muniment.storage import open_database
from muniment.triggers.routes import OPERATIONS as TRIGGERS
from muniment.triggers.store import SETTLED_AT_ONCE, settle_ended
from muniment.users.routes import OPERATIONS as USERS
from muniment.wire import ProvedText, Record, encode

if TYPE_CHECKING:
    from types import FrameType

    from starlette.types import Receive, Scope, Send

    from muniment.storage.database import Database

# Below this a bundle and the write-ahead log may not fit any more: no longer ready, before writes fail.
DISK_BYTES_MIN: Final = 64 * MIB
# Inputs of functions kept in memory; they never change. A function has at most 64 inputs, so at most some 40 MB.
_INPUTS_KEPT: Final = 4_096
_SWEEP_SECONDS: Final = 30
_ABOUT: Final = (
    "Registry and intent service for wallet-signed automation on EVM chains: functions named by their CID, triggers "
    "signed by their owner (EIP-712). Nothing has to be believed: signatures, CIDs and hashes can all be checked."
)

_log = structlog.get_logger(__name__)


class Health(Record, frozen=True):
    """The process answers."""

    status: Annotated[str, Meta(examples=["ok"])]

    example: ClassVar[dict[str, Any]] = {"status": "ok"}


class ErrorCode(ProvedText):
    """A code in the path of its page."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "pattern": "^[a-z-]+$", "description": "The `code` of a problem",
        "examples": ["invalid-address"],
    }  # fmt: skip
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> ErrorCode:
        """Any text: the page knows which codes there are."""
        return cls(text)


@operation("GET", "/healthz")
async def get_health() -> Health:
    """Tell whether the process answers."""
    return Health(status="ok")


@operation("GET", "/readyz", refuses=(NotReady,))
async def get_readiness(context: Context) -> Health:
    """Tell whether requests can be served.

    The database answers and has every migration, there is room on the disk, and the process is not stopping.
    """
    if context.is_stopping():
        raise NotReady("this process is stopping")
    await context.database.check()
    try:
        free = shutil.disk_usage(context.settings.data_dir).free
    except OSError as error:
        raise NotReady(f"the data directory does not answer: {error.strerror}") from error
    if free < DISK_BYTES_MIN:
        raise NotReady(f"the disk has less than {DISK_BYTES_MIN // MIB} MiB left")
    return Health(status="ok")


@operation("GET", "/openapi.json")
async def get_openapi() -> Ready[dict[str, Any]]:
    """Read this document."""
    return Ready(encode(_document()), (JSON, (b"cache-control", b"public, max-age=60")))


@operation("GET", "/docs", answers={200: Answer("The page", ("text/html",))})
async def get_reference() -> Ready[bytes]:
    """Read the reference as a page."""
    return reference_page(_document())


@operation(
    "GET", "/errors/{code}", refuses=(UnknownPath,), answers={200: Answer("The page", ("text/html",))}
)  # fmt: skip
async def get_error_page(code: ErrorCode) -> Ready[bytes]:
    """Read what an error code means."""
    return error_page(code, _document())


OPERATIONS: Final = (
    *TRIGGERS, *FUNCTIONS, *USERS, get_health, get_readiness, get_openapi, get_reference, get_error_page,
)  # fmt: skip


@cache
def _document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, version=version("muniment"), about=_ABOUT, security=SECURITY_SCHEMES)


class Application:
    """The ASGI application of one process."""

    def __init__(self, context: Context) -> None:
        """Serve with `context`, and close what is in it at the end."""
        self.context = replace(context, is_stopping=lambda: self._stopping)
        self._stopping = False
        settings = context.settings
        self._app = Manners(
            Paths(OPERATIONS, lifespan=self._lifespan),
            limits=Limits(settings.body_bytes_max, settings.body_timeout_s),
            random_bytes=context.random_bytes,
            log_requests=settings.log_requests,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        scope["muniment.context"] = self.context
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncGenerator[None]:
        try:
            await self.context.database.check()
        except Unavailable as refusal:  # /readyz says so until it is over; a process that gave up would not come back
            _log.warning("not ready", detail=refusal.detail)
        _stop_with_parent()
        self._notice_stop()
        tasks = [asyncio.create_task(self._settle_ended())]
        if self.context.holdings.chains:
            tasks.append(asyncio.create_task(self.context.holdings.tokens.keep_fresh()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await self.context.outgoing.close()
            await self.context.database.close()

    def _notice_stop(self) -> None:
        """At SIGTERM be not ready first; the server, whose handler this goes before, stops after the delay."""
        stop = signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
        if not callable(stop):  # no server listens for the signal: an application under test
            return
        loop, delay_s = asyncio.get_running_loop(), self.context.settings.shutdown_delay_s

        def notice(number: int, frame: FrameType | None) -> None:
            self._stopping = True
            loop.call_soon_threadsafe(loop.call_later, delay_s, stop, number, frame)

        signal.signal(signal.SIGTERM, notice)

    async def _settle_ended(self) -> None:
        """Every now and then mark triggers that have ended, so that listings stay fast. A turn lost loses nothing."""
        context, settled = self.context, 0
        while True:
            if settled < SETTLED_AT_ONCE:
                await asyncio.sleep(_SWEEP_SECONDS)
            try:
                settled = await context.database.write(lambda tx: settle_ended(tx, context.now_ms()))
            except Exception as error:  # noqa: BLE001 - the next turn may succeed; a sweep that ended would not come back
                _log.warning("sweep failed", error=type(error).__name__, detail=str(error))
                settled = 0


def create_app() -> Application:
    """The application with the settings of the environment: what a server process loads."""
    return Application(build_context(load_settings()))


def build_context(settings: Settings, *, now_ms: Callable[[], int] | None = None) -> Context:
    """The outside world as `settings` describe it. The clock and chance enter here and nowhere else."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    database = open_database(settings.database_url, data_dir=settings.data_dir)
    fixed = parse_secrets(settings.secret) if settings.secret else None
    now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
    chains = load_chains(Path(settings.chains_file) if settings.chains_file else None)
    outgoing = Outgoing(allow_private=settings.allow_private_networks)
    return Context(
        settings=settings,
        database=database,
        blocks=FileBlockStore(settings.data_dir / "blocks"),
        profile=PROFILES[settings.unixfs_profile],
        chains=chains,
        secrets=(lambda: fixed) if fixed else RingFile(settings.data_dir),
        now_ms=now_ms,
        random_bytes=os.urandom,
        find_inputs=_remembered(database),
        holdings=_holdings(settings, chains, outgoing, now_ms),
        outgoing=outgoing,
        is_stopping=lambda: False,
    )


def _holdings(
    settings: Settings, chains: Mapping[int, Chain], outgoing: Outgoing, now_ms: Callable[[], int]
) -> Holdings:
    """Chains, token lists and prices put together. Raises `ValueError` for a file that cannot be used."""
    served = {chain.id: chain for chain in chains.values() if chain.rpc_urls}
    lists = dict.fromkeys(entry for chain in served.values() for entry in chain.token_lists)
    tokens = TokenLists(
        [*lists, PACKAGED_LIST], chains=served, directory=settings.data_dir / "token-lists",
        outgoing=outgoing, now_ms=now_ms,
    )  # fmt: skip
    sources: list[PriceSource] = []
    if settings.prices_file:
        sources.append(StaticPrices.read(Path(settings.prices_file)))
    if settings.price_api_url:
        slugs = {chain.id: chain.price_slug for chain in served.values() if chain.price_slug}
        sources.append(PriceApi(settings.price_api_url, outgoing, slugs))
    return Holdings(served, tokens, sources, outgoing, now_ms=now_ms, seconds_max=settings.balances_timeout_s)


def _remembered(database: Database) -> Callable[[bytes], Any]:
    """`find_inputs` with a memory: what a function takes never changes, and every trigger asks for it."""
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


def _stop_with_parent() -> None:
    """A worker whose supervisor was killed stops too: nobody would restart it, and it would hold the port."""
    parent, loop = multiprocessing.parent_process(), asyncio.get_running_loop()
    if parent is None:
        return
    sentinel = parent.sentinel

    def stop() -> None:
        loop.remove_reader(sentinel)  # it stays readable
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(sentinel, stop)
