"""The operations that prove a fact: that a trigger, a function or a deactivation is in the log."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec
import structlog
from msgspec import Meta

from muniment.context import Context
from muniment.errors import (
    FunctionNotFound,
    Integrity,
    NothingDeactivated,
    NotLoggedYet,
    TriggerNotFound,
    UnknownPath,
)
from muniment.evm.address import Address
from muniment.evm.signature import Signature
from muniment.functions import store as functions
from muniment.http.operation import Answer, operation
from muniment.http.reply import Ready
from muniment.http.request import Request
from muniment.ipfs.cid import RAW, Cid
from muniment.limits.costs import Cost, Shed
from muniment.storage.database import Reader
from muniment.tlog.sequencing import runs, store
from muniment.tlog.sequencing.facts import COUNT, Waiting, deactivation_entry, function_entry, trigger_entry
from muniment.tlog.serving import routes
from muniment.tlog.serving.reading import read_proof
from muniment.tlog.serving.tail import Tail
from muniment.triggers import order as triggers
from muniment.wire import Record

# Some ten reads, and the hashes of a tile for each level.
_COST: Final = Cost(40)
_ANSWERS: Final = {200: Answer("The proof, with the entry as `extra`", ("text/plain",))}

_log = structlog.get_logger(__name__)


class CreatorQuery(Record, frozen=True):
    """Whose deployment of a function."""

    creator: Annotated[
        Address | None, Meta(description="Who deployed it; without: the `creator` of the function's record")
    ] = None


class _Creator(msgspec.Struct):
    creator: str


_CREATOR: Final = msgspec.json.Decoder(_Creator)


@operation(
    "GET", "/triggers/{sig}/proof", cost=_COST, sheds=Shed.READ, answers=_ANSWERS,
    refuses=(UnknownPath, TriggerNotFound, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_trigger_proof(context: Context, tail: Tail, request: Request, sig: Signature) -> Ready[bytes]:
    """Read the proof that a trigger is in the transparency log.

    In the format of c2sp.org/tlog-proof@v1: the index of the entry, the hashes that lead to the root, and the
    checkpoint. Build the entry from the record that you hold; the one in `extra` is there to look at.
    """
    routes.require_log(context)
    reader = context.reader_for(request)
    row = await triggers.find_registered(reader, sig)
    if row is None:
        raise TriggerNotFound("no trigger is registered under this signature")
    return await _proof(context, tail, reader, trigger_entry(row))


@operation(
    "GET", "/functions/{cid}/proof", cost=_COST, sheds=Shed.READ, answers=_ANSWERS,
    refuses=(UnknownPath, FunctionNotFound, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_function_proof(
    context: Context, tail: Tail, request: Request, cid: Cid, query: CreatorQuery
) -> Ready[bytes]:
    """Read the proof that a deployment of a function is in the transparency log.

    As for triggers. Each creator of a function has an entry.
    """
    routes.require_log(context)
    reader = context.reader_for(request)
    record = None if cid.codec == RAW else await functions.find_record(reader, cid.digest)
    if record is None:
        raise FunctionNotFound("no function is registered under this CID")
    creator = query.creator or Address.parse(_CREATOR.decode(record).creator)
    row = await functions.find_joined(reader, cid.digest, creator.raw)
    if row is None:
        raise FunctionNotFound("this wallet has not deployed the function")
    return await _proof(context, tail, reader, function_entry(row))


@operation(
    "GET", "/deactivations/{signature}/proof", cost=_COST, sheds=Shed.READ, answers=_ANSWERS,
    refuses=(UnknownPath, NothingDeactivated, NotLoggedYet, Integrity),
)  # fmt: skip
async def get_deactivation_proof(context: Context, tail: Tail, request: Request, signature: Signature) -> Ready[bytes]:
    """Read the proof that a deactivation is in the transparency log.

    As for triggers. A deactivation that ended no trigger is not recorded, and has no proof.
    """
    routes.require_log(context)
    reader = context.reader_for(request)
    row = await triggers.find_ended(reader, signature)
    if row is None:
        raise NothingDeactivated("no deactivation is recorded under this signature")
    return await _proof(context, tail, reader, deactivation_entry(row))


class _Place(NamedTuple):
    epoch: store.Epoch
    note: str
    at: int


async def _proof(context: Context, tail: Tail, reader: Reader, fact: Waiting) -> Ready[bytes]:
    """The proof of a fact. Raises `NotLoggedYet`, and `Integrity` where the log has another entry in its place."""
    place = await _place(reader, fact)
    if place is None and reader is not context.database:
        reader = context.database
        place = await _place(reader, fact)
    if place is None:
        wait_s = context.settings.tlog_interval_s
        raise NotLoggedYet(
            f"the record is stored; no signed checkpoint has it yet, ask again in {wait_s} seconds",
            facts={"retryAfter": wait_s},
        )
    try:
        proof = await read_proof(reader, tail, place.epoch, place.note, place.at, fact.data)
    except ValueError as error:
        _log.exception("the transparency log is damaged", origin=place.epoch.origin, index=place.at)
        raise Integrity("the log has another entry in the place of this record, or is damaged") from error
    return Ready(proof.data, (routes.TEXT, routes.BRIEFLY))


async def _place(reader: Reader, fact: Waiting) -> _Place | None:
    """Where a fact is in the log; None: no signed tree has it yet."""
    epoch = await store.epoch_with(reader, fact.kind, fact.seq)
    if epoch is None or epoch.note is None:
        return None
    run = await runs.find(reader, epoch.epoch, fact.kind, fact.seq)
    if run is None:
        return None
    index = run.first_index + await COUNT[fact.kind](reader, run.first_seq, fact.seq)
    return _Place(epoch, epoch.note, index) if index < epoch.note_size else None


OPERATIONS = (
    routes.get_log, routes.get_checkpoint, routes.get_tile,
    get_trigger_proof, get_function_proof, get_deactivation_proof,
)  # fmt: skip
