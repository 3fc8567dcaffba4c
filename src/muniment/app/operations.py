"""Every operation of the service, and those that are about the service itself."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from muniment.auth.caller import SECURITY_SCHEMES
from muniment.context import Context
from muniment.errors import InvalidParameter, NotReady, UnknownPath
from muniment.functions.routes import OPERATIONS as FUNCTIONS
from muniment.http.openapi import openapi_document
from muniment.http.operation import Answer, operation
from muniment.http.pages import error_page, reference_page
from muniment.http.reply import JSON, Ready
from muniment.intents.routes import OPERATIONS as INTENTS
from muniment.settings import MIB
from muniment.triggers.routes import OPERATIONS as TRIGGERS
from muniment.users.routes import OPERATIONS as USERS
from muniment.wire import ProvedText, Record, encode

# Below this a bundle and the write-ahead log may not fit any more: no longer ready, before writes fail.
DISK_BYTES_MIN: Final = 64 * MIB
_ABOUT: Final = (
    "Registry and intent service for wallet-signed automation on EVM chains: functions named by their CID, triggers "
    "signed by their owner (EIP-712), and the intents that result. Nothing has to be believed: signatures, CIDs and "
    "hashes can all be checked."
)


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
    *TRIGGERS, *INTENTS, *FUNCTIONS, *USERS, get_health, get_readiness, get_openapi, get_reference, get_error_page,
)  # fmt: skip


@cache
def _document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, version=version("muniment"), about=_ABOUT, security=SECURITY_SCHEMES)
