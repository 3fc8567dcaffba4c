"""Every operation of the service, and those about the service itself: health, readiness, metrics, reference."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import structlog
from msgspec import UNSET, Meta, UnsetType

from muniment.protocol.errors import InvalidParameter, NotReady, Unavailable, UnknownPath
from muniment.protocol.wire import ProvedText, Record, encode
from muniment.service.auth.caller import SECURITY_SCHEMES
from muniment.service.console.page import assets
from muniment.service.context import Context
from muniment.service.http.admission import is_within
from muniment.service.http.openapi import openapi_document
from muniment.service.http.operation import Answer, operation
from muniment.service.http.reference_pages import error_page, reference_page
from muniment.service.http.reply import JSON, NO_STORE, Ready
from muniment.service.http.request import Request, media_ranges, named_quality
from muniment.service.resources.feed.routes import OPERATIONS as FEED
from muniment.service.resources.functions.routes import OPERATIONS as FUNCTIONS
from muniment.service.resources.intents.routes import OPERATIONS as INTENTS
from muniment.service.resources.log import store
from muniment.service.resources.log.opening import name_fault
from muniment.service.resources.log.routes import OPERATIONS as LOG
from muniment.service.resources.runs.routes import OPERATIONS as RUNS
from muniment.service.resources.triggers.routes import OPERATIONS as TRIGGERS
from muniment.service.resources.users.routes import OPERATIONS as USERS
from muniment.service.resources.webhooks.routes import OPERATIONS as WEBHOOKS
from muniment.service.running.limits.costs import CONTENT, HEALTH, READ, Shed
from muniment.service.running.limits.disk import reserve_of
from muniment.service.running.limits.limiter import PROXY_NOTE
from muniment.service.running.metrics.exposition import MEDIA_TYPE, render
from muniment.service.running.metrics.recorder import show_process
from muniment.service.running.settings import MIB
from muniment.service.storage import sqlite_file
from muniment.service.storage.probe import Probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from muniment.service.blocks.store import BlockStore

# A header field of a proxy means that the request comes from another host than its peer. Proxies spell these names in
# many ways, so a part of the name is enough; hyphens and underscores do not count.
_PARTS: Final = (b"forward", b"proxy", b"clientip", b"realip", b"userip")
_PREFIXES: Final = (b"cf-", b"x-envoy-")  # Cloudflare, Envoy
_NAMES: Final = frozenset({b"via", b"cdn-loop"})  # RFC 9110 section 7.6.3, RFC 8586


@operation(
    "GET", "/metrics", cost=HEALTH, sheds=Shed.NEVER,
    refuses=(UnknownPath,), answers={200: Answer("Prometheus' text format, version 0.0.4", ("text/plain",))},
)  # fmt: skip
async def get_metrics(context: Context, request: Request) -> Ready[bytes]:
    """Read the metrics of this service.

    For the operator's monitoring: only peers in the setting `metrics_from` that use no proxy. All other clients get
    404.
    """
    if not is_within(request.peer, context.settings.metrics_networks) or _is_forwarded(request.named):
        request.charge(request.client.client, READ.units)
        raise UnknownPath("no operation has this path; /docs lists them all")
    await context.serving.look_at_gauges()
    return Ready(render(context.metrics), ((b"content-type", MEDIA_TYPE), NO_STORE))


def _is_forwarded(names: Iterable[bytes]) -> bool:
    return any(map(_is_of_a_proxy, names))


def _is_of_a_proxy(name: bytes) -> bool:
    if name in _NAMES or name.startswith(_PREFIXES):
        return True
    letters = name.translate(None, b"-_")
    return any(part in letters for part in _PARTS)


# These change slowly, and several monitors may ask.
_AGE_SECONDS_MAX: Final = 15.0


class MachineGauges:
    """Sets the gauges of the machine and the process when the metrics are read."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a clock that only goes forward."""
        self._now_s = now_s
        self._looked_s = -math.inf

    async def look(self, context: Context) -> None:
        """Set the gauges, most of them at most every 15 seconds; unreadable gauges are absent."""
        context.metrics.gauge("ready").set(await _is_ready(context))
        if self._now_s() - self._looked_s < _AGE_SECONDS_MAX:
            return
        self._looked_s = self._now_s()
        context.metrics.gauge("build_info", version=version("muniment")).set(1)
        show_process(context.metrics)
        _look_at_files(context)


async def _is_ready(context: Context) -> bool:
    try:
        await context.serving.check_ready()
    except Unavailable:
        return False
    return True


def _look_at_files(context: Context) -> None:
    metrics, settings = context.metrics, context.settings
    free, size = metrics.gauge("disk_free_bytes"), metrics.gauge("disk_size_bytes")
    log, backup = metrics.gauge("sqlite_wal_bytes"), metrics.gauge("backup_age_seconds")
    for gauge in (free, size, log, backup):
        gauge.forget()
    with suppress(OSError):
        usage = shutil.disk_usage(settings.data_dir)
        free.set(usage.free)
        size.set(usage.total)
    if (file := sqlite_file(settings.database_url, data_dir=settings.data_dir)) is not None:
        with suppress(OSError):
            log.set(file.with_name(f"{file.name}-wal").stat().st_size)
    with suppress(OSError):
        made_s = settings.backup_mark.stat().st_mtime
        backup.set(max(0.0, context.clock.now_ms() / 1000 - made_s))


# Below this, deactivations and the write-ahead log may not fit: not ready, before writes fail. A small disk keeps less
# in reserve, and owners must reach the process while that lasts.
DISK_BYTES_MIN: Final = 64 * MIB
# Checks take half a millisecond. More frequent calls get the last outcome.
CHECKS_PER_SECOND_MAX: Final = 50
# Raises `Unavailable`, often a `NotReady`, with the reason when its part is not in order.
Check = Callable[[Context], Awaitable[None]]

_log = structlog.get_logger(__name__)


async def check_running(context: Context) -> None:
    """The process is not stopping."""
    if context.serving.is_stopping():
        raise NotReady("this process is stopping")


async def check_disk(context: Context) -> None:
    """There is room on the disk of the data directory."""
    try:
        usage = shutil.disk_usage(context.settings.data_dir)
    except OSError as error:
        raise NotReady(f"the data directory cannot be read: {error.strerror}") from error
    least = min(DISK_BYTES_MIN, reserve_of(usage.total) // 2)
    if usage.free < least:
        raise NotReady(f"the disk has less than {least // MIB} MiB free")


async def check_clock(context: Context) -> None:
    """The clock is trusted."""
    if doubt := context.clock.doubt():
        raise NotReady(doubt.reason)


async def note_log(context: Context) -> str | None:
    """Note a transparency log that is frozen, halted or not named in the settings; requests are served regardless."""
    if (epoch := await store.newest(context.database)) is None:
        return None
    if fault := name_fault(context.settings, epoch):
        return fault
    return f"the transparency log is {epoch.state}: {epoch.why}" if epoch.state in {"frozen", "halted"} else None


def note_disk(context: Context) -> str | None:
    """Note a disk that has only its reserve left."""
    if not context.disk.is_used:
        return None
    return "the disk is almost full: new records are refused, except deactivations and log-ins"


def note_proxy(context: Context) -> str | None:
    """Note a proxy that is missing in the settings. Its address is in the log alone: anybody may ask for notes."""
    return PROXY_NOTE if context.limiter.has_untrusted_proxy else None


def checks_of(blocks: BlockStore) -> tuple[Check, ...]:
    """The readiness checks in their order; the last ones ask the block store `blocks` and the clock."""
    probe = Probe(lambda: asyncio.to_thread(blocks.check), silence="the block store does not answer")
    return (
        check_running, lambda context: context.database.check(), lambda context: context.database.check_writes(),
        check_disk, lambda _: probe.check(), check_clock,
    )  # fmt: skip


class Readiness:
    """The checks of one process and their last outcome; frequent calls are cheap."""

    def __init__(self, checks: Sequence[Check]) -> None:
        """Begin without an outcome. `checks` are made in this order; the first failing one raises."""
        self._checks = checks
        self._checking: asyncio.Task[Unavailable | tuple[str, ...]] | None = None
        self._second_began = float("-inf")
        self._made = 0
        self._logged = ""

    async def check(self, context: Context) -> tuple[str, ...]:
        """Make the checks, or share the outcome of concurrent or very recent ones; raises as they did.

        Returns notes: matters for the operator's attention although requests can be served.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._second_began >= 1:
            self._second_began, self._made = loop.time(), 0
        if self._checking is None or (self._checking.done() and self._made < CHECKS_PER_SECOND_MAX):
            self._made += 1
            self._checking = loop.create_task(self._check(context))
        found = await asyncio.shield(self._checking)
        if isinstance(found, Unavailable):
            raise found.with_traceback(None)
        return found

    async def _check(self, context: Context) -> Unavailable | tuple[str, ...]:
        """The notes, or the reason why the process is not ready, which is logged once.

        A check that the system prevents has failed too, for instance without a free file descriptor.
        """
        try:
            for check in self._checks:
                await check(context)
            notes = [await note_log(context), note_disk(context), note_proxy(context)]
        except OSError as error:
            found = NotReady(f"a check failed: {error.strerror or error}")
        except Unavailable as refusal:
            found = refusal
        else:
            self._logged = ""
            return tuple(note for note in notes if note)
        if self._logged != found.detail:
            _log.error("not ready", detail=found.detail)
        self._logged = found.detail
        return found


_ABOUT: Final = (
    "Registry and intent service for wallet-signed automation on EVM chains: functions named by their CID, triggers "
    "signed by their owner (EIP-712), and the intents that result. Clients need not trust the registry: they can "
    "verify every signature, CID and hash."
)


_VARY: Final = (b"vary", b"Accept")


class Root(Record, frozen=True):
    """The service, and the paths below its URL where programs and people begin."""

    name: Annotated[str, Meta(examples=["muniment"])]
    version: Annotated[str, Meta(examples=["0.1.0"])]
    api: Annotated[str, Meta(description="The OpenAPI document", examples=["/openapi.json"])]
    docs: Annotated[str, Meta(description="The reference", examples=["/docs"])]
    console: Annotated[
        str | UnsetType, Meta(description="Pages for people; absent while the console is off", examples=["/console"])
    ] = UNSET

    example: ClassVar[dict[str, Any]] = {
        "name": "muniment", "version": "0.1.0", "api": "/openapi.json", "docs": "/docs", "console": "/console",
    }  # fmt: skip


class Health(Record, frozen=True):
    """The process answers."""

    status: Annotated[str, Meta(examples=["ok"])]

    example: ClassVar[dict[str, Any]] = {"status": "ok"}


class ReadyShown(Record, frozen=True):
    """Requests can be served."""

    status: Annotated[str, Meta(examples=["ok"])]
    notes: Annotated[
        Annotated[list[str], Meta(max_length=16)] | UnsetType,
        Meta(description="What needs the operator's attention; absent if nothing"),
    ] = UNSET

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


@operation("GET", "/healthz", cost=HEALTH, sheds=Shed.NEVER)
async def get_health() -> Health:
    """Check whether the process answers."""
    return Health(status="ok")


@operation("GET", "/readyz", cost=HEALTH, sheds=Shed.NEVER, refuses=(NotReady,))
async def get_readiness(context: Context) -> Ready[ReadyShown]:
    """Check whether the process can serve requests.

    It can if the database answers, is migrated and takes writes, the disk has room, the block store takes uploads, the
    clock is trusted, and the process is not stopping. `notes` names matters for the operator's attention, such as a
    frozen or halted transparency log, or a proxy that is missing in the settings.
    """
    notes = await context.serving.check_ready()
    return Ready(encode(ReadyShown(status="ok", notes=list(notes) if notes else UNSET)))


@operation(
    "GET", "/", cost=READ, sheds=Shed.READ, headers_read={"accept": "A browser names `text/html`"},
    answers={303: Answer("Redirect of a browser to the console", headers={"location": "The path of the console"})},
)  # fmt: skip
async def get_root(context: Context, request: Request) -> Ready[Root]:
    """Show programs where to begin, and redirect browsers to the console.

    While the console is off, a browser is redirected to the reference.
    """
    if not named_quality(media_ranges(request.headers(b"accept")), "text/html"):
        return _root(has_console=context.settings.console)
    # Relative, for a proxy that serves the registry under a path of its own (RFC 9110 section 10.2.2).
    place = b"console" if context.settings.console else b"docs"
    return Ready(b"", ((b"location", place), _VARY), 303)


@operation("GET", "/openapi.json", cost=CONTENT, sheds=Shed.READ)
async def get_openapi() -> Ready[dict[str, Any]]:
    """Read this document."""
    return _openapi()


@operation("GET", "/docs", cost=CONTENT, sheds=Shed.READ, answers={200: Answer("An HTML page", ("text/html",))})
async def get_reference(context: Context) -> Ready[bytes]:
    """Read the reference as a page."""
    return _reference(_notice(context))


@operation(
    "GET", "/errors/{code}", cost=READ, sheds=Shed.READ,
    refuses=(UnknownPath,), answers={200: Answer("An HTML page", ("text/html",))},
)  # fmt: skip
async def get_error_page(context: Context, code: ErrorCode) -> Ready[bytes]:
    """Read what an error code means."""
    return _error_page(str(code), _notice(context))


OPERATIONS: Final = (
    *TRIGGERS, *INTENTS, *RUNS, *FUNCTIONS, *USERS, *LOG, *FEED, *WEBHOOKS,
    get_root, get_health, get_readiness, get_metrics, get_openapi, get_reference, get_error_page,
)  # fmt: skip


@cache
def _root(*, has_console: bool) -> Ready[Root]:
    root = Root(
        name="muniment", version=version("muniment"), api="/openapi.json", docs="/docs",
        console="/console" if has_console else UNSET,
    )  # fmt: skip
    return Ready(encode(root), (JSON, _VARY))


@cache
def _document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, version=version("muniment"), about=_ABOUT, security=SECURITY_SCHEMES)


@cache
def _openapi() -> Ready[dict[str, Any]]:
    return Ready(encode(_document()), (JSON, (b"cache-control", b"public, max-age=60")))


def _notice(context: Context) -> str | None:
    """The line above every page of the console; None without a console."""
    return context.settings.console_notice if context.settings.console else None


@cache
def _reference(notice: str | None) -> Ready[bytes]:
    return reference_page(_document(), None if notice is None else assets(notice))


@cache  # of the known codes: for others it raises, which is not kept
def _error_page(code: str, notice: str | None) -> Ready[bytes]:
    return error_page(code, _document(), None if notice is None else assets(notice))
