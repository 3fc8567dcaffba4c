"""The part of `muniment verify` that is about runs: hashes, evidence, columns, and what contradicts itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

import msgspec

from muniment.client.failures import Forged
from muniment.client.proof import check_evidence, check_run
from muniment.protocol.errors import Integrity
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import HexString
from muniment.protocol.runs.reasons import is_verdict
from muniment.protocol.runs.types import Run
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import decode_text, iso_time
from muniment.service.resources.runs.store import find, outputs_of
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from muniment.service.context import Context
    from muniment.service.storage.database import Database, Row

_ROWS_PER_READ: Final = number_text(500)
# The length of a text in bytes, by whether the engine is PostgreSQL: SQLite has `octet_length` since 3.43 only.
_BYTES: Final[dict[bool, LiteralString]] = {
    False: "length(CAST(r.record AS BLOB))", True: "octet_length(r.record)",
}  # fmt: skip
_CONFLICTS: Final = f"""
    SELECT r.seq, other.seq, r.hash, other.hash
    FROM runs r JOIN runs other ON other.trigger_seq = r.trigger_seq AND other.payload_hash = r.payload_hash
    WHERE r.verdict = 1 AND other.verdict = 1 AND other.seq > r.seq AND (r.seq, other.seq) > (?, ?)
    ORDER BY r.seq, other.seq LIMIT {_ROWS_PER_READ}"""
_CLAIMS: Final = f"""
    SELECT i.seq, i.hash, r.hash, r.outputs FROM intents i JOIN runs r ON r.hash = i.execution_hash
    WHERE i.seq > ? ORDER BY i.seq LIMIT {_ROWS_PER_READ}"""


def _runs(*, is_shared: bool) -> LiteralString:
    return f"""
    SELECT r.seq, r.hash, r.trigger_type, r.payload_hash, r.result, r.reason, r.verdict, r.relayer, r.outputs,
      r.min_validations, r.record_bytes, r.created_at_ms, {_BYTES[is_shared]}, t.sig, t.record,
      r.verdict = 1 AND r.disputed = 0 AND EXISTS (
        SELECT 1 FROM runs other WHERE other.trigger_seq = r.trigger_seq AND other.payload_hash = r.payload_hash
          AND other.verdict = 1 AND other.seq <> r.seq
      )
    FROM runs r JOIN triggers t ON t.seq = r.trigger_seq WHERE r.seq > ? ORDER BY r.seq LIMIT {_ROWS_PER_READ}"""


async def check_runs(context: Context) -> AsyncIterator[str | None]:
    """A fault, or None, for each run."""
    last, select = 0, _runs(is_shared=context.database.is_shared)
    while found := await context.database.fetch_slow(select, (last,)):
        for row in found:
            text = await find(context.database, row[1])
            if text is None:  # a running service has removed it since
                continue
            wrong = _fault(text, row)
            yield f"run {HexString.from_raw(row[1])}: {wrong}" if wrong else None
        last = found[-1][0]


def _fault(text: str, row: Row) -> str | None:
    try:
        _check(text, row)
    except (Integrity, Forged) as fault:
        return str(fault)
    except msgspec.MsgspecError as error:
        return f"its record cannot be read: {error}"
    return None


def _check(text: str, row: Row) -> None:
    _, digest, *columns, created_at_ms, record_bytes, sig, trigger_record, hides_conflict = row
    run = msgspec.json.decode(text, type=Run, dec_hook=decode_text)
    if run.hash.raw != digest:
        raise Integrity("its record has another hash")
    check_run(run)
    check_evidence(run)
    if run.trigger_sig.raw != sig:
        raise Integrity("its record and its row name two triggers")
    trigger = msgspec.json.decode(trigger_record, type=Trigger, dec_hook=decode_text)
    code = run.reason.code if run.reason else None
    expected = [
        int(trigger.config["type"]), keccak256(run.trigger_data.raw), run.result, code,
        int(is_verdict(run.result, code)), run.relayer.raw, b"".join(each.hash.raw for each in run.outputs),
        trigger.min_validations, record_bytes,
    ]  # fmt: skip
    if columns != expected or iso_time(created_at_ms) != run.created_at:
        raise Integrity("its columns differ from its record or from its trigger")
    if hides_conflict:
        raise Integrity("it does not show the other verdicts on its cause")


async def contradictions(database: Database) -> AsyncIterator[str]:
    """A line for each two verdicts on one cause, and for each intent that names a run which does not list it.

    Neither is damage: several operators may write, and an intent may come before its run.
    """
    place = (0, 0)
    while rows := await database.fetch_slow(_CONFLICTS, place):
        for _, _, first, second in rows:
            yield f"two verdicts on one cause: the runs {HexString.from_raw(first)} and {HexString.from_raw(second)}"
        place = (rows[-1][0], rows[-1][1])
    last = 0
    while rows := await database.fetch_slow(_CLAIMS, (last,)):
        for _, intent, run, outputs in rows:
            if intent not in outputs_of(outputs):
                yield f"intent {HexString.from_raw(intent)} names the run {HexString.from_raw(run)}, which lacks it"
        last = rows[-1][0]
