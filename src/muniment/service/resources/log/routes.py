"""The operations that read the log: epochs, checkpoints, tiles (c2sp.org/tlog-tiles 0.1.0), and proofs of facts."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
import structlog
from msgspec import Meta

from muniment.protocol.errors import (
    FunctionNotFound,
    Integrity,
    InvalidParameter,
    LogPartNotFound,
    NothingDeactivated,
    NotLoggedYet,
    TriggerNotFound,
    UnknownPath,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import RAW, Cid
from muniment.protocol.log.tiles import PATH_PATTERN, parse_path
from muniment.protocol.log.types import MERGE_DELAY_S, LogEpoch, LogShown
from muniment.protocol.wire import ProvedText, Record, encode
from muniment.service.context import Context
from muniment.service.http.operation import Answer, operation
from muniment.service.http.reply import JSON, Ready
from muniment.service.http.request import Request
from muniment.service.resources.functions import store as functions
from muniment.service.resources.log import store
from muniment.service.resources.log.facts import SOURCES, Waiting, deactivation_entry, function_entry, trigger_entry
from muniment.service.resources.log.reading import Tail, read_part, read_proof
from muniment.service.resources.log.store import Epoch
from muniment.service.resources.triggers import store as triggers
from muniment.service.running.limits.costs import READ, Cost, Shed
from muniment.service.storage.database import Reader

TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
# A new checkpoint comes every two seconds at most.
BRIEFLY: Final = (b"cache-control", b"public, max-age=2")
_BYTES: Final = "application/octet-stream"
# A tile never changes: a partial tile is the beginning of the full one.
_FOR_EVER: Final = (b"cache-control", b"public, max-age=31536000, immutable")
# Without the bytes that are read for it.
_TILE: Final = Cost(2)
# Some ten reads, and a tile of hashes for each level.
PROOF_COST: Final = Cost(40)
_PROOF_ANSWERS: Final = {200: Answer("The proof, with the entry as `extra`", ("text/plain",))}
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


_log = structlog.get_logger(__name__)


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
        "with an `x` before them; `.p/` and a width after it for a partial tile",
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
async def get_log(context: Context) -> Ready[LogShown]:
    """Read about the transparency log.

    It has one entry for each function, trigger and deactivation, and shows all readers the same history: a change or
    a removal does not go unnoticed. A client that has seen one checkpoint can check that later ones only add to it.
    """
    require_log(context)
    epochs = await store.all_epochs(context.database)
    return Ready(encode(LogShown(epochs=list(map(_shown, epochs)))), (JSON, BRIEFLY))


@operation(
    "GET", "/log/{epoch}/checkpoint", cost=READ, sheds=Shed.READ, refuses=(UnknownPath, LogPartNotFound),
    answers={200: Answer("The checkpoint", ("text/plain",))},
)  # fmt: skip
async def get_checkpoint(context: Context, epoch: EpochNumber) -> Ready[bytes]:
    """Read the last checkpoint of an epoch.

    A signed note (c2sp.org/signed-note) with origin, size and root of the tree (c2sp.org/tlog-checkpoint). The log
    signs it twice, the second time with a timestamp (c2sp.org/tlog-cosignature), and witnesses may cosign it.
    """
    found = await _epoch(context, epoch)
    if found.note is None:
        raise LogPartNotFound("no checkpoint of this epoch is signed yet")
    return Ready(found.note.encode(), (TEXT, BRIEFLY))


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

    A full tile has 256 hashes, a full bundle 256 entries, each after its length in two bytes; full bundles are always
    compressed (`Content-Encoding: gzip`). `.p/` and a width read the last, partial tile.
    """
    part = await read_part(context.database, tail, await _epoch(context, epoch), parse_path(tile))
    request.due_units += part.units
    packed = ((b"content-encoding", b"gzip"),) if part.is_compressed else ()
    return Ready(part.data, ((b"content-type", _BYTES.encode()), _FOR_EVER, *packed))


def require_log(context: Context) -> None:
    """Raise `UnknownPath` in a registry without a log."""
    if not context.settings.tlog_name:
        raise UnknownPath("this registry keeps no transparency log; its operator begins one with the setting tlog_name")


async def _epoch(context: Context, number: str) -> Epoch:
    require_log(context)
    found = await store.find_epoch(context.database, int(number))
    if found is None:
        raise LogPartNotFound("the log has no epoch with this number; GET /log lists them")
    return found


def _shown(epoch: Epoch) -> LogEpoch:
    return LogEpoch(
        origin=epoch.origin, vkeys=epoch.vkeys.split("\n"), prefix=f"log/{epoch.epoch}", state=epoch.state,
        why=epoch.why, size=epoch.note_size, merge_delay_seconds=MERGE_DELAY_S,
    )  # fmt: skip


class CreatorQuery(Record, frozen=True):
    """Whose deployment of a function."""

    creator: Annotated[Address | None, Meta(description="Who deployed it; default: the `creator` of the function")] = (
        None
    )


class _Creator(msgspec.Struct):
    creator: str


_CREATOR: Final = msgspec.json.Decoder(_Creator)


@operation(
    "GET", "/triggers/{sig}/proof", cost=PROOF_COST, sheds=Shed.READ, answers=_PROOF_ANSWERS,
    refuses=(UnknownPath, TriggerNotFound, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_trigger_proof(context: Context, tail: Tail, sig: Signature) -> Ready[bytes]:
    """Read the proof that a trigger is in the transparency log.

    In the format of c2sp.org/tlog-proof@v1: the index of the entry, the hashes that lead to the root, and the
    checkpoint. Build the entry from the record that you hold; the one in `extra` is only for display.
    """
    require_log(context)
    row = await triggers.REGISTERED.find(context.database, "sig = ?", sig.raw)
    if row is None:
        raise TriggerNotFound("no trigger is registered under this signature")
    return await _proof(context, tail, trigger_entry(row))


@operation(
    "GET", "/functions/{cid}/proof", cost=PROOF_COST, sheds=Shed.READ, answers=_PROOF_ANSWERS,
    refuses=(UnknownPath, FunctionNotFound, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_function_proof(context: Context, tail: Tail, cid: Cid, query: CreatorQuery) -> Ready[bytes]:
    """Read the proof that a deployment of a function is in the transparency log.

    As for triggers. Each creator of a function has an entry.
    """
    require_log(context)
    record = None if cid.codec == RAW else await functions.find_record(context.database, cid.digest)
    if record is None:
        raise FunctionNotFound("no function is registered under this CID")
    creator = query.creator or Address.parse(_CREATOR.decode(record).creator)
    row = await functions.JOINED.find(context.database, "digest = ? AND creator = ?", cid.digest, creator.raw)
    if row is None:
        raise FunctionNotFound("this wallet has not deployed the function")
    return await _proof(context, tail, function_entry(row))


@operation(
    "GET", "/deactivations/{signature}/proof", cost=PROOF_COST, sheds=Shed.READ, answers=_PROOF_ANSWERS,
    refuses=(UnknownPath, NothingDeactivated, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_deactivation_proof(context: Context, tail: Tail, signature: Signature) -> Ready[bytes]:
    """Read the proof that a deactivation is in the transparency log.

    As for triggers. A deactivation that ended no trigger is not recorded, and has no proof.
    """
    require_log(context)
    row = await triggers.DEACTIVATED.find(context.database, "signature = ?", signature.raw)
    if row is None:
        raise NothingDeactivated("no deactivation is recorded under this signature")
    return await _proof(context, tail, deactivation_entry(row))


class _Place(NamedTuple):
    epoch: store.Epoch
    note: str
    at: int


async def _proof(context: Context, tail: Tail, fact: Waiting) -> Ready[bytes]:
    """The proof of a fact. Raises `NotLoggedYet`, and `Integrity` where the log has another entry in its place."""
    database = context.database
    place = await _place(database, fact)
    if place is None:
        wait_s = context.settings.tlog_interval_s
        raise NotLoggedYet(
            f"the record is stored; no signed checkpoint has it yet, ask again in {wait_s} seconds",
            facts={"retryAfter": wait_s},
        )
    try:
        proof = await read_proof(database, tail, place.epoch, place.note, place.at, fact.data)
    except ValueError as error:
        _log.exception("the transparency log is damaged", origin=place.epoch.origin, index=place.at)
        raise Integrity("the log has another entry in the place of this record, or is damaged") from error
    return Ready(proof.data, (TEXT, BRIEFLY))


async def _place(reader: Reader, fact: Waiting) -> _Place | None:
    """The place of a fact in the log, or None before a signed tree has it."""
    epoch = await store.epoch_with(reader, fact.kind, fact.seq)
    if epoch is None or epoch.note is None:
        return None
    run = await store.find_run(reader, epoch.epoch, fact.kind, fact.seq)
    if run is None:
        return None
    index = run.first_index + await SOURCES[fact.kind].rows.count(reader, run.first_seq, fact.seq)
    return _Place(epoch, epoch.note, index) if index < epoch.note_size else None


OPERATIONS = (
    get_log, get_checkpoint, get_tile,
    get_trigger_proof, get_function_proof, get_deactivation_proof,
)  # fmt: skip
