"""Records that are verified as what they are: shortened, with settlement contracts of their own, of another engine."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from test_run_lies import Worlds, worlds

from chain import CHAIN_TESTS
from muniment.chains.catalogue import FIRST_SETTLER, Chain
from muniment.guest.sandbox import Sandbox
from muniment.protocol.errors import Invalid
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import address_of_key, personal_digest, sign
from muniment.protocol.intents.types import SECOND
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import RUN_BYTES_MAX, Engine, ReasonText
from muniment.protocol.runs.types import Run, RunReason
from muniment.protocol.wire import Amount, decode_text, encode, iso_time
from muniment.relayer.runner.engine import this_engine
from muniment.relayer.schedule.due import Due
from muniment.relayer.verify.comparing import Maker
from pinned_world import CHAIN_ID, Nodal, chain
from verified_world import (
    EVERY_MINUTE,
    FEE_LIMIT,
    OWNER,
    RECIPIENT,
    SIG,
    asking,
    asking_run,
    balance_run,
    cron,
    next_minute,
    nodal,
    proved,
    recorded,
    recorded_of,
    sandbox,
)

__all__ = ["chain", "nodal", "sandbox", "worlds"]
pytestmark = [*CHAIN_TESTS, pytest.mark.asyncio(loop_scope="module")]

OPTIMISM = Chain(10, "Another", settlers=(FIRST_SETTLER,))
HERE = Maker.of(this_engine())


async def test_the_generation_of_a_settlement_contract_is_that_of_its_chain(nodal: Nodal, sandbox: Sandbox) -> None:
    settler = nodal.chain.deploy("MiniSettlerLegacy")
    made = await balance_run(nodal, sandbox, settlers=(settler,))
    assert (await made.verify()).outcome == "same"
    alone = await made.verify(offline=True)
    assert alone.outcome == "unchecked"
    assert f"the generation of {settler} is not known" in alone.reasons[0]
    wrong = await balance_run(nodal, sandbox, settlers=(settler,), generations={settler: SECOND})
    assert wrong.run.result == "intents"
    assert (await wrong.verify()).outcome == "different"


async def test_settlement_contracts_of_chains_without_a_node_may_be_left_out_where_nothing_depends_on_them(
    worlds: Worlds, nodal: Nodal, sandbox: Sandbox
) -> None:
    for name in ("abort", "balance"):
        verified = await worlds[name].verify(others=[OPTIMISM])
        assert verified.outcome == "same"
        assert "not told the settlement contracts of chains 10" in verified.omissions[0]
    input = {"chainId": 10, "token": str(OWNER), "amount": "1", "recipient": str(RECIPIENT), "fee": "1"}
    second = next_minute(nodal)
    made = await recorded(nodal, sandbox, "transfer", input, due=cron(second), config=EVERY_MINUTE)
    assert made.run.result == "stopped"
    assert (await made.verify()).outcome == "same"
    for offline in (False, True):
        verified = await made.verify(others=[OPTIMISM], offline=offline)
        assert verified.outcome == "unchecked"
        assert "with them it comes to something else" in verified.reasons[0]
    made = await balance_run(nodal, sandbox, settlers=())
    assert (await made.verify()).outcome == "same"
    verified = await made.verify(settlers=(FIRST_SETTLER,))
    assert verified.outcome == "unchecked"
    assert f"was not told the settlement contract of chain {CHAIN_ID}" in verified.reasons[0]


async def test_fuel_is_compared_where_the_engine_is_the_same(worlds: Worlds) -> None:
    made = worlds["balance"]
    other = Engine(f"muniment 0.1.0, wasmtime 1.0.0, rules {HERE.rules}")
    run = made.changed(engine=other, fuel_used=Amount("7"))
    verified = await made.verify(run=run)
    assert (verified.outcome, verified.omissions) == ("same", (f"the fuel: {other} counted it",))
    ended = made.changed(engine=other, result="stopped", reason=RunReason(code="fuel"), outputs=[])
    assert (await made.verify(run=ended)).outcome == "unchecked"
    newer = Engine(f"muniment 9.0.0, wasmtime {HERE.wasmtime}, rules 999")
    verified = await made.verify(run=made.changed(engine=newer))
    told = f"made under rules 999; this program has rules {HERE.rules}"
    assert (verified.outcome, verified.reasons) == ("unchecked", (told,))
    assert (
        await made.verify(run=replace(made.with_answer(success=True, data="0x"), engine=newer))
    ).outcome == "unchecked"
    past = made.at_block(made.run.blocks[0].number - 1)
    assert (await made.verify(run=proved(replace(past, engine=newer)))).outcome == "different"


@pytest.mark.parametrize(
    ("text", "rules", "wasmtime"),
    [
        ("muniment 0.3.0, wasmtime 40.0.0", "1", "40.0.0"), ("muniment 0.3.0, wasmtime 40.0.0, rules 2", "2", "40.0.0"),
        ("another", "1", ""), ("rules", "1", ""), (", , rules 3", "3", ""),
    ],
)  # fmt: skip
async def test_an_engine_says_its_rules(text: str, rules: str, wasmtime: str) -> None:
    assert Maker.of(Engine.parse(text)) == Maker(rules, wasmtime)


async def test_a_reason_of_another_program_has_its_own_words(nodal: Nodal, sandbox: Sandbox) -> None:
    made = await asking_run(nodal, sandbox, asking(("api", {"url": 1.5})))
    assert made.run.reason
    assert made.run.reason.code == "bad-argument"
    other = RunReason(code="bad-argument", text=ReasonText("other words"))
    assert (await made.verify(run=made.changed(reason=other))).outcome == "different"
    engine = Engine(f"muniment 0.1.0, wasmtime {HERE.wasmtime}, rules {HERE.rules}")
    verified = await made.verify(run=made.changed(reason=other, engine=engine))
    assert (verified.outcome, verified.omissions) == ("same", (f"the text of the reason: {engine} wrote it",))


async def test_a_fee_is_only_bounded_and_a_signature_must_be_that_of_the_relayer(worlds: Worlds) -> None:
    made = worlds["balance"]
    verified = await made.verify(run=made.changed(fee=Amount(str(FEE_LIMIT)), solver_fees=[Amount("1")]))
    assert (verified.outcome, len(verified.omissions)) == ("same", 2)
    key = bytes(31) + b"\7"
    signed = replace(made.run, relayer=address_of_key(key), signature=sign(personal_digest(made.run.hash.raw), key))
    assert (await made.verify(run=proved(signed))).outcome == "same"
    assert (await made.verify(run=replace(signed, relayer=OWNER))).outcome == "different"


async def test_a_log_is_cut_only_where_the_record_has_no_room(nodal: Nodal, sandbox: Sandbox) -> None:
    contract = Address.parse("0x" + "c0" * 20)
    nodal.chain.ask("anvil_setCode", contract, "0x61ea605ff3")  # returns 60,000 bytes
    call = ("evmCall", {"to": contract.lower(), "chainId": CHAIN_ID, "data": "0x"})
    made = await asking_run(nodal, sandbox, asking(call, lines=["\1" * 3_990] * 16))
    assert (made.run.result, made.run.logs_cut) == ("nothing", True)
    assert RUN_BYTES_MAX - 30_000 < len(encode(made.run)) < RUN_BYTES_MAX + 1_000
    assert (await made.verify()).outcome == "same"
    for logs_cut in (True, UNSET):
        verified = await made.verify(run=made.changed(logs=made.run.logs[:-1], logs_cut=logs_cut))
        assert verified.outcome == "different"


async def test_parameters_are_left_out_only_where_the_record_has_no_room(nodal: Nodal, sandbox: Sandbox) -> None:
    questions = [("svmAccountsInfo", {"publicKeys": [letter * 500] * 450}) for letter in "xy"]
    made = await asking_run(nodal, sandbox, asking(*questions))
    assert isinstance(made.run.inputs, list)
    assert [each.params for each in made.run.inputs] == [{}, {}]
    assert (await made.verify()).outcome == "same"
    assert (await made.verify(offline=True)).outcome == "consistent"


async def test_balances_that_are_worth_something_and_a_run_at_the_registration_are_the_same(
    nodal: Nodal, sandbox: Sandbox
) -> None:
    token = nodal.chain.deploy("MockERC20", "Test", "T", 6)
    nodal.chain.mint(token, OWNER, 5 * 10**6)
    feed = nodal.feed(10**8, nodal.newest_s)
    balances = {
        "owner": OWNER, "chainIds": [CHAIN_ID], "usdMinAmount": str(10**18), "tokenFilter": 0,
        "tokens": [{"address": token.lower(), "chainId": CHAIN_ID}],
    }  # fmt: skip
    second = nodal.newest_s + 5
    due = Due(SIG, 2, time_payload(1_000 * second), 1_000 * second, 1_000 * second)
    made = await recorded_of(
        nodal, sandbox, asking(("relevantTokens", balances)), {}, {}, due=due, feeds={token: (feed, 3_600)},
        config={"type": 2, "startDate": 0, "delta": "1h", "endDate": 0},
    )  # fmt: skip
    made.trigger = replace(made.trigger, created_at=iso_time(1_000 * second))
    assert "5000000" in made.run.logs[0]
    assert (await made.verify()).outcome == "same"
    made.trigger = replace(made.trigger, created_at=iso_time(1_000 * second + 1))
    assert (await made.verify()).outcome == "different"


async def test_a_note_of_a_tick_that_is_none_is_different(worlds: Worlds) -> None:
    made = worlds["balance"]
    for result, code in (("skipped", "run-cap"), ("incomplete", "no-answer"), ("stopped", "time")):
        reason = msgspec.convert({"code": code}, RunReason, dec_hook=decode_text)
        members: dict[str, Any] = {"result": result, "reason": reason, "outputs": []}
        assert (await made.verify(run=made.changed(**members))).outcome == "unchecked"
        data = type(made.run.trigger_data).from_raw((made.run.timestamp + 1).to_bytes(32))
        run = made.changed(**members, timestamp=made.run.timestamp + 1, trigger_data=data)
        verified = await made.verify(run=run)
        assert (verified.outcome, verified.reasons) == (
            "different", ("the schedule of this trigger has no run at this time",)
        )  # fmt: skip


async def test_a_run_in_the_future_and_a_record_without_its_questions_are_not_the_same(worlds: Worlds) -> None:
    made = worlds["balance"]
    assert (await made.verify(run=replace(made.run, inputs=UNSET))).outcome == "unchecked"
    assert (await made.verify(run=replace(made.run, context=UNSET))).outcome == "unchecked"
    at_ms = made.run.timestamp + 10**9 // 60_000 * 60_000
    run = made.changed(timestamp=at_ms, trigger_data=type(made.run.trigger_data).from_raw(at_ms.to_bytes(32)))
    assert (await made.verify(run=run)).reasons == ("the run is in the future",)


VALUES = st.sampled_from([
    None, True, False, 0, 1, 2, -1, 10, 2**53 - 1, 8_640_000_000_000_000, "", "0", "0x", "0x00", "\1", "a\ud7ff", "api",
    "0x" + "66" * 32, str(OWNER), "0x" + "ab" * 32, "rules 9", "stopped", "nothing", "fuel", "time", "1" * 78, [], {},
    ["1"], [[]], {"a": "1"}, "x" * 1_001, "2026-13-40T99:99:99.000Z",
])  # fmt: skip
CHANGE = st.tuples(st.sampled_from(["put", "cut", "double"]), st.integers(0, 500), VALUES)
# What the page calls not covered, wholly or for some values.
UNCOVERED = {
    "relayer", "records", "status", "validations", "conflicts", "createdAt", "solverFees", "fee", "engine", "fuelUsed",
    "recorded", "quiet", "calls", "signature",
}  # fmt: skip


def changed(tree: Any, changes: list[tuple[str, int, Any]]) -> Any:
    """A JSON value with changes at any of its places."""
    for way, number, value in changes:
        places: list[tuple[Any, Any]] = []
        waiting = [tree]
        while waiting:
            each = waiting.pop()
            keys = each.keys() if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
            places += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
        holder, key = places[number % len(places)]
        if way == "put":
            holder[key] = value
        elif way == "cut":
            del holder[key]
        elif isinstance(holder, list):
            holder.append(holder[key])
    return tree


def covered(tree: Any) -> Any:
    """A record without what is not covered."""
    if isinstance(tree, dict):
        return {name: covered(each) for name, each in tree.items() if name not in UNCOVERED}
    return [covered(each) for each in tree] if isinstance(tree, list) else tree


@given(st.sampled_from(["abort", "balance", "event", "missed", "price"]), st.lists(CHANGE, min_size=1, max_size=3))
async def test_any_record_has_an_outcome_and_only_the_true_one_is_the_same(
    worlds: Worlds, name: str, changes: list[tuple[str, int, Any]]
) -> None:
    made = worlds[name]
    true = json.loads(encode(made.run))
    tree = changed(json.loads(encode(made.run)), changes)
    try:
        run = msgspec.convert(tree, Run, dec_hook=decode_text)
    except (msgspec.ValidationError, Invalid):
        return
    if isinstance(run.inputs, list) and run.context is not UNSET:
        run = proved(run)
    alone, verified = await made.verify(run=run, offline=True), await made.verify(run=run)
    assert {alone.outcome, verified.outcome} <= {"same", "consistent", "unchecked", "different"}
    if verified.outcome == "same":
        after = json.loads(encode(run))
        assert covered({**after, "logsCut": bool(after.get("logsCut"))}) == covered({**true, "logsCut": False})
