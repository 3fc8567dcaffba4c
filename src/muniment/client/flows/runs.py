"""Runs: read them, and as an operator record them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from muniment.client import proof
from muniment.client.answers import Page, check_length, decode
from muniment.client.failures import Forged
from muniment.client.flows.listing import OnForged, proved_page
from muniment.client.flows.session import POSTED, check_same, target
from muniment.client.steps import Flow, Send
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.hashes import hash_of
from muniment.protocol.runs.reasons import HOURLY, is_verdict
from muniment.protocol.runs.types import TRIGGER_SIGS_MAX, Orphaning, Run
from muniment.protocol.wire import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.client.flows.session import Session
    from muniment.protocol.runs.types import NewRun


def get(session: Session, hash_: str) -> Flow[Run]:
    """The run with this hash, whole."""
    asked = Bytes32.parse(hash_)
    run = yield from session.read(target("/executions/{}", asked), Run)
    check_same(run.hash, asked, "run")
    if session.verifies:
        proof.check_run(run)
        proof.check_evidence(run)
    return run


def page(
    session: Session,
    cursor: str | None,
    filters: Mapping[str, object],
    sort: int,
    limit: int = 100,
    on_forged: OnForged = None,
) -> Flow[Page[Run]]:
    """A page of runs, each without `inputs`, `context` and the lines of its log after the first 50.

    `sort` is 1 for the oldest first, -1 for the newest first. A forged run is raised, or given to `on_forged` and left
    out.
    """

    def check(run: Run) -> Flow[None]:
        yield from ()  # a run proves itself
        _check_listed(run, filters)
        _check(session, run)

    asked = target("/executions", sort=sort, limit=limit, cursor=cursor, **filters)
    return proved_page(session, asked, limit, lambda reply: decode(reply, list[Run]), check, on_forged)


def latest(session: Session, sigs: Sequence[str]) -> Flow[dict[str, Run]]:
    """The newest run of each of these triggers, by signature; triggers without a run are left out."""
    asked = [Signature.parse(sig) for sig in sigs]
    found: dict[str, Run] = {}
    for start in range(0, len(asked), TRIGGER_SIGS_MAX):
        some = asked[start : start + TRIGGER_SIGS_MAX]
        listed = yield from session.read(
            target("/executions", triggerSigs=some, latest=1, limit=TRIGGER_SIGS_MAX), list[Run]
        )
        check_length(listed, len(some))
        for run in listed:
            if run.trigger_sig not in some or run.trigger_sig in found:
                raise Forged(f"run {run.hash} of trigger {run.trigger_sig} was not asked for")
            _check(session, run)
            found[run.trigger_sig] = run
    return found


def record(session: Session, new: NewRun) -> Flow[Run]:
    """Record a run; idempotent.

    Where `new` is a note, the answer may be the verdict on what was due; and where it says that the trigger is at a
    cap, an earlier note that said so.
    """
    send = Send("POST", "/executions", encode(new), {**POSTED, **session.operator_headers()})
    run = decode((yield from session.answered(send)), Run)
    check_same(run.trigger_sig, new.trigger_sig, "trigger")
    if not (_is_hourly(new) and _is_hourly(run)):
        check_same((run.trigger_type, run.trigger_data), (new.trigger_type, new.trigger_data), "cause")
        if _is_verdict(new) or not _is_verdict(run):
            check_same(run.hash, "0x" + hash_of(new).hex(), "run")
    _check(session, run)
    return run


def orphan(session: Session, hash_: str, chain_id: int, block_hash: str) -> Flow[Run]:
    """Say that the block of an event is not canonical any more, as an operator that recorded the run; idempotent.

    Raises `Forged` for an answer that does not show it.
    """
    asked = Bytes32.parse(hash_)
    body = encode(Orphaning(chain_id=chain_id, block_hash=Bytes32.parse(block_hash)))
    path = target("/executions/{}/orphan", asked)
    reply = yield from session.answered(Send("POST", path, body, {**POSTED, **session.operator_headers()}))
    run = decode(reply, Run)
    check_same(run.hash, asked, "run")
    _check(session, run)
    if not any(each.orphaned is True for each in run.records):
        raise Forged(f"the service claims that run {hash_} is orphaned, but shows no record that says so")
    return run


def _is_verdict(run: NewRun | Run) -> bool:
    return is_verdict(run.result, run.reason.code if run.reason else None)


def _is_hourly(run: NewRun | Run) -> bool:
    return bool(run.reason) and run.reason.code in HOURLY


def _check(session: Session, run: Run) -> None:
    if not session.verifies:
        return
    proof.check_run(run)
    if run.inputs is not UNSET:
        proof.check_evidence(run)


def _check_listed(run: Run, filters: Mapping[str, object]) -> None:
    """Check that a listing has what was asked for."""
    for name, value in (("triggerSig", run.trigger_sig), ("relayer", run.relayer), ("result", run.result)):
        asked = filters.get(name)
        # Hex digits may be given in either case.
        if asked is not None and str(asked).lower() != str(value).lower():
            raise Forged(f"a listing for the {name} {asked} has run {run.hash} of {value}")
