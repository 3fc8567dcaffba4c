from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from builders import Wallet
from each_row import each_row
from muniment.chains.catalogue import CATALOGUE
from muniment.protocol.errors import HashMismatch, InvalidIntent
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import sign
from muniment.protocol.intents.hashes import intent_hash, proposal_hash, settlement_digest
from muniment.protocol.intents.rules import (
    HEAD_BYTES_MAX,
    PROPOSAL_BYTES_MAX,
    CheckedIntent,
    chains_of,
    check_intent,
    check_log,
    check_proposal,
    timeless,
)
from muniment.protocol.intents.types import Hashed, NewIntent, NewLog, NewProposal
from muniment.protocol.wire import encode, iso_time
from settler import read

VECTORS = Path(__file__).parents[2] / "vectors/evm"
CASE = json.loads((VECTORS / "intent_hash.json").read_text())["cases"][1]
INTENT: dict[str, Any] = {**CASE["intent"], "deadline": "1795290480"}
HASH = Bytes32.from_raw(intent_hash(read(Hashed, INTENT)))
OTHER = Bytes32("0x" + "12" * 32)
SETTLER = Address.parse(INTENT["settler"])
NOW_MS = 1_795_204_080_123
CHAINS = {
    1: CATALOGUE[1],
    10: replace(CATALOGUE[10], settlers=(SETTLER,)),
    8453: replace(CATALOGUE[8453], settlers=(SETTLER,)),
    137: CATALOGUE[137],
}
PROPOSAL: dict[str, Any] = {**CASE["proposal"], "solver": Wallet(31).address}
LOG: dict[str, Any] = {"level": "info", "data": "line", "createdAt": "2026-11-20T19:48:00.123Z"}


def checked(intent: dict[str, Any], path_hash: Bytes32 | None = None, now_ms: int = NOW_MS) -> CheckedIntent:
    return check_intent(read(NewIntent, intent), path_hash, protocol="Mimic", chains=CHAINS, now_ms=now_ms)


def pointers(refusal: pytest.ExceptionInfo[Any]) -> list[str | None]:
    return [fault.pointer for fault in refusal.value.faults]


@each_row("path_hash", [None, HASH])
@each_row("body_hash", [{}, {"hash": HASH}, {"hash": None}, {"hash": HASH.upper().replace("X", "x")}])
def test_an_intent_has_the_hash_of_its_fields(path_hash: Bytes32 | None, body_hash: dict[str, Any]) -> None:
    assert checked({**INTENT, **body_hash}, path_hash).hash == HASH.raw


@each_row(
    ("path_hash", "body", "pointer", "parameter"),
    [
        pytest.param(OTHER, {}, None, "hash", id="of the path"),
        pytest.param(OTHER, {"hash": HASH}, None, "hash", id="of the path, not that of the body"),
        pytest.param(None, {"hash": OTHER}, "/hash", None, id="of the body"),
        pytest.param(HASH, {"hash": OTHER}, "/hash", None, id="of the body, not that of the path"),
        pytest.param(OTHER, {"hash": OTHER}, None, "hash", id="of both"),
    ],
)
def test_a_hash_of_other_fields_is_refused_with_the_one_computed(
    path_hash: Bytes32 | None, body: dict[str, Any], pointer: str | None, parameter: str | None
) -> None:
    with pytest.raises(HashMismatch) as caught:
        checked({**INTENT, **body}, path_hash)

    assert caught.value.facts == {"computed": HASH}
    assert [(fault.pointer, fault.parameter) for fault in caught.value.faults] == [(pointer, parameter)]


def sized(shape: Any, value: dict[str, Any], bytes_wanted: int) -> dict[str, Any]:
    """`value` with as much data as its JSON has place for; hex takes two bytes at a time."""
    spare = bytes_wanted - len(encode(read(shape, {**value, "data": "0x"})))
    return {**value, "data": "0x" + "ab" * (spare // 2)}


def test_an_intent_of_the_largest_size_is_taken_whatever_hangs_on_it() -> None:
    largest = sized(NewIntent, {**INTENT, "proposals": [], "logs": []}, HEAD_BYTES_MAX)
    many = {
        "proposals": [{**PROPOSAL, "deadline": str(n), "data": "0x" + "00" * 15_000} for n in range(20)],
        "logs": [LOG],
    }

    assert len(checked({**largest, **many}).proposals) == 20


def test_a_larger_intent_is_refused() -> None:
    with pytest.raises(InvalidIntent, match="262144"):
        checked(sized(NewIntent, INTENT, HEAD_BYTES_MAX + 2))


def test_a_larger_proposal_is_refused_where_it_stands() -> None:
    largest, larger = (sized(NewProposal, PROPOSAL, PROPOSAL_BYTES_MAX + more) for more in (0, 2))

    assert len(checked({**INTENT, "proposals": [largest]}).proposals) == 1
    with pytest.raises(InvalidIntent, match="65536") as caught:
        checked({**INTENT, "proposals": [largest, larger]})
    assert pointers(caught) == ["/proposals/1"]


@each_row(("now_ms", "fine"), [(1_795_290_479_999, False), (1_795_290_480_000, True)])
def test_an_intent_is_expired_only_when_its_deadline_has_passed(now_ms: int, *, fine: bool) -> None:
    expired = {**INTENT, "status": "expired"}
    if fine:
        assert checked(expired, now_ms=now_ms).new.status == "expired"
    else:
        with pytest.raises(InvalidIntent) as caught:
            checked(expired, now_ms=now_ms)
        assert pointers(caught) == ["/status"]


@each_row("status", ["created", "enqueued", "discarded", "submitted", "succeeded", "failed"])
def test_an_intent_of_any_other_status_is_taken_before_and_after_its_deadline(status: str) -> None:
    for now_ms in (0, NOW_MS * 2):
        assert checked({**INTENT, "status": status}, now_ms=now_ms).new.status == status


def test_proposals_have_their_hashes_and_come_once() -> None:
    later = {**PROPOSAL, "deadline": "1"}
    again = {**PROPOSAL, "description": "the same offer in other words"}

    proposals = checked({**INTENT, "proposals": [PROPOSAL, later, again]}).proposals

    assert [each.hash for each in proposals] == [
        proposal_hash(HASH.raw, read(NewProposal, each)) for each in (PROPOSAL, later)
    ]
    assert proposals[0].new.description == ""


@each_row(("chain_id", "verified"), [(10, True), (8453, True), (1, False)])
def test_a_proposal_is_verified_on_the_chains_of_its_settler(chain_id: int, *, verified: bool) -> None:
    digest = settlement_digest(proposal_hash(HASH.raw, read(NewProposal, PROPOSAL)), "Mimic", chain_id, SETTLER)
    signed = read(NewProposal, {**PROPOSAL, "signatures": [sign(digest, Wallet(31).key)]})

    assert check_proposal(HASH.raw, SETTLER, signed, protocol="Mimic", chains=CHAINS).signed.verified is verified
    assert check_proposal(HASH.raw, SETTLER, signed, protocol="Other", chains=CHAINS).signed.verified is False


def test_a_proposal_is_not_judged_without_a_signature_or_a_configured_settler() -> None:
    unsigned = read(NewProposal, PROPOSAL)
    signed = read(NewProposal, {**PROPOSAL, "signatures": [sign(bytes(32), Wallet(31).key)]})
    elsewhere = Address.parse("0x" + "77" * 20)

    assert check_proposal(HASH.raw, SETTLER, unsigned, protocol="Mimic", chains=CHAINS).signed.verified is None
    assert check_proposal(HASH.raw, elsewhere, signed, protocol="Mimic", chains=CHAINS).signed.verified is None


def test_the_chains_of_a_settler_are_those_that_are_configured_with_it() -> None:
    assert [chain.id for chain in chains_of(CHAINS, SETTLER)] == [10, 8453]
    older = {10: replace(CHAINS[10], settlers=(Address.parse("0x" + "78" * 20), SETTLER))}
    assert [chain.id for chain in chains_of(older, SETTLER)] == [10]
    assert chains_of(CHAINS, Address.parse("0x" + "77" * 20)) == []


def identity(**members: Any) -> bytes:
    return check_log(read(NewLog, {**LOG, **members}), NOW_MS).identity


def test_a_log_is_what_its_writer_calls_it() -> None:
    assert identity(id="a") == identity(id="a", data="other", level="error", createdAt=None)
    assert identity(id="a") != identity(id="b")


def test_a_log_without_a_name_is_its_time_level_and_text() -> None:
    others: list[dict[str, Any]] = [
        {}, {"data": "line "}, {"level": "warning"}, {"createdAt": "2026-11-20T19:48:00.124Z"}, {"id": "line"},
        {"id": '[1795204080123,"info","line"]'}, {"data": 'line","x'},
    ]  # fmt: skip

    assert identity() == identity()
    assert len({identity(**other) for other in others}) == len(others)
    assert all(len(identity(**other)) == 32 for other in others)


def test_a_log_of_no_time_is_of_now() -> None:
    undated = {name: value for name, value in LOG.items() if name != "createdAt"}

    first, second = (check_log(read(NewLog, undated), now_ms) for now_ms in (NOW_MS, NOW_MS + 1))

    assert (first.created_at_ms, first.level, first.data, first.id) == (NOW_MS, "info", "line", None)
    assert first.identity == check_log(read(NewLog, {**LOG, "createdAt": iso_time(NOW_MS)}), 0).identity
    assert first.identity != second.identity


def test_a_whole_intent_that_is_sent_again_later_has_the_same_logs() -> None:
    undated = {name: value for name, value in LOG.items() if name != "createdAt"}
    intent = {**INTENT, "logs": [LOG, LOG, undated, {**LOG, "id": "a"}, {**undated, "id": "a"}]}

    first, second = (checked(intent, now_ms=now_ms).logs for now_ms in (NOW_MS, NOW_MS + 60_000))

    assert [log.identity for log in first] == [log.identity for log in second]
    assert [(log.id, log.created_at_ms) for log in second] == [(None, NOW_MS), (None, NOW_MS + 60_000), ("a", NOW_MS)]


def test_a_line_is_known_again_in_an_intent_without_its_time() -> None:
    undated = {name: value for name, value in LOG.items() if name != "createdAt"}
    (dated,) = checked({**INTENT, "logs": [LOG]}).logs
    (line,) = checked({**INTENT, "logs": [undated]}).logs

    assert timeless(dated) == timeless(line) == line.identity != dated.identity


@each_row(
    "text",
    [
        "2026-02-30T00:00:00.000Z", "2026-13-01T00:00:00.000Z", "2026-11-20T24:00:00.000Z", "2026-11-20T19:60:00.000Z",
        "2026-11-20T19:48:60.000Z", "1969-12-31T23:59:59.999Z", "0000-01-01T00:00:00.000Z", "2025-02-29T00:00:00.000Z",
        "2026-11-20T19:48:00.123Z\n",
    ],
)  # fmt: skip
def test_a_time_that_is_none_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(InvalidIntent) as caught:
        check_log(read(NewLog, {**LOG, "createdAt": text}), NOW_MS)
    assert pointers(caught) == ["/createdAt"]

    with pytest.raises(InvalidIntent) as caught:
        checked({**INTENT, "logs": [LOG, {**LOG, "createdAt": text}]})
    assert pointers(caught) == ["/logs/1/createdAt"]


@each_row("text", ["٢٠٢٦-11-20T19:48:00.123Z", "2026-11-20T19:48:00.12٣Z"])
def test_digits_of_other_scripts_are_no_time(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"regex .* at `\$\.createdAt`"):
        read(NewLog, {**LOG, "createdAt": text})


@given(st.integers(0, 253_402_300_799_999))
def test_every_time_up_to_the_year_9999_is_read_as_it_is_written(milliseconds: int) -> None:
    assert check_log(read(NewLog, {**LOG, "createdAt": iso_time(milliseconds)}), 0).created_at_ms == milliseconds
