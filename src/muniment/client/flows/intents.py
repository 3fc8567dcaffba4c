"""Intents: read them, and as an operator write them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec.structs import replace

from muniment.client import proof
from muniment.client.answers import Page, decode, decode_form, decode_forms
from muniment.client.failures import Forged, Unreachable
from muniment.client.flows.following import Follower
from muniment.client.flows.listing import OnForged, proved_page
from muniment.client.flows.session import JSON, POSTED, check_same, target
from muniment.client.steps import Flow, Send, Sleep
from muniment.protocol.errors import Unavailable
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash, proposal_hash
from muniment.protocol.intents.lifecycle import CAN_EXPIRE, INTENT_MOVES, PROPOSAL_MOVES, reachable
from muniment.protocol.intents.texts import LogId, LogText
from muniment.protocol.intents.types import (
    AnyIntent,
    AnyNewIntent,
    AnyNewProposal,
    AnyProposal,
    Intent,
    Log,
    Move,
    NewLog,
    StatusChange,
)
from muniment.protocol.wire import encode

if TYPE_CHECKING:
    from muniment.client.failures import Reply
    from muniment.client.flows.session import Session
    from muniment.protocol.evm.address import Address
    from muniment.protocol.intents.types import LogLevel

# What is written: a record, also one that a registry answered, or its members as in the JSON of the request.
GivenIntent: TypeAlias = AnyNewIntent | AnyIntent | Mapping[str, object]
GivenProposal: TypeAlias = AnyNewProposal | Mapping[str, object]


def get(session: Session, hash_: str) -> Flow[AnyIntent]:
    """The intent with this hash."""
    asked = Bytes32.parse(hash_)
    reply = yield from session.answered(Send("GET", target("/intents/{}", asked), headers=JSON))
    return _own(session, reply, asked)


def moves(session: Session, hash_: str) -> Flow[list[Move]]:
    """When the intent with this hash got each of its statuses. Nothing proves the times."""
    return (yield from session.read(target("/intents/{}/moves", Bytes32.parse(hash_)), list[Move]))


def page(
    session: Session,
    cursor: str | None,
    filters: Mapping[str, object],
    sort: int = 1,
    limit: int = 100,
    on_forged: OnForged = None,
) -> Flow[Page[AnyIntent]]:
    """A page of intents, with the newest 50 proposals and logs of each.

    `sort` is 1 for the oldest first, -1 for the newest first. A forged intent is raised, or given to `on_forged` and
    left out.
    """

    def check(intent: AnyIntent) -> Flow[None]:
        yield from ()  # an intent proves itself
        _check_listed(intent, filters)
        _check(session, intent)

    asked = target("/intents", sort=sort, limit=limit, cursor=cursor, generation="all", **filters)
    return proved_page(session, asked, limit, lambda reply: decode_forms(reply, AnyIntent), check, on_forged)


def follower(
    session: Session, after: str | None, filters: Mapping[str, object], poll_s: float, on_forged: OnForged
) -> Follower[AnyIntent]:
    """A place in the listing of intents: its beginning, or after the cursor `after`."""
    return Follower(
        session, lambda cursor: page(session, cursor, filters, on_forged=on_forged), after, poll_s,
        "muniment.intent.created", filters,
    )  # fmt: skip


def new_intent(given: GivenIntent) -> AnyNewIntent | AnyIntent:
    """An intent from its members, each checked. Raises the `Invalid` of the member that is wrong."""
    return decode_record({**given}, AnyNewIntent) if isinstance(given, Mapping) else given


def new_proposal(given: GivenProposal) -> AnyNewProposal:
    """A proposal from its members, each checked. Raises the `Invalid` of the member that is wrong."""
    return decode_record({**given}, AnyNewProposal) if isinstance(given, Mapping) else given


def put(session: Session, intent: AnyNewIntent | AnyIntent) -> Flow[AnyIntent]:
    """Record an intent; idempotent."""
    hash_ = Bytes32.parse("0x" + intent_hash(intent).hex())
    send = Send("PUT", target("/intents/{}", hash_), encode(intent), {**POSTED, **session.operator_headers()})
    return _own(session, (yield from session.answered(send)), hash_)


def propose(session: Session, hash_: str, offer: AnyNewProposal) -> Flow[AnyProposal]:
    """Append a proposal to an intent; a repetition returns the recorded proposal.

    The hash of a proposal does not cover its signatures. Where the answer has others, they have to be by the solver.
    """
    reply = yield from session.answered(_post(session, "proposals", hash_, encode(offer)))
    found = cast("AnyProposal", decode_form(reply, AnyProposal))
    intent = Bytes32.parse(hash_).raw
    check_same(found.hash, "0x" + proposal_hash(intent, offer).hex(), "proposal")
    if session.verifies:
        proof.check_proposal_hash(found, intent)
        if session.settlers and found.signatures != offer.signatures:
            settler = yield from _settler_of(session, Bytes32.parse(hash_))
            proof.check_proposal(found, intent, settler, session.protocol, session.settlers)
    return found


def _settler_of(session: Session, asked: Bytes32) -> Flow[Address]:
    """The settlement contract of an intent, proved by the intent's hash."""
    reply = yield from session.answered(Send("GET", target("/intents/{}", asked), headers=JSON))
    intent = cast("AnyIntent", decode_form(reply, AnyIntent))
    check_same("0x" + intent_hash(intent).hex(), asked, "intent")
    return intent.settler


def log(session: Session, hash_: str, line: NewLog) -> Flow[Log]:
    """Append a line to the log of an intent. An `id` makes repeated requests store it once."""
    named = line if line.id is not None else replace(line, id=LogId.parse(secrets.token_hex(16)))
    found = decode((yield from session.answered(_post(session, "logs", hash_, encode(named)))), Log)
    check_same((found.id, found.level, found.data), (named.id, named.level, named.data), "line")
    return found


def new_line(level: LogLevel, data: str, identity: str | None) -> NewLog:
    """A line for a log. Raises `InvalidText`."""
    return NewLog(level=level, data=LogText.parse(data), id=None if identity is None else LogId.parse(identity))


def new_change(status: str, proposal: str | None, transaction_hash: str | None) -> StatusChange:
    """A move. Raises `InvalidHex`."""
    given = [None if each is None else Bytes32.parse(each) for each in (proposal, transaction_hash)]
    return StatusChange(status=status, proposal=given[0], transaction_hash=given[1])


def move(session: Session, hash_: str, change: StatusChange) -> Flow[AnyIntent]:
    """Move an intent or one of its proposals to another status.

    After a lost answer the intent is read: it may have reached the status, or a later one. Raises `StatusConflict`, and
    `Forged` for an answer with an intent that has not moved.
    """
    send = _post(session, "status", hash_, encode(change), is_repeatable=False)
    begun_s, failures = session.retry.seconds(), 0
    while True:
        failures += 1
        try:
            found = _own(session, (yield from session.answered(send)), Bytes32.parse(hash_))
        except (Unreachable, Unavailable) as error:
            if (pause_s := session.retry.pause_after_loss(error, failures, begun_s)) is None:
                raise
        else:
            # The answer has the newest fifty proposals, and the intent by itself all.
            is_shown = change.proposal is None or any(each.hash == change.proposal for each in found.proposals)
            shown = found if is_shown else (yield from get(session, hash_))
            if not (_has_moved(shown, change) or _has_expired(shown, change)):
                raise Forged(f"the service claims to have moved {hash_} to {change.status}, but shows another status")
            return found
        yield Sleep(pause_s)
        found = yield from get(session, hash_)
        if _has_moved(found, change):
            return found


def _has_moved(intent: AnyIntent, change: StatusChange) -> bool:
    """Whether the intent, or the proposal of the change, has the status of the change, or a later one."""
    if change.proposal is None:
        moves, held = INTENT_MOVES, [intent]
    else:
        moves, held = PROPOSAL_MOVES, [each for each in intent.proposals if each.hash == change.proposal]
    if change.status not in moves:
        return False
    later = reachable(moves, change.status)
    return any(
        each.status in later
        or (each.status == change.status and change.transaction_hash in {None, each.transaction_hash})
        for each in held
    )


def _has_expired(intent: AnyIntent, change: StatusChange) -> bool:
    """Whether a moved intent reads as expired because its deadline has passed."""
    return change.proposal is None and change.status in CAN_EXPIRE and intent.status == "expired"


def _post(session: Session, what: str, hash_: str, body: bytes, *, is_repeatable: bool = True) -> Send:
    path = target(f"/intents/{{}}/{what}", Bytes32.parse(hash_))
    return Send("POST", path, body, {**POSTED, **session.operator_headers()}, is_repeatable=is_repeatable)


def _own(session: Session, reply: Reply, asked: Bytes32) -> AnyIntent:
    """The intent of an answer, which was asked for by its hash."""
    intent = cast("AnyIntent", decode_form(reply, AnyIntent))
    check_same(intent.hash, asked, "intent")
    _check(session, intent)
    return intent


def _check(session: Session, intent: AnyIntent) -> None:
    if session.verifies:
        proof.check_intent(intent, session.protocol, session.settlers)


def _may_follow(status: str, asked: str) -> bool:
    """Whether an intent that was in the status `asked` when a page was chosen may be in `status` when it is read.

    The chain decides, so any intent may turn out to be executed or not.
    """
    return asked in INTENT_MOVES and status in {asked, *reachable(INTENT_MOVES, asked), "succeeded", "failed"}


def _check_listed(intent: AnyIntent, filters: Mapping[str, object]) -> None:
    """Check that a listing has what was asked for."""
    if isinstance(intent, Intent):
        users, origin = {intent.user}, intent.config_sig
    else:
        users, origin = {intent.fee_payer, *(each.user for each in intent.operations)}, intent.trigger_sig
    held: dict[str, set[str]] = {"user": {*users}, "settler": {intent.settler}, "configSig": {origin}}
    if not _may_follow(intent.status, str(filters.get("status", intent.status))):
        held["status"] = {intent.status}
    for name, values in held.items():
        asked = filters.get(name)
        # Hex digits may be given in either case.
        if asked is not None and str(asked).lower() not in {each.lower() for each in values}:
            raise Forged(f"a listing for the {name} {asked} has intent {intent.hash} of {', '.join(sorted(values))}")
