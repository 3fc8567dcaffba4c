"""The sample functions in the sandbox: each to the intents, the questions and the result that it is for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from guest_functions import GENERATIONS, INPUTS, Generation, kept
from muniment.guest.limits import FUEL
from muniment.guest.sandbox import Sandbox
from muniment.guest.types import Answer, GuestRun, Question, inputs_of
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload

# One sandbox serves all tests of this module.
pytestmark = pytest.mark.asyncio(loop_scope="module")

USER, SETTLER = "0x" + "11" * 20, "0x" + "22" * 20
SIG = "0x" + "33" * 65
TIME_MS = 1_700_000_000_123
DEADLINE = "1700000300"
TOKEN, OTHER, RECIPIENT = "0x" + "aa" * 20, "0x" + "cc" * 20, "0x" + "bb" * 20
VALUES: dict[str, Any] = {
    "chainId": 8453, "token": TOKEN, "amount": "1000", "recipient": RECIPIENT, "fee": 5, "target": OTHER,
    "data": "0x1234", "value": 0, "feeToken": OTHER, "tokenIn": TOKEN, "amountIn": str(2**200), "tokenOut": OTHER,
    "minAmountOut": "6", "below": "3", "above": "499",
}  # fmt: skip
TICK = time_payload(TIME_MS)
EVENT = EventPayload(
    8453, Bytes32.parse("0x" + "01" * 32), 4, Address.parse(OTHER),
    (Bytes32.parse("0x" + "02" * 32), Bytes32.parse("0x" + "03" * 32)), HexString.parse("0x686579"),
)  # fmt: skip
TRANSFERS = {"transfers": [{"token": TOKEN, "amount": "1000", "recipient": RECIPIENT}]}


@dataclass
class World:
    """A sandbox, and the answers of the world, by question; what was asked is kept."""

    sandbox: Sandbox
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    asked: list[Question] = field(default_factory=list[Question])

    async def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answers[question.query]

    async def run(
        self, name: str, generation: Generation = "B", payload: bytes = TICK, kind: int = 0, **values: Any
    ) -> GuestRun:
        compiled = await self.sandbox.compile_module(kept(name, generation))
        context = json.dumps({
            "timestamp": TIME_MS, "consensusThreshold": 1, "user": USER,
            "settlers": [{"address": "0x" + "44" * 20, "chainId": 10}, {"address": SETTLER, "chainId": 8453}],
            "triggerSig": SIG, "triggerPayload": {"type": kind, "data": "0x" + payload.hex()}, "oracleResponses": {},
        }, separators=(",", ":"))  # fmt: skip
        inputs = inputs_of(INPUTS[name], {**VALUES, **values})
        return await self.sandbox.run_module(compiled, context=context, inputs=inputs, answer=self.answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.open() as made:
        yield made


@pytest.fixture
def world(sandbox: Sandbox) -> World:
    return World(sandbox)


def nonce(payload: bytes = TICK, number: int = 1) -> str:
    """As the tools of the field compute it."""
    return "0x" + keccak256(f"{SIG}{TIME_MS}0x{payload.hex()}{number}".encode()).hex()


def intent(
    generation: Generation, op: int, body: Mapping[str, Any], *, fee_token: str = TOKEN, payload: bytes = TICK,
    events: Sequence[Any] = (), chain: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The JSON object of an intent with one operation."""
    shared = {
        "settler": SETTLER, "deadline": DEADLINE, "nonce": nonce(payload),
        "maxFees": [{"token": fee_token, "amount": "5"}],
    }  # fmt: skip
    if generation == "B":
        named = {"chainId": 8453} if chain else {}
        return {**shared, "op": op, "user": USER, "events": list(events), **named, **body}
    operation = {"opType": op, "chainId": 8453, "user": USER, "events": list(events), **body}
    return {**shared, "feePayer": USER, "operations": [operation]}


def sent(run: GuestRun) -> list[Any]:
    assert (run.result, run.reason, run.text) == ("intents", "", "")
    kinds = {"B": {"transfer", "swap", "evmCall"}, "C": {"intent"}}[run.generation]
    assert {each.kind for each in run.intents} <= kinds
    return [each.body for each in run.intents]


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_intents_of_each_kind_are_those_of_the_inputs(world: World, generation: Generation) -> None:
    transfer = await world.run("transfer", generation)
    assert sent(transfer) == [intent(generation, 1, TRANSFERS)]
    assert transfer.logs == (f"[Info] 1000 of {TOKEN} for {RECIPIENT}",)
    calls = {"calls": [{"target": OTHER, "data": "0x1234", "value": "0"}]}
    assert sent(await world.run("call", generation)) == [intent(generation, 2, calls, fee_token=OTHER)]
    swap = {
        "sourceChain": 8453, "destinationChain": 8453, "tokensIn": [{"token": TOKEN, "amount": str(2**200)}],
        "tokensOut": [{"token": OTHER, "minAmount": "6", "recipient": USER}],
    }  # fmt: skip
    assert sent(await world.run("swap", generation)) == [intent(generation, 0, swap, fee_token=OTHER, chain=False)]
    assert world.asked == []


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_price_rule_takes_the_median(world: World, generation: Generation) -> None:
    world.answers = {"tokenPrice": Answer(success=True, data=["30", "1", "2"])}
    assert sent(await world.run("price", generation)) == [intent(generation, 1, TRANSFERS)]
    assert [(each.query, dict(each.params)) for each in world.asked] == [
        ("tokenPrice", {"address": TOKEN, "chainId": "8453"})
    ]
    assert (await world.run("price", generation, below="2")).result == "nothing"
    world.answers = {"tokenPrice": Answer(success=False, error="no feed")}
    failed = await world.run("price", generation)
    assert (failed.result, failed.reason) == ("stopped", "abort")
    assert "no feed" in failed.text


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_balance_is_asked_encoded_and_decoded(world: World, generation: Generation) -> None:
    world.answers = {"evmCall": Answer(success=True, data="0x" + (500).to_bytes(32).hex())}
    assert sent(await world.run("balance", generation)) == [intent(generation, 1, TRANSFERS)]
    data = "0x70a08231" + "00" * 12 + "11" * 20
    assert [dict(each.params) for each in world.asked] == [{"to": TOKEN, "chainId": "8453", "data": data}]
    nothing = await world.run("balance", generation, above=500)
    assert (nothing.result, nothing.logs) == ("nothing", ("[Info] balance 500",))


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_an_event_is_decoded_and_repeated(world: World, generation: Generation) -> None:
    payload = event_payload(EVENT)
    calls = {"calls": [{"target": OTHER, "data": "0x686579", "value": "0"}]}
    events = [{"topic": "0x" + "02" * 32, "data": "0x686579"}]
    assert sent(await world.run("event", generation, payload, 1)) == [
        intent(generation, 2, calls, fee_token=OTHER, payload=payload, events=events)
    ]


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_single_run_reads_its_moment(world: World, generation: Generation) -> None:
    moment = {"transfers": [{"token": TOKEN, "amount": str(TIME_MS), "recipient": RECIPIENT}]}
    assert sent(await world.run("once", generation, kind=2)) == [intent(generation, 1, moment)]


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_runs_without_intents_say_why(world: World, generation: Generation) -> None:
    nothing = await world.run("nothing", generation)
    assert (nothing.result, nothing.intents, nothing.generation) == ("nothing", (), generation)
    assert nothing.logs == (f"[Info] nothing to do at {TIME_MS}",)
    late = await world.run("late_abort", generation)
    assert (late.result, late.reason, late.intents) == ("stopped", "abort", ())
    assert "ended in the last line" in late.text
    many = await world.run("many_intents", generation)
    assert (many.result, many.reason, many.intents) == ("stopped", "limit-intents", ())
    logs = await world.run("many_logs", generation)
    assert (logs.result, len(logs.logs), logs.logs_cut) == ("nothing", 200, True)


async def test_the_same_context_gives_the_same_run(world: World) -> None:
    assert await world.run("transfer") == await world.run("transfer")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("endless", "fuel"), ("endless_start", "fuel"), ("much_memory", "abort"),
        ("million_logs", "limit-log-calls"), ("long_text", "limit-text"), ("unknown_import", "refused-import"),
    ],
)  # fmt: skip
async def test_a_hostile_function_is_stopped_and_named(world: World, name: str, reason: str) -> None:
    run = await world.run(name)
    assert (run.result, run.intents, run.reason) == ("stopped", (), reason), run
    assert run.fuel_used == FUEL or reason != "fuel"
    assert (await world.run("nothing")).result == "nothing"  # the next run is not affected
