"""The endpoints of runs. Their paths say executions, as those of the field do."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from muniment.protocol import errors
from muniment.protocol.errors import RunNotFound, TriggerNotFound
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.runs import rules
from muniment.protocol.runs.types import NewRun, Orphaning, Run
from muniment.service.context import Context
from muniment.service.http.openapi import LISTED, TAGGED
from muniment.service.http.operation import Operation, operation
from muniment.service.http.paging import answer_page
from muniment.service.http.reply import JSON, Ready, Streamed, etag_matches
from muniment.service.http.request import Request
from muniment.service.resources.operators import OperatorCaller
from muniment.service.resources.runs import listing, recording, store
from muniment.service.resources.runs.queries import RunQuery
from muniment.service.resources.triggers.terms import find_terms
from muniment.service.running.limits.costs import PAGE, Cost, Shed

if TYPE_CHECKING:
    from muniment.service.storage.database import Transaction

# Besides the runs, each of which is put together, four statements.
_PAGE: Final = replace(PAGE, units=6)
_WHOLE: Final = Cost(4, sent_bytes_per_unit=64 * 1024)
# Of the whole SHA-256, as much as needs to differ.
_ETAG_DIGITS: Final = 32


@operation("GET", "/executions", cost=_PAGE, sheds=Shed.PAGE, answers=LISTED)
async def list_runs(context: Context, request: Request, query: RunQuery) -> Ready[list[Run]] | Streamed:
    """List runs.

    They come without their inputs and context, and with the first 50 lines of their logs. Newest first unless
    `sort=1`. `triggerSigs` with `latest=1` lists the newest run of each of these triggers that matches the other
    filters. `relayer` finds the runs that this relayer recorded first.

    A page ends before its limit when it would be longer than 8 MiB (1 MiB with a `cursor`); a `next` link then leads
    on. Notes (`missed`, `skipped`, `incomplete`, and `stopped` for the time or the machine) are removed when a verdict
    on the same cause is recorded, and after 90 days (a setting), as are other runs without intents.
    """
    reader = context.list_reader()
    numbers = context.epochs.numbers(reader, "runs")
    client = context.clients.address(request)
    return await answer_page(request, query, numbers, lambda: listing.search(reader, query, client))


@operation(
    "GET", "/executions/{hash}", cost=_WHOLE, sheds=Shed.READ, refuses=(RunNotFound,),
    answers=TAGGED, headers_read={"if-none-match": "ETags that the client has"},
)  # fmt: skip
async def get_run(context: Context, request: Request, hash: Bytes32) -> Ready[Run]:
    """Read a run with all that it read and logged.

    Inputs, context, blocks and logs are those that the first relayer sent. `validations` counts operators of this
    registry: to a stranger it proves nothing. Running the function again with the answers of nodes does.
    """
    text = await store.find(context.database, hash.raw)
    if text is None:
        raise RunNotFound("no run is recorded under this hash")
    body = text.encode()
    etag = f'"{sha256(body).hexdigest()[:_ETAG_DIGITS]}"'
    headers = (JSON, (b"etag", etag.encode()))
    if etag_matches(request.header(b"if-none-match"), etag):
        return Ready(b"", headers, 304)
    return Ready(body, headers)


@operation(
    "POST", "/executions", cost=8, sheds=Shed.NEVER,
    refuses=(
        TriggerNotFound, errors.InvalidRun, errors.RunMismatch, errors.SignatureMismatch, errors.BodyTooLarge,
        errors.TooManyVerdicts, errors.ClockInDoubt, errors.DiskAlmostFull,
    ),
)  # fmt: skip
async def record_run(context: Context, caller: OperatorCaller, body: NewRun) -> Ready[Run]:
    """Record a run.

    The hash is computed again from the trigger's `sig`, its type, `triggerData`, the result and the hashes of the
    outputs, so relayers with equal results share one run. It is `valid` when as many operators as the trigger's
    `minValidations` have recorded it.

    The results `intents` and `nothing`, and `stopped` for what the function did, are verdicts. Others are notes about
    one relayer: they are not counted, and if a verdict on the same cause is recorded, that is returned. Two
    different verdicts on one cause list each other in `conflicts`.

    An output that is recorded must be an intent of this trigger. An operator that took its record back, and records the
    run again, undoes that.

    The answer is as in a listing. The answer to GET can be sent back unchanged.
    """
    found = await find_terms(context.database, body.trigger_sig)
    if found is None:
        raise TriggerNotFound(f"no trigger is registered under {body.trigger_sig}")
    trigger_seq, terms = found
    now_ms = context.clock.now_ms()
    # A clock in doubt calls no run early.
    at_ms = max(now_ms, body.timestamp) if context.clock.doubt() else now_ms
    checked = rules.check_run(body, terms, caller.address, at_ms)

    def admit() -> None:
        """Nothing new is dated while the clock is in doubt; what is recorded has its date."""
        context.clock.require()
        context.disk.require()

    sent = recording.Sent(checked, trigger_seq, terms.min_validations, caller, now_ms, admit)

    async def write(tx: Transaction) -> tuple[str, bool]:
        done = await recording.record(tx, sent)
        return await _shown(tx, done.seq), done.is_new

    text, is_new = await context.database.write(write, order=body.trigger_sig.raw)
    _count(context, text, body.result, is_new=is_new)
    return Ready(text.encode())


class _Standing(msgspec.Struct):
    """The members of an answer that are counted."""

    status: str
    conflicts: list[str]


def _count(context: Context, text: str, result: str, *, is_new: bool) -> None:
    """Count a run that an operator sent, with the answer `text`."""
    standing = msgspec.json.decode(text, type=_Standing)
    context.metrics.counter("runs_total", result=result, status=standing.status).add()
    if is_new and standing.conflicts:
        context.metrics.counter("run_conflicts_total").add()


@operation(
    "POST", "/executions/{hash}/orphan", cost=8, sheds=Shed.NEVER,
    refuses=(RunNotFound, errors.InvalidRun, errors.DiskAlmostFull),
)  # fmt: skip
async def orphan_run(context: Context, caller: OperatorCaller, hash: Bytes32, body: Orphaning) -> Ready[Run]:
    """Take back a record of a run whose block is not canonical any more.

    The block is that of the run's event, or one at which the run read. Only the caller's own record is taken back: the
    run is `invalid` once all operators that count have taken theirs back. Repeating it is allowed. When the block comes
    back, record the run again.
    """
    now_ms = context.clock.now_ms()

    async def write(tx: Transaction) -> str:
        return await _shown(tx, await recording.orphan(tx, hash.raw, body, caller, now_ms, context.disk.require))

    return Ready((await context.database.write(write, order=hash.raw)).encode())


async def _shown(tx: Transaction, seq: int) -> str:
    """The run as a listing shows it, read in the transaction that wrote it."""
    ((_, text),) = await store.listed(tx, [seq])
    return text


OPERATIONS: Final[tuple[Operation, ...]] = (get_run, list_runs, orphan_run, record_run)
