"""Operations whose repetition would change something, and those that find out what a lost answer meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from feeding import LOST, ME, UNSENT, Fed, Outcome, answer, refused

from builders import Wallet
from muniment.client import Forged, Reply, Unreachable
from muniment.client.flows import intents, login
from muniment.client.flows.log import proving
from muniment.client.retrying import PASSING
from muniment.client.steps import Send
from muniment.protocol.errors import (
    Absent,
    DatabaseUnavailable,
    Forbidden,
    Limited,
    Refusal,
    StatusConflict,
    Unauthenticated,
    Unavailable,
)
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import Intent, NewLog, StatusChange
from muniment.protocol.triggers.types import Trigger
from operator_client import IntentDraft

NONCE = "0x" + "2a" * 32
HASH = IntentDraft(1).hash
PROPOSAL = "0x" + "77" * 32
KEY = f"mnk_0a1b2c3d_{ME.address[2:].lower()}_1_" + "0" * 64


def nonce(text: str = NONCE, address: str = ME.address) -> Reply:
    return answer({"address": address, "nonce": text})


def logged_in(address: str = ME.address) -> Reply:
    return answer({"address": address, "token": "token"})


def intent(status: str, **members: Any) -> Reply:
    own = {
        "hash": HASH, "executionHash": "0x", "createdAt": "2026-11-20T19:48:00.123Z", "status": status,
        "generation": 1, "proposals": [], "logs": [],
    }  # fmt: skip
    return answer({**IntentDraft(1).body, **own, **members})


def move(fed: Fed, outcomes: Sequence[Outcome], status: str = "enqueued", proposal: str | None = None) -> Any:
    change = intents.new_change(status, proposal, None)
    return fed.run(intents.move(fed.session(verifies=False), HASH, change), outcomes)


@pytest.mark.parametrize("loss", [LOST, refused(502), refused(503, "database-unavailable"), refused(504)])
def test_a_login_whose_answer_is_lost_is_begun_again_with_a_new_nonce(loss: Outcome) -> None:
    fed = Fed()
    second = "0x" + "3b" * 32
    session = fed.session()
    assert fed.run(login.log_in(session), [nonce(), loss, nonce(second), logged_in()]) == "token"
    assert (fed.signed, session.token) == ([NONCE, second], "token")


def test_a_login_is_given_up_after_six_nonces() -> None:
    fed = Fed()
    with pytest.raises(Unreachable):
        fed.run(login.log_in(fed.session()), [nonce(), LOST] * 6)


def test_a_login_that_is_refused_is_not_begun_again() -> None:
    fed = Fed()
    with pytest.raises(Unauthenticated):
        fed.run(login.log_in(fed.session()), [nonce(), refused(401)])


@pytest.mark.parametrize(
    "text",
    [
        "0x" + "2a" * 31, "0x" + "2a" * 33, "0x" + "2a" * 65, "0x" + "2A" * 32 + "00", NONCE + "," + NONCE,
        NONCE + "\n", NONCE[2:], "I hereby pay everything", "",
    ],
)  # fmt: skip
def test_a_text_that_is_no_nonce_is_not_signed(text: str) -> None:
    fed = Fed()
    with pytest.raises(Forged):
        fed.run(login.log_in(fed.session()), [nonce(text)])
    assert fed.signed == []


def test_the_nonce_and_the_token_of_another_address_are_forged() -> None:
    fed = Fed()
    with pytest.raises(Forged):
        fed.run(login.log_in(fed.session()), [nonce(address=Wallet(8).address)])
    assert fed.signed == []
    session = fed.session()
    with pytest.raises(Forged):
        fed.run(login.log_in(session), [nonce(), logged_in(address=Wallet(8).address)])
    assert session.token is None


def test_a_token_that_is_not_accepted_any_more_is_replaced_once() -> None:
    fed = Fed()
    session = fed.session(token="old")
    balances = [answer([])]
    assert fed.run(login.balances(session), [refused(401), nonce(), logged_in(), *balances]) == []
    assert [send.headers["x-auth-token"] for send in fed.sent if "tokens" in send.target] == ["old", "token"]
    with pytest.raises(Unauthenticated):
        fed.run(login.balances(fed.session(token="old")), [refused(401), nonce(), logged_in(), refused(401)])


@pytest.mark.parametrize("loss", [LOST, refused(502), refused(503), refused(504), refused(500)])
def test_a_rotation_whose_answer_is_lost_is_never_repeated(loss: Outcome) -> None:
    fed = Fed()
    session = fed.session(token="token", api_key="first")
    with pytest.raises((Unreachable, Refusal)):
        fed.run(login.rotate_api_key(session), [loss])
    assert session.api_key == "first"


def test_a_rotation_that_was_not_sent_is_sent_again() -> None:
    fed = Fed()
    session = fed.session(token="token", api_key="first")
    key = answer({"address": ME.address, "apiKey": KEY})
    assert fed.run(login.rotate_api_key(session, 60), [UNSENT, key]) == KEY
    assert (session.api_key, json.loads(fed.sent[-1].body or b"")) == (KEY, {"graceSeconds": 60})


def test_the_api_key_of_another_address_is_forged() -> None:
    other = answer({"address": Wallet(8).address, "apiKey": KEY})
    for operation in (login.api_key, login.rotate_api_key):
        fed = Fed()
        session = fed.session(token="token")
        with pytest.raises(Forged, match="but got"):
            fed.run(operation(session), [other])
        assert session.api_key is None


def test_the_profile_of_another_address_is_forged() -> None:
    fed = Fed()
    other = answer({"userAddress": Wallet(8).address, "name": "", "intendedUse": "", "email": None})
    with pytest.raises(Forged, match="but got"):
        fed.run(login.profile(fed.session(token="token")), [other])


@pytest.mark.parametrize("loss", [LOST, refused(502), refused(503), refused(504)])
@pytest.mark.parametrize("status", ["enqueued", "submitted", "succeeded", "failed", "expired"])
def test_a_move_whose_answer_is_lost_is_done_where_the_intent_is_there_or_beyond(loss: Outcome, status: str) -> None:
    fed = Fed()
    if status == "expired":
        # Time ends an intent, no move: only the service can say whether the move came first.
        with pytest.raises(StatusConflict):
            move(fed, [loss, intent(status), refused(409, "status-conflict")])
    else:
        assert move(fed, [loss, intent(status)]).status == status
        assert [send.method for send in fed.sent] == ["POST", "GET"]


def test_a_move_whose_answer_is_lost_is_sent_again_where_the_intent_has_not_moved() -> None:
    fed = Fed()
    outcomes: list[Outcome] = [LOST, intent("created"), refused(503), intent("created"), intent("enqueued")]
    assert move(fed, outcomes).status == "enqueued"
    assert [send.method for send in fed.sent] == ["POST", "GET", "POST", "GET", "POST"]


def test_a_move_is_given_up_after_six_losses() -> None:
    fed = Fed()
    with pytest.raises(Unreachable):
        move(fed, [LOST, intent("created")] * 5 + [LOST])
    with pytest.raises(DatabaseUnavailable):
        move(
            fed, [refused(503, "database-unavailable"), intent("created")] * 5 + [refused(503, "database-unavailable")]
        )


def test_a_move_that_is_refused_is_not_sent_again() -> None:
    fed = Fed()
    with pytest.raises(StatusConflict):
        move(fed, [refused(409, "status-conflict")])
    with pytest.raises(Forbidden):
        move(fed, [refused(403)])


@pytest.mark.parametrize(("status", "is_done"), [("received", False), ("accepted", True), ("submitted", True)])
def test_a_lost_move_of_a_proposal_is_read_from_the_proposal(status: str, is_done: bool) -> None:  # noqa: FBT001 - a column of the table
    fed = Fed()
    proposal = {
        "hash": PROPOSAL, "solver": ME.address, "data": "0x", "deadline": "1", "fees": [], "feeUsd": "0",
        "status": status, "description": "", "signatures": [], "verified": None, "signers": [],
    }  # fmt: skip
    found = intent("created", proposals=[proposal])
    moved = intent("created", proposals=[{**proposal, "status": "accepted"}])
    move(fed, [LOST, found] if is_done else [LOST, found, moved], "accepted", PROPOSAL)


def test_a_proposal_that_the_answer_to_its_move_leaves_out_is_read_with_the_intent() -> None:
    proposal = {
        "hash": PROPOSAL, "solver": ME.address, "data": "0x", "deadline": "1", "fees": [], "feeUsd": "0",
        "status": "accepted", "description": "", "signatures": [], "verified": None, "signers": [],
    }  # fmt: skip
    answered = intent("created")
    move(Fed(), [answered, intent("created", proposals=[proposal])], "accepted", PROPOSAL)
    for shown in (answered, intent("created", proposals=[{**proposal, "status": "received"}])):
        with pytest.raises(Forged):
            move(Fed(), [answered, shown], "accepted", PROPOSAL)


def test_a_lost_move_with_a_transaction_is_done_only_where_the_intent_names_it() -> None:
    fed = Fed()
    change = StatusChange(status="submitted", transaction_hash=decode_record("0x" + "55" * 32, intents.Bytes32))
    session = fed.session(verifies=False)
    without, with_it = intent("submitted"), intent("submitted", transactionHash="0x" + "55" * 32)
    assert isinstance(fed.run(intents.move(session, HASH, change), [LOST, without, with_it]), Intent)
    assert isinstance(fed.run(intents.move(session, HASH, change), [LOST, with_it]), Intent)


def log_line(change: Callable[[dict[str, Any]], dict[str, Any]] = lambda line: line) -> Callable[[Send], Reply]:
    """The answer to a line: the line itself, changed."""

    def respond(send: Send) -> Reply:
        return answer(change({**json.loads(send.body or b""), "createdAt": "2026-11-20T19:48:00.123Z"}))

    return respond


def test_a_log_line_has_the_same_id_at_each_try() -> None:
    fed = Fed()
    line = intents.new_line("info", "hello", None)
    found = fed.run(intents.log(fed.session(), HASH, line), [LOST, refused(503), refused(502), LOST, log_line()])
    assert len({send.body for send in fed.sent}) == 1
    assert found.id == json.loads(fed.sent[0].body or b"")["id"]
    fed.run(intents.log(fed.session(), HASH, line), [log_line()])
    assert fed.sent[-1].body != fed.sent[0].body, "another line has another id"


def test_a_log_line_keeps_the_id_that_its_author_gave() -> None:
    fed = Fed()
    fed.run(intents.log(fed.session(), HASH, intents.new_line("info", "hello", "mine/1")), [log_line()])
    assert json.loads(fed.sent[0].body or b"")["id"] == "mine/1"


@pytest.mark.parametrize("changed", [{"data": "good bye"}, {"id": "another"}])
def test_an_answer_with_another_line_is_forged(changed: dict[str, Any]) -> None:
    fed = Fed()
    line: NewLog = intents.new_line("info", "hello", None)
    with pytest.raises(Forged):
        fed.run(intents.log(fed.session(), HASH, line), [log_line(lambda sent: {**sent, **changed})])


def test_a_page_of_a_proxy_is_an_unavailable_service() -> None:
    fed = Fed()
    with pytest.raises(Unavailable, match="Bad gateway"):
        fed.run(login.balances(fed.session(token="token")), [refused(502)] * 6)


def test_a_service_that_is_away_is_not_forged_where_an_entry_of_the_log_is_made() -> None:
    trigger = decode_record(Trigger.example, Trigger)
    for status, kind in ((503, Unavailable), (429, Limited), (404, Absent)):
        with pytest.raises(kind):
            Fed().run(proving.entry_of(Fed().session(), trigger), [refused(status)] * (6 if status in PASSING else 1))


def test_an_intent_that_moves_while_a_listing_by_status_is_made_is_not_forged() -> None:
    """The service chooses the numbers of a page first, and reads their intents after that."""
    asked_and_shown = {
        ("created", "enqueued"): True, ("enqueued", "succeeded"): True, ("expired", "succeeded"): True,
        ("enqueued", "created"): False, ("succeeded", "submitted"): False, ("unknown", "created"): False,
    }  # fmt: skip
    for (asked, shown), is_honest in asked_and_shown.items():
        reply = intent(shown)
        listed = reply._replace(content=b"[" + reply.content + b"]")
        forged: list[Forged] = []
        Fed().run(
            intents.page(Fed().session(verifies=False), None, {"status": asked}, on_forged=forged.append), [listed]
        )
        assert (not forged) is is_honest, (asked, shown)
