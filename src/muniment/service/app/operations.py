"""Every operation of the service, and those that are about the service itself."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType

from muniment.protocol.errors import InvalidParameter, NotReady, UnknownPath
from muniment.protocol.wire import ProvedText, Record, encode
from muniment.service.app.scrape import get_metrics
from muniment.service.auth.caller import SECURITY_SCHEMES
from muniment.service.context import Context
from muniment.service.http.accept import media_ranges, named_quality
from muniment.service.http.openapi import openapi_document
from muniment.service.http.operation import Answer, operation
from muniment.service.http.reference_pages import error_page, reference_page
from muniment.service.http.reply import JSON, Ready
from muniment.service.http.request import Request
from muniment.service.resources.feed.routes import OPERATIONS as FEED
from muniment.service.resources.functions.routes import OPERATIONS as FUNCTIONS
from muniment.service.resources.intents.routes import OPERATIONS as INTENTS
from muniment.service.resources.log.serving.routes import OPERATIONS as LOG
from muniment.service.resources.triggers.routes import OPERATIONS as TRIGGERS
from muniment.service.resources.users.routes import OPERATIONS as USERS
from muniment.service.resources.webhooks.routes import OPERATIONS as WEBHOOKS
from muniment.service.running.limits.costs import CONTENT, HEALTH, READ, Shed

_ABOUT: Final = (
    "Registry and intent service for wallet-signed automation on EVM chains: functions named by their CID, triggers "
    "signed by their owner (EIP-712), and the intents that result. Clients need not trust the registry: they can "
    "verify every signature, CID and hash."
)


_VARY: Final = (b"vary", b"Accept")


class Root(Record, frozen=True):
    """The service, and the paths where programs and people begin."""

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
        Meta(description="Matters for the operator's attention; absent without any"),
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

    The database answers, has every migration and takes writes, there is room on the disk, the block store takes
    uploads, and the process is not stopping. `notes` names matters for the operator's attention, such as a frozen or
    halted transparency log.
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
    return _reference(has_console=context.settings.console)


@operation(
    "GET", "/errors/{code}", cost=READ, sheds=Shed.READ,
    refuses=(UnknownPath,), answers={200: Answer("An HTML page", ("text/html",))},
)  # fmt: skip
async def get_error_page(context: Context, code: ErrorCode) -> Ready[bytes]:
    """Read what an error code means."""
    return _error_page(str(code), has_console=context.settings.console)


OPERATIONS: Final = (
    *TRIGGERS, *INTENTS, *FUNCTIONS, *USERS, *LOG, *FEED, *WEBHOOKS,
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


@cache
def _reference(*, has_console: bool) -> Ready[bytes]:
    return reference_page(_document(), has_console=has_console)


@cache  # of the known codes: for others it raises, which is not kept
def _error_page(code: str, *, has_console: bool) -> Ready[bytes]:
    return error_page(code, _document(), has_console=has_console)
