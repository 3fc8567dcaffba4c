"""The operations that read the log: its epochs, checkpoints and tiles (c2sp.org/tlog-tiles 0.1.0)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final, TypeVar

from muniment.context import Context
from muniment.errors import InvalidParameter, LogPartNotFound, UnknownPath
from muniment.http.operation import Answer, operation
from muniment.http.reply import JSON, Ready
from muniment.http.request import Request
from muniment.limits.costs import READ, Cost, Shed
from muniment.storage.database import Reader
from muniment.tlog.sequencing import store
from muniment.tlog.sequencing.store import Epoch
from muniment.tlog.serving.reading import Part, read_part
from muniment.tlog.serving.tail import Tail
from muniment.tlog.tiles import PATH_PATTERN, parse_path
from muniment.tlog.types import MERGE_DELAY_S, LogEpoch, LogShown
from muniment.wire import ProvedText, encode

T = TypeVar("T")

TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
# A new checkpoint comes every two seconds at most.
BRIEFLY: Final = (b"cache-control", b"public, max-age=2")
_BYTES: Final = "application/octet-stream"
# A tile never changes, not even one that is not full: it is the beginning of the full one.
_FOR_EVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
# Beside what is read for it.
_TILE: Final = Cost(2)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


class EpochNumber(ProvedText):
    """The number of an epoch, as it stands in the path."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "pattern": f"^{_NUMBER.pattern}$", "examples": ["1"],
        "description": "The number of an epoch, counted from 1",
    }  # fmt: skip
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> EpochNumber:
        """A decimal number from 1 on."""
        if not _NUMBER.fullmatch(text):
            raise InvalidParameter("is the number of an epoch, such as 1; GET /log lists them")
        return cls(text)


class TilePath(ProvedText):
    """The path of a tile or a bundle of entries, which may have slashes."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "maxLength": 64, "pattern": f"^{PATH_PATTERN}$",
        "examples": ["0/000", "entries/x001/234", "1/000.p/4"],
        "description": "`level/number` or `entries/number`, the number in groups of three digits, all but the last "
        "with an `x` before them; `.p/` and a width behind it for a tile that is not full",
    }  # fmt: skip
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> TilePath:
        """A path in its one spelling."""
        try:
            parse_path(text)
        except ValueError as error:
            raise InvalidParameter(str(error)) from None
        return cls(text)


@operation("GET", "/log", cost=READ, sheds=Shed.READ, refuses=(UnknownPath,))
async def get_log(context: Context, request: Request) -> Ready[LogShown]:
    """Read about the transparency log.

    It has one entry for each function, trigger and deactivation, and shows everybody the same history: nothing in it
    can be changed or removed unnoticed. A client that has seen one checkpoint can check that later ones only add to it.
    """
    require_log(context)
    epochs = await store.all_epochs(context.reader_for(request))
    return Ready(encode(LogShown(epochs=list(map(_shown, epochs)))), (JSON, BRIEFLY))


@operation(
    "GET", "/log/{epoch}/checkpoint", cost=READ, sheds=Shed.READ, refuses=(UnknownPath, LogPartNotFound),
    answers={200: Answer("The checkpoint", ("text/plain",))},
)  # fmt: skip
async def get_checkpoint(context: Context, request: Request, epoch: EpochNumber) -> Ready[bytes]:
    """Read the last checkpoint of an epoch.

    A signed note (c2sp.org/signed-note) with origin, size and root of the tree (c2sp.org/tlog-checkpoint), signed by
    the log, for its time by the log again (c2sp.org/tlog-cosignature), and by witnesses if there are any.
    """

    async def read(database: Reader) -> str:
        found = await _epoch(database, epoch)
        if found.note is None:
            raise LogPartNotFound("no checkpoint of this epoch is signed yet")
        return found.note

    return Ready((await _either(context, request, read)).encode(), (TEXT, BRIEFLY))


@operation(
    "GET", "/log/{epoch}/tile/{tile}", cost=_TILE, sheds=Shed.READ, refuses=(UnknownPath, LogPartNotFound),
    answers={
        200: Answer(
            "Hashes of 32 bytes, or entries", (_BYTES,),
            headers={"content-encoding": "`gzip` for a full bundle of entries, whatever the request accepts"},
        )
    },
    takes_rest=True,
)  # fmt: skip
async def get_tile(context: Context, tail: Tail, request: Request, epoch: EpochNumber, tile: TilePath) -> Ready[bytes]:
    """Read a tile of hashes, or a bundle of entries (c2sp.org/tlog-tiles).

    A full tile has 256 hashes, a full bundle 256 entries, each behind its length in two bytes; full bundles are always
    compressed (`Content-Encoding: gzip`). With `.p/` and a width, what there is of the last one.
    """
    part = await _either(context, request, lambda database: _part(database, tail, epoch, tile))
    request.due_units += part.units
    packed = ((b"content-encoding", b"gzip"),) if part.is_compressed else ()
    return Ready(part.data, ((b"content-type", _BYTES.encode()), _FOR_EVER, *packed))


def require_log(context: Context) -> None:
    """Raise `UnknownPath` when the operator has switched the log off."""
    if context.settings.tlog == "off":
        raise UnknownPath("this service keeps no transparency log")


async def _either(context: Context, request: Request, read: Callable[[Reader], Awaitable[T]]) -> T:
    """What `read` gives from a replica, or from the primary where the replica is behind."""
    reader = context.reader_for(request)
    try:
        require_log(context)
        return await read(reader)
    except LogPartNotFound:
        if reader is context.database:
            raise
        return await read(context.database)


async def _epoch(database: Reader, number: str) -> Epoch:
    found = await store.find_epoch(database, int(number))
    if found is None:
        raise LogPartNotFound("the log has no epoch with this number; GET /log lists them")
    return found


async def _part(database: Reader, tail: Tail, epoch: str, tile: str) -> Part:
    return await read_part(database, tail, await _epoch(database, epoch), parse_path(tile))


def _shown(epoch: Epoch) -> LogEpoch:
    return LogEpoch(
        origin=epoch.origin, vkeys=epoch.vkeys.split("\n"), prefix=f"log/{epoch.epoch}", state=epoch.state,
        why=epoch.why, size=epoch.note_size, merge_delay_seconds=MERGE_DELAY_S,
    )  # fmt: skip
