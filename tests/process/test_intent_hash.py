"""Hashes and logs of both generations of the settlement contract, on a real node, against ours."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chain import CHAIN_TESTS, LocalChain
from muniment.operate.watch.events import OPERATION_EXECUTED, TOPICS, SettlerEvent, event_in
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.hashes import intent_hash, proposal_hash
from muniment.protocol.intents.types import NewIntent, NewOperationsIntent, NewOperationsProposal, NewProposal
from settler import (
    LOG_EMITTER,
    encode_emit,
    encode_fulfil,
    encode_fulfil_operations,
    encode_get_intent_hash,
    encode_get_operations_intent_hash,
    encode_get_operations_proposal_hash,
    encode_get_proposal_hash,
    operation_executed_data,
    read,
)

pytestmark = CHAIN_TESTS

# Intents of each form.
SEEDS = pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 200), marks=pytest.mark.long)])
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "vectors/evm/intent_hash.json").read_text())[
    "cases"
]
SOLVER = Address.parse("0x" + "50" * 20)


@pytest.fixture(scope="module")
def chain() -> Iterator[LocalChain]:
    with LocalChain() as chain:
        yield chain


@pytest.fixture(scope="module")
def chain_of_vectors() -> Iterator[LocalChain]:
    """A chain of its own: the settlers of the vectors are where contracts of `chain` would be deployed."""
    with LocalChain() as chain:
        yield chain


@pytest.fixture(scope="module")
def settler(chain: LocalChain) -> Address:
    return chain.deploy("MiniSettlerLegacy")


@pytest.fixture(scope="module")
def operations_settler(chain: LocalChain) -> Address:
    return chain.deploy("MiniSettlerOps")


def dice_of(seed: int) -> random.Random:
    return random.Random(seed)


def hex_of(dice: random.Random, size: int) -> str:
    return "0x" + dice.randbytes(size).hex()


def address_of(dice: random.Random) -> str:
    return Address.from_raw(dice.randbytes(20))


def events_of(dice: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {"topic": hex_of(dice, 32), "data": hex_of(dice, dice.choice([0, 1, 31, 32, 33, 100]))} for _ in range(count)
    ]


def fees_of(dice: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"token": address_of(dice), "amount": str(dice.getrandbits(256))} for _ in range(count)]


def intent_of(dice: random.Random, settler: Address) -> dict[str, Any]:
    return {
        "op": dice.randrange(4), "user": address_of(dice), "settler": settler, "nonce": hex_of(dice, 32),
        "deadline": str(dice.choice([0, 1_900_000_000, 2**256 - 1])),
        "data": hex_of(dice, dice.choice([0, 5, 64, 500])),
        "maxFees": fees_of(dice, dice.randrange(4)), "events": events_of(dice, dice.randrange(4)),
        "configSig": hex_of(dice, 65), "minValidations": dice.randrange(2**53),
        "validations": [hex_of(dice, 65) for _ in range(dice.randrange(3))],
    }  # fmt: skip


def proposal_of(dice: random.Random) -> dict[str, Any]:
    return {
        "deadline": str(dice.getrandbits(256)), "data": hex_of(dice, dice.choice([0, 7, 32, 300])),
        "fees": [str(dice.getrandbits(256)) for _ in range(dice.randrange(5))],
    }  # fmt: skip


def operation_of(dice: random.Random, events: int) -> dict[str, Any]:
    return {
        "opType": dice.randrange(5), "user": address_of(dice), "data": hex_of(dice, dice.choice([0, 5, 64, 500])),
        "events": events_of(dice, events),
    }  # fmt: skip


def operations_intent_of(dice: random.Random, settler: Address, operations: int) -> dict[str, Any]:
    """Generation 2; the operation at place n has up to n events."""
    return {
        "feePayer": address_of(dice), "settler": settler, "nonce": hex_of(dice, 32),
        "deadline": str(dice.choice([0, 1_900_000_000, 2**256 - 1])), "maxFees": fees_of(dice, dice.randrange(4)),
        "triggerSig": hex_of(dice, 65), "minValidations": dice.randrange(2**53),
        "validations": [hex_of(dice, 65) for _ in range(dice.randrange(3))],
        "operations": [operation_of(dice, dice.randrange(place + 1)) for place in range(operations)],
    }  # fmt: skip


def operations_proposal_of(dice: random.Random, operations: int) -> dict[str, Any]:
    return {
        "deadline": str(dice.getrandbits(256)),
        "datas": [hex_of(dice, dice.choice([0, 7, 32, 300])) for _ in range(operations)],
        "fees": [str(dice.getrandbits(256)) for _ in range(dice.randrange(5))],
    }


def asked(chain: LocalChain, to: Address, data: bytes) -> bytes:
    return bytes.fromhex(chain.ask("eth_call", {"to": to, "data": "0x" + data.hex()}, "latest")[2:])


def logs_of(chain: LocalChain, settler: Address, receipt: dict[str, Any]) -> list[dict[str, Any]]:
    """As a watcher reads them."""
    block = receipt["blockNumber"]
    wanted = {"address": settler, "topics": [list(TOPICS)], "fromBlock": block, "toBlock": block}
    return chain.ask("eth_getLogs", wanted)


def expected(receipt: dict[str, Any], subjects: list[tuple[Any, bytes]], settler: Address) -> list[SettlerEvent]:
    return [
        SettlerEvent(
            kind, subject, settler, int(receipt["blockNumber"], 16), Bytes32(receipt["blockHash"]).raw,
            Bytes32(receipt["transactionHash"]).raw, index,
        )
        for index, (kind, subject) in enumerate(subjects)
    ]  # fmt: skip


@SEEDS
def test_hashes_are_those_that_the_settlement_contract_answers(
    chain: LocalChain, settler: Address, seeds: range
) -> None:
    for seed in seeds:
        dice = dice_of(seed)
        intent, proposal = intent_of(dice, settler), proposal_of(dice)

        ours = intent_hash(read(NewIntent, intent))
        of_proposal = proposal_hash(ours, read(NewProposal, {**proposal, "solver": SOLVER}))

        assert ours == asked(chain, settler, encode_get_intent_hash(intent)), seed
        assert of_proposal == asked(chain, settler, encode_get_proposal_hash(proposal, intent, SOLVER)), seed


@SEEDS
def test_hashes_of_operations_are_those_that_the_later_settlement_contract_answers(
    chain: LocalChain, operations_settler: Address, seeds: range
) -> None:
    settler = operations_settler
    for seed in seeds:
        dice = dice_of(10_000 + seed)
        operations = dice.choice([1, 1, 2, 3, 5, 32])
        intent, proposal = operations_intent_of(dice, settler, operations), operations_proposal_of(dice, operations)

        ours = intent_hash(read(NewOperationsIntent, intent))
        of_proposal = proposal_hash(ours, read(NewOperationsProposal, {**proposal, "solver": SOLVER}))

        assert ours == asked(chain, settler, encode_get_operations_intent_hash(intent)), seed
        said = asked(chain, settler, encode_get_operations_proposal_hash(proposal, intent, SOLVER))
        assert of_proposal == said, seed


@pytest.mark.parametrize("seed", range(8))
def test_the_logs_of_an_execution_are_read_as_its_intent_and_its_proposal(
    chain: LocalChain, settler: Address, seed: int
) -> None:
    dice = dice_of(1_000 + seed)
    intent, proposal = intent_of(dice, settler), proposal_of(dice)
    of_intent = intent_hash(read(NewIntent, intent))
    of_proposal = proposal_hash(of_intent, read(NewProposal, {**proposal, "solver": SOLVER}))

    receipt = chain.send(encode_fulfil(intent, proposal, b"output"), settler, SOLVER)
    found = [event_in(log) for log in logs_of(chain, settler, receipt)]

    subjects = [("intent", of_intent)] * len(intent["events"]) + [("proposal", of_proposal)]
    assert found == expected(receipt, subjects, settler)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["id"])
def test_the_logs_of_an_execution_carry_the_hashes_of_the_vectors(
    chain_of_vectors: LocalChain, case: dict[str, Any]
) -> None:
    chain = chain_of_vectors
    intent, proposal, settler = case["intent"], case["proposal"], Address.parse(case["intent"]["settler"])
    if "operations" in intent:
        chain.set_code(settler, "MiniSettlerOps")
        call = encode_fulfil_operations(intent, proposal, [b""] * len(intent["operations"]))
    else:
        chain.set_code(settler, "MiniSettlerLegacy")
        call = encode_fulfil(intent, proposal)

    receipt = chain.send(call, settler, Address.parse(case["solver"]))
    *of_intent, of_proposal = [event_in(log) for log in logs_of(chain, settler, receipt)]

    assert of_proposal
    assert of_proposal.subject == Bytes32(case["proposalHash"]).raw
    assert len(of_intent) == sum(len(each["events"]) for each in intent.get("operations", [intent]))
    assert all(event and event.subject == Bytes32(case["intentHash"]).raw for event in of_intent)


def test_an_intent_for_another_settlement_contract_makes_no_fact(chain: LocalChain, settler: Address) -> None:
    dice = dice_of(5)
    intent = {**intent_of(dice, Address.parse("0x" + "77" * 20)), "events": events_of(dice, 2)}

    receipt = chain.send(encode_fulfil(intent, proposal_of(dice)), settler, SOLVER)
    found = [event_in(log) for log in logs_of(chain, settler, receipt)]

    assert found[:2] == [None, None]
    assert [event.kind for event in found[2:] if event] == ["proposal"]


@pytest.mark.parametrize("seed", range(8))
def test_the_logs_of_the_later_generation_name_the_intent_and_the_proposal(
    chain: LocalChain, operations_settler: Address, seed: int
) -> None:
    dice, settler = dice_of(2_000 + seed), operations_settler
    intent, proposal = operations_intent_of(dice, settler, 3), operations_proposal_of(dice, 3)
    of_intent = intent_hash(read(NewOperationsIntent, intent))
    of_proposal = proposal_hash(of_intent, read(NewOperationsProposal, {**proposal, "solver": SOLVER}))

    receipt = chain.send(encode_fulfil_operations(intent, proposal, [b"a", b"", b"c" * 40]), settler, SOLVER)
    found = [event_in(log) for log in logs_of(chain, settler, receipt)]

    events = sum(len(each["events"]) for each in intent["operations"])
    assert found == expected(receipt, [("operation", of_intent)] * events + [("proposal", of_proposal)], settler)
    # The contract remembers the block of an intent by its hash.
    blocks = asked(chain, settler, keccak256(b"getIntentBlock(bytes32)")[:4] + of_intent)
    assert int.from_bytes(blocks) == int(receipt["blockNumber"], 16)


def test_a_log_emitter_says_of_any_intent_that_an_operation_was_carried_out(chain: LocalChain) -> None:
    emitter = Address.parse(chain.send(LOG_EMITTER)["contractAddress"])
    chosen, word = bytes(range(32)), Bytes32("0x" + "00" * 32)
    data = operation_executed_data(chosen, (1, SOLVER, b"data", []), (0, [], []))

    receipt = chain.send(encode_emit([OPERATION_EXECUTED, word, word, word], data), emitter)

    assert [event_in(log) for log in logs_of(chain, emitter, receipt)] == expected(
        receipt, [("operation", chosen)], emitter
    )
