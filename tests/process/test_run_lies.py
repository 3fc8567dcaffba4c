"""A record with one false member, for each member that a record has, is never verified as the same.

The members for which there is no lie here are those that the table of docs/use/runs.md calls not covered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest
import pytest_asyncio
from msgspec import UNSET
from msgspec.structs import replace

from chain import CHAIN_TESTS
from muniment.client.failures import Forged
from muniment.client.proof import check_evidence, check_run
from muniment.guest.sandbox import Sandbox
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.runs.texts import Engine, ReasonText, RunLog
from muniment.protocol.runs.types import (
    Run,
    RunAnswer,
    RunBlock,
    RunCall,
    RunContext,
    RunInput,
    RunOutput,
    RunReason,
    RunToken,
)
from muniment.protocol.wire import Amount, Record, encode_text
from pinned_world import CHAIN_ID, Nodal, chain
from verified_world import (
    FEE_LIMIT,
    MINUTE,
    OWNER,
    Recorded,
    abort_run,
    balance_run,
    event_run,
    missed_run,
    nodal,
    price_run,
    sandbox,
)

__all__ = ["chain", "nodal", "sandbox"]
pytestmark = [*CHAIN_TESTS, pytest.mark.asyncio(loop_scope="module")]

PAGE = Path(__file__).parents[2] / "docs" / "use" / "runs.md"
HASH = Bytes32.parse("0x" + "66" * 32)
MINUTE_MS = 1_000 * MINUTE
Name = Literal["abort", "balance", "event", "missed", "price"]
Worlds = dict[str, Recorded]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worlds(nodal: Nodal, sandbox: Sandbox) -> Worlds:
    """True records: with balances, a failing call and an abort; a call and an intent; an event; a feed; of a gap."""
    return {
        "abort": await abort_run(nodal, sandbox), "balance": await balance_run(nodal, sandbox),
        "event": await event_run(nodal, sandbox), "price": await price_run(nodal, sandbox),
        "missed": await missed_run(nodal, sandbox),
    }  # fmt: skip


def later(of: Recorded) -> Run:
    """The run of the next tick."""
    at_ms = of.run.timestamp + MINUTE_MS
    return of.changed(timestamp=at_ms, trigger_data=HexString.from_raw(time_payload(at_ms)))


def said(of: Recorded, **members: Any) -> Run:
    """The record with another reason."""
    assert isinstance(of.run.reason, RunReason)
    return of.changed(reason=replace(of.run.reason, **members))


def told(of: Recorded, **members: Any) -> Run:
    """The record with another context."""
    assert isinstance(of.run.context, RunContext)
    return of.changed(context=replace(of.run.context, **members))


def inputs_of(of: Recorded) -> list[RunInput]:
    assert isinstance(of.run.inputs, list)
    return of.run.inputs


def called(of: Recorded, **members: Any) -> Run:
    """The record with another first call of its first answer."""
    calls = inputs_of(of)[0].calls
    assert isinstance(calls, list)
    return of.asked(calls=[replace(calls[0], **members), *calls[1:]])


def called_too(of: Recorded) -> Run:
    """The record with a call that nobody made."""
    call = RunCall(to=OWNER, data=HexString("0x01"), block=of.run.blocks[0], answer=HexString("0x02"))
    return of.asked(calls=[call])


def held(of: Recorded, **members: Any) -> Run:
    """The record with another balance."""
    (found,) = msgspec.to_builtins(inputs_of(of)[0].answer.data, enc_hook=encode_text)
    balance = {**found["balances"][0], **members}
    return of.with_answer(success=True, data=[{**found, "balances": [balance]}])


def holding(of: Recorded, **members: Any) -> Run:
    """The record with another list of balances."""
    (found,) = msgspec.to_builtins(inputs_of(of)[0].answer.data, enc_hook=encode_text)
    return of.with_answer(success=True, data=[{**found, **members}])


def elsewhere() -> RunBlock:
    return RunBlock(chain_id=10, number=1, hash=HASH)


def output() -> RunOutput:
    return RunOutput(hash=HASH, recorded=True)


TOKEN = {"address": str(OWNER), "chainId": CHAIN_ID}
ASKED = RunInput(query="api", params={}, answer=RunAnswer(success=True, data="1"))
OTHER = Signature.parse("0x" + "22" * 64 + "1b")
LIES: dict[str, list[tuple[Name, Callable[[Recorded], Run]]]] = {
    "Run.hash": [("balance", lambda of: replace(of.run, hash=HASH))],
    "Run.triggerSig": [("balance", lambda of: of.changed(trigger_sig=OTHER))],
    "Run.triggerType": [("balance", lambda of: of.changed(trigger_type=2))],
    "Run.triggerData": [
        ("balance", later),
        ("balance", lambda of: of.changed(trigger_data=HexString.from_raw(time_payload(of.run.timestamp + 1)))),
        ("event", lambda of: of.changed(trigger_data=HexString.from_raw(of.run.trigger_data.raw[:-32] + bytes(32)))),
    ],
    "Run.timestamp": [
        ("balance", lambda of: of.changed(timestamp=of.run.timestamp + MINUTE_MS)),
        ("event", lambda of: of.changed(timestamp=of.run.timestamp - 1_000)),
    ],
    "Run.result": [("balance", lambda of: of.changed(result="nothing", outputs=[]))],
    "Run.reason": [("abort", lambda of: of.changed(reason=UNSET)), ("abort", lambda of: said(of, code="trap"))],
    "Run.missedCount": [
        ("missed", lambda of: of.changed(missed_count=1)), ("missed", lambda of: of.changed(missed_count=3)),
        ("balance", lambda of: of.changed(missed_count=1)),
    ],
    "Run.from": [
        ("missed", lambda of: of.changed(from_ms=of.run.timestamp - MINUTE_MS + 1)),
        ("missed", lambda of: of.changed(from_ms=of.run.timestamp - 2 * MINUTE_MS)),
    ],
    "Run.to": [("missed", lambda of: of.changed(to_ms=of.run.timestamp + MINUTE_MS))],
    "Run.fuelUsed": [("balance", lambda of: of.changed(fuel_used=Amount(str(int(of.run.fuel_used) + 1))))],
    "Run.blocks": [
        ("balance", lambda of: of.changed(blocks=[])),
        ("abort", lambda of: of.changed(blocks=[*of.run.blocks, elsewhere()])),
        ("missed", lambda of: of.changed(timestamp=of.run.timestamp + 1)),
    ],
    "Run.engine": [("balance", lambda of: of.changed(engine=Engine("muniment 9, rules 999")))],
    "Run.signature": [("balance", lambda of: of.changed(signature=OTHER))],
    "Run.fee": [("balance", lambda of: of.changed(fee=Amount(str(FEE_LIMIT + 1))))],
    "Run.logsCut": [("balance", lambda of: of.changed(logs_cut=True))],
    "Run.logs": [
        ("balance", lambda of: of.changed(logs=[RunLog("[Info] other")])), ("balance", lambda of: of.changed(logs=[])),
        ("abort", lambda of: of.changed(logs=of.run.logs[:1], logs_cut=True)),
    ],
    "Run.outputs": [("balance", lambda of: of.changed(outputs=[*of.run.outputs, output()]))],
    "Run.records": [("balance", lambda of: replace(of.run, records=[]))],
    "Run.inputs": [
        ("balance", lambda of: of.changed(inputs=[])),
        ("balance", lambda of: of.changed(inputs=[*inputs_of(of), ASKED])),
        ("abort", lambda of: of.changed(inputs=[*reversed(inputs_of(of))])),
    ],
    "Run.context": [("balance", lambda of: of.changed(context=RunContext()))],
    "RunReason.code": [("abort", lambda of: said(of, code="trap"))],
    "RunReason.text": [("abort", lambda of: said(of, text=ReasonText("other words")))],
    "RunBlock.chainId": [("balance", lambda of: of.at_block(chain_id=10))],
    "RunBlock.number": [("balance", lambda of: of.at_block(of.run.blocks[0].number - 1))],
    "RunBlock.hash": [("balance", lambda of: of.at_block(hash=HASH))],
    "RunBlock.quiet": [("balance", lambda of: of.at_block(of.run.blocks[0].number - 1, quiet=True))],
    "RunToken.address": [
        ("balance", lambda of: told(of, settlers=[RunToken(address=OWNER, chain_id=CHAIN_ID)])),
        ("abort", lambda of: told(of, settlers=[RunToken(address=OWNER, chain_id=CHAIN_ID)])),
        ("abort", lambda of: held(of, token={**TOKEN, "address": "0x" + "99" * 20})),
    ],
    "RunToken.chainId": [
        ("abort", lambda of: told(of, settlers=[replace(of.settler, chain_id=10)])),
        ("abort", lambda of: held(of, token={**TOKEN, "chainId": 10})),
    ],
    "RunBalance.token": [("abort", lambda of: held(of, token=TOKEN))],
    "RunBalance.balance": [("abort", lambda of: held(of, balance="6"))],
    "RunBalances.timestamp": [("abort", lambda of: holding(of, timestamp=1))],
    "RunBalances.balances": [("abort", lambda of: holding(of, balances=[]))],
    "RunAnswer.success": [("balance", lambda of: of.with_answer(success=False, error="no"))],
    "RunAnswer.data": [
        ("balance", lambda of: of.with_answer(success=True, data=f"0x{6:064x}")),
        ("price", lambda of: of.with_answer(success=True, data=["1"])),
    ],
    "RunAnswer.error": [("abort", lambda of: of.with_answer(1, success=False, error="other words"))],
    "RunCall.to": [("price", lambda of: called(of, to=OWNER)), ("abort", lambda of: called(of, to=OWNER))],
    "RunCall.data": [("price", lambda of: called(of, data=HexString("0x12345678")))],
    "RunCall.block": [("price", lambda of: called(of, block=elsewhere()))],
    "RunCall.answer": [("price", lambda of: called(of, answer=HexString("0x01")))],
    "RunInput.query": [("balance", lambda of: of.asked(query="tokenPrice"))],
    "RunInput.params": [
        ("balance", lambda of: of.asked(params={})), ("abort", lambda of: of.asked(1, params={})),
        ("balance", lambda of: of.asked(params={**inputs_of(of)[0].params, "to": str(OWNER)})),
    ],
    "RunInput.answer": [("balance", lambda of: of.with_answer(success=True, data="0x"))],
    "RunInput.block": [("balance", lambda of: of.asked(block=UNSET)), ("abort", lambda of: of.asked(1, block=UNSET))],
    "RunInput.calls": [("balance", called_too), ("abort", called_too)],
    "RunContext.consensusThreshold": [("balance", lambda of: told(of, consensus_threshold=2))],
    "RunContext.settlers": [
        ("abort", lambda of: told(of, settlers=[])), ("abort", lambda of: told(of, settlers=[of.settler] * 2)),
    ],
    "RunOutput.hash": [("balance", lambda of: of.changed(outputs=[output()]))],
    "RunRecord.evidence": [
        ("balance", lambda of: replace(of.run, records=[replace(each, evidence=HASH) for each in of.run.records])),
    ],
}  # fmt: skip
# What a record alone cannot say is no contradiction, but it is never the same.
UNDECIDED = {"Run.engine", "RunBlock.quiet", "RunToken.address", "RunToken.chainId", "RunContext.settlers"}


async def outcome(of: Recorded, run: Run) -> str:
    """What comes of a record: the client proves it before it is made again."""
    try:
        check_run(run)
        check_evidence(run)
    except Forged:
        return "forged"
    return (await of.verify(run=run)).outcome


async def test_the_records_are_true(worlds: Worlds) -> None:
    found = {name: await outcome(of, of.run) for name, of in worlds.items()}
    assert found == {**dict.fromkeys(get_args(Name), "same"), "missed": "unchecked"}


async def test_a_lie_is_never_the_same(worlds: Worlds, subtests: pytest.Subtests) -> None:
    for member, lies in LIES.items():
        allowed = {"forged", "different"} | ({"unchecked"} if member in UNDECIDED else set())
        for place, (name, lie) in enumerate(lies):
            with subtests.test(member, lie=place):
                run = lie(worlds[name])
                assert run != worlds[name].run
                assert await outcome(worlds[name], run) in allowed


def members_of(kind: type[Record]) -> Iterator[str]:
    """`Run.hash` and so on, with the members of the records in it."""
    types = msgspec.inspect.type_info(kind)
    waiting: list[Any] = [types]
    seen: set[str] = set()
    while waiting:
        each = waiting.pop()
        if isinstance(each, msgspec.inspect.StructType) and each.cls.__name__ not in seen:
            seen.add(each.cls.__name__)
            yield from (f"{each.cls.__name__}.{member.encode_name}" for member in each.fields)
            waiting += [member.type for member in each.fields]
        waiting += [*getattr(each, "types", ())]
        waiting += [getattr(each, name) for name in ("type", "item_type", "value_type") if hasattr(each, name)]


def described() -> dict[str, str]:
    """What the page says of each member of a record."""
    found: dict[str, str] = {}
    rows = re.findall(r"^\| (Run\w*) \| (`[^|]*`) \| ([^|]+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    for record, names, words in rows:
        for name in re.findall(r"`([^`]+)`", names):
            assert f"{record}.{name}" not in found
            found[f"{record}.{name}"] = words
    return found


async def test_each_member_has_a_lie_or_is_called_not_covered() -> None:
    table = described()
    assert sorted(table) == sorted(members_of(Run))
    uncovered = {name for name, words in table.items() if words.startswith("not covered")}
    assert uncovered == table.keys() - LIES.keys()
