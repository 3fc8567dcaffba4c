"""How runs are recorded: one row for each hash, one record for each operator, and no note where there is a verdict.

Each write is one transaction. It locks the row of the trigger, so that writers of its runs take turns, in one process
or many. What is stored in the end does not depend on the order in which relayers came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple

import msgspec

from muniment.protocol.errors import InvalidRun, RunNotFound, TooManyVerdicts
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.reasons import HOURLY
from muniment.protocol.runs.types import LOGS_SHOWN, RecordedRun, RunBlock, RunDetail
from muniment.protocol.triggers.typed_data import EVENT
from muniment.protocol.wire import decode_text, encode, iso_time
from muniment.service.resources import operators
from muniment.service.resources.intents.store import triggers_of
from muniment.service.resources.triggers.terms import lock
from muniment.service.storage.dating import date_row
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from muniment.protocol.runs.rules import CheckedRun
    from muniment.protocol.runs.types import NewRun, Orphaning
    from muniment.service.resources.operators import OperatorCaller
    from muniment.service.storage.database import Transaction

# Different verdicts that one operator may record on one cause. An honest operator has one, or a few where its price
# source gives another answer each time; more would only fill the disk and the conflicts of other runs.
VERDICTS_MAX: Final = 8
# At a cap, an operator needs to say so once in this time.
_HOUR_MS: Final = 60 * 60 * 1000
# The relayer in the runs of an operator without an address.
NOBODY: Final = bytes(20)
_CAUSE: Final = "trigger_seq = ? AND payload_hash = ?"


@dataclass(frozen=True, slots=True)
class Sent:
    """A run that an operator sends. `admit` is called before rows are added, and refuses them by raising."""

    checked: CheckedRun
    trigger_seq: int
    min_validations: int
    caller: OperatorCaller
    now_ms: int
    admit: Callable[[], object]

    @property
    def cause(self) -> tuple[int, bytes]:
        """The parameters of `_CAUSE`."""
        return self.trigger_seq, self.checked.payload_hash

    @property
    def relayer(self) -> bytes:
        """The address of the operator, or `NOBODY`."""
        return NOBODY if self.caller.address is None else self.caller.address.raw


class Recording(NamedTuple):
    """What a write did: the number of the run that is the answer, and whether the run is new here."""

    seq: int
    is_new: bool


class _Known(NamedTuple):
    """The recorded runs for one cause: their numbers, by hash."""

    verdicts: dict[bytes, int]
    notes: dict[bytes, int]


async def record(tx: Transaction, sent: Sent) -> Recording:
    """Record a run for an operator. A verdict takes the place of notes; a note does not stand beside a verdict.

    Raises `TooManyVerdicts`, and `InvalidRun` for an output that is an intent of another trigger.
    """
    checked = sent.checked
    await lock(tx, sent.trigger_seq)
    await _check_outputs(tx, checked.new)
    known = await _known(tx, sent)
    if not checked.is_verdict and known.verdicts:
        return Recording(min(known.verdicts.values()), is_new=False)
    runs = known.verdicts if checked.is_verdict else known.notes
    if (seq := runs.get(checked.hash)) is not None:
        return await _join(tx, sent, seq)
    if not checked.is_verdict and (seq := await _told_within_the_hour(tx, sent)) is not None:
        return Recording(seq, is_new=False)
    sent.admit()
    if checked.is_verdict:
        await _check_count(tx, sent)
        await _remove_notes(tx, sent)
    if known.verdicts:
        await tx.execute(f"UPDATE runs SET disputed = 1 WHERE {_CAUSE} AND disputed = 0", sent.cause)
    seq = await _insert(tx, sent, is_disputed=bool(known.verdicts))
    await _add_record(tx, sent, seq, 1)
    await operators.enter(tx, sent.caller.name, "record run", checked.hash, sent.now_ms)
    return Recording(seq, is_new=True)


async def _check_outputs(tx: Transaction, new: NewRun) -> None:
    """Raise `InvalidRun` for an output that is recorded as an intent of another trigger."""
    hashes = [each.hash.raw for each in new.outputs]
    recorded = await triggers_of(tx, hashes)
    for index, each in enumerate(hashes):
        if recorded.get(each, new.trigger_sig.raw) != new.trigger_sig.raw:
            raise InvalidRun("this intent belongs to another trigger", pointer=f"/outputs/{index}/hash")


async def _known(tx: Transaction, sent: Sent) -> _Known:
    known = _Known({}, {})
    for seq, run_hash, verdict in await tx.fetch(f"SELECT seq, hash, verdict FROM runs WHERE {_CAUSE}", sent.cause):
        (known.verdicts if verdict else known.notes)[run_hash] = seq
    return known


async def _join(tx: Transaction, sent: Sent, seq: int) -> Recording:
    """Add the record of another operator. A repetition undoes that it was taken back, and changes nothing else."""
    name = sent.caller.name
    known = dict(await tx.fetch("SELECT operator, orphaned_at_ms FROM run_records WHERE run_seq = ?", (seq,)))
    if name not in known:
        sent.admit()
        if sent.checked.is_verdict:
            await _check_count(tx, sent)
        await _add_record(tx, sent, seq, len(known) + 1)
    elif known[name] is not None:
        sent.admit()
        await tx.execute("UPDATE run_records SET orphaned_at_ms = NULL WHERE run_seq = ? AND operator = ?", (seq, name))
    else:
        return Recording(seq, is_new=False)
    await _note_change(tx, seq, sent.now_ms)
    await operators.enter(tx, name, "record run", sent.checked.hash, sent.now_ms)
    return Recording(seq, is_new=False)


async def _check_count(tx: Transaction, sent: Sent) -> None:
    ((count,),) = await tx.fetch(
        f"SELECT count(*) FROM runs JOIN run_records ON run_seq = seq WHERE {_CAUSE} AND verdict = 1 AND operator = ?",
        (*sent.cause, sent.caller.name),
    )
    if count >= VERDICTS_MAX:
        raise TooManyVerdicts(
            f"this operator has recorded {count} different verdicts on the cause of this run, the most allowed; "
            "honest runs for one cause have one hash"
        )


async def _told_within_the_hour(tx: Transaction, sent: Sent) -> int | None:
    """The note by which the operator said within the hour that runs of the trigger are skipped."""
    reason = sent.checked.new.reason
    if reason is None or reason.code not in HOURLY:
        return None
    rows = await tx.fetch(
        f"""SELECT seq FROM runs JOIN run_records ON run_seq = seq
            WHERE trigger_seq = ? AND result = 'skipped' AND runs.created_at_ms > ?
              AND reason IN ({placeholders(len(HOURLY))}) AND operator = ?
            ORDER BY seq DESC LIMIT 1""",
        (sent.trigger_seq, sent.now_ms - _HOUR_MS, *HOURLY, sent.caller.name),
    )
    return rows[0][0] if rows else None


async def _remove_notes(tx: Transaction, sent: Sent) -> None:
    notes = f"SELECT seq FROM runs WHERE {_CAUSE} AND verdict = 0"
    await tx.execute(f"DELETE FROM run_records WHERE run_seq IN ({notes})", sent.cause)
    await tx.execute(f"DELETE FROM runs WHERE {_CAUSE} AND verdict = 0", sent.cause)


async def _insert(tx: Transaction, sent: Sent, *, is_disputed: bool) -> int:
    newest = await tx.fetch_one("SELECT created_at_ms FROM runs ORDER BY created_at_ms DESC LIMIT 1")
    created_at_ms = await date_row(tx, sent.now_ms, newest[0] if newest else 0)
    checked, new = sent.checked, sent.checked.new
    record_text = _record_of(sent, created_at_ms)
    more = [encode(line).decode() for line in new.logs[LOGS_SHOWN:]]
    values: dict[LiteralString, object] = {
        "hash": checked.hash, "trigger_seq": sent.trigger_seq, "trigger_type": new.trigger_type,
        "payload_hash": checked.payload_hash, "result": new.result,
        "reason": None if new.reason is None else new.reason.code, "verdict": int(checked.is_verdict),
        "disputed": int(is_disputed), "relayer": sent.relayer,
        "outputs": b"".join(each.hash.raw for each in new.outputs),
        "min_validations": sent.min_validations, "created_at_ms": created_at_ms, "record_bytes": len(record_text),
        "record": record_text.decode(), "more_logs": ",".join(more),
        "detail": encode(RunDetail(inputs=new.inputs, context=new.context)).decode(),
    }  # fmt: skip
    ((seq,),) = await tx.fetch(
        f"INSERT INTO runs ({', '.join(values)}) VALUES ({placeholders(len(values))}) RETURNING seq",
        list(values.values()),
    )
    return seq


def _record_of(sent: Sent, created_at_ms: int) -> bytes:
    """The members that never change and that listings show, as JSON."""
    new = sent.checked.new
    given: dict[str, Any] = {name: getattr(new, name) for name in RecordedRun.__struct_fields__ if hasattr(new, name)}
    computed: dict[str, Any] = {
        "hash": Bytes32.from_raw(sent.checked.hash), "relayer": Address.from_raw(sent.relayer),
        "logs": new.logs[:LOGS_SHOWN], "logs_cut": new.logs_cut or None, "created_at": iso_time(created_at_ms),
    }  # fmt: skip
    members = {**given, **computed}
    return encode(RecordedRun(**{name: value for name, value in members.items() if value is not None}))


async def _add_record(tx: Transaction, sent: Sent, seq: int, n: int) -> None:
    await tx.execute(
        """INSERT INTO run_records (run_seq, n, operator, relayer, evidence, created_at_ms)
           VALUES (?, ?, ?, ?, ?, ?)""",
        (seq, n, sent.caller.name, sent.relayer, sent.checked.evidence, sent.now_ms),
    )


async def _note_change(tx: Transaction, seq: int, now_ms: int) -> None:
    """Let the row tell that its records have changed."""
    await tx.execute("UPDATE runs SET version = version + 1, changed_at_ms = ? WHERE seq = ?", (now_ms, seq))


class _Blocks(msgspec.Struct, rename="camel"):
    """The members of a run's record that name blocks."""

    trigger_type: int
    trigger_data: str
    blocks: list[RunBlock]

    def has(self, orphaning: Orphaning) -> bool:
        """Whether the run depends on a block: that of its event, or one at which it read."""
        named = {(block.chain_id, block.hash) for block in self.blocks}
        if self.trigger_type == EVENT:
            payload = read_payload(EVENT, bytes.fromhex(self.trigger_data[2:]))
            if isinstance(payload, EventPayload):
                named.add((payload.chain_id, payload.block_hash))
        return (orphaning.chain_id, orphaning.block_hash) in named


_blocks_decoder: Final = msgspec.json.Decoder(_Blocks, dec_hook=decode_text)


async def orphan(
    tx: Transaction,
    run_hash: bytes,
    orphaning: Orphaning,
    caller: OperatorCaller,
    now_ms: int,
    admit: Callable[[], object],
) -> int:
    """Let an operator take back its record of a run, because a block was dropped; the number of the run.

    A repetition changes nothing. Raises `RunNotFound` for a run that this operator has not recorded, `InvalidRun` for a
    block that is not one of the run, and what `admit` raises.
    """
    rows = await tx.fetch(f"SELECT seq, record FROM runs WHERE hash = ?{tx.for_update}", (run_hash,))
    for seq, text in rows:
        own = await tx.fetch(
            "SELECT orphaned_at_ms FROM run_records WHERE run_seq = ? AND operator = ?", (seq, caller.name)
        )
        if not own:
            break
        if not _blocks_decoder.decode(text).has(orphaning):
            raise InvalidRun("neither the block of the run's event, nor one of its blocks", pointer="/blockHash")
        if own[0][0] is None:
            admit()
            await take_back(tx, seq, caller, now_ms)
            await operators.enter(tx, caller.name, "orphan run", run_hash, now_ms)
        return seq
    raise RunNotFound("this operator has recorded no run under this hash")


async def take_back(tx: Transaction, seq: int, caller: OperatorCaller, now_ms: int) -> None:
    """Mark an operator's record of a run as taken back."""
    await tx.execute(
        "UPDATE run_records SET orphaned_at_ms = ? WHERE run_seq = ? AND operator = ?", (now_ms, seq, caller.name)
    )
    await _note_change(tx, seq, now_ms)
