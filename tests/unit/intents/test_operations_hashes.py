"""The hashes of generation 2 against the compiled settlement contract, and against another encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, strategies as st
from msgspec.structs import replace

from each_row import each_row
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.intents.hashes import intent_hash, proposal_hash
from muniment.protocol.intents.texts import TriggerSig
from muniment.protocol.intents.types import HashedOperations, NewOperationsProposal
from settler import encode_values, read

VECTORS = Path(__file__).parents[2] / "vectors/evm"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "intent_hash.json").read_text())["cases"]
OPERATIONS = [case for case in CASES if "operations" in case["intent"]]
FEE = "MaxFee(address token,uint256 amount)"
EVENT = "OperationEvent(bytes32 topic,bytes data)"
OPERATION = "Operation(uint8 opType,address user,bytes data,OperationEvent[] events)"
INTENT = (
    "Intent(address feePayer,address settler,bytes32 nonce,uint256 deadline,MaxFee[] maxFees,bytes triggerSig,"
    "uint256 minValidations,Operation[] operations)"
)
PROPOSAL = "Proposal(bytes32 intent,address solver,uint256 deadline,bytes[] datas,uint256[] fees)"


def fields_of(intent: dict[str, Any]) -> HashedOperations:
    """With a trigger signature of any length, as the contract takes it and this service does not."""
    fields = read(HashedOperations, {**intent, "triggerSig": "0x" + "11" * 65})
    return replace(fields, trigger_sig=TriggerSig(intent["triggerSig"]))


def proposal_of(case: dict[str, Any]) -> NewOperationsProposal:
    return read(NewOperationsProposal, {**case["proposal"], "solver": case["solver"]})


def test_half_of_the_vectors_have_the_second_form() -> None:
    assert [case["id"] for case in OPERATIONS] == [f"PI{number}" for number in range(11, 21)]


@each_row("case", OPERATIONS, ids=lambda case: case["id"])
def test_intents_and_proposals_have_the_hashes_of_the_vectors(case: dict[str, Any]) -> None:
    ours = intent_hash(fields_of(case["intent"]))

    assert ours == Bytes32(case["intentHash"]).raw
    assert proposal_hash(ours, proposal_of(case)) == Bytes32(case["proposalHash"]).raw


CHANGES: dict[str, Any] = {
    "feePayer": "0x" + "01" * 20, "settler": "0x" + "02" * 20, "nonce": "0x" + "03" * 32, "deadline": "4",
    "maxFees": [], "triggerSig": "0x" + "06" * 65, "minValidations": 7,
    "operations": OPERATIONS[2]["intent"]["operations"],
}  # fmt: skip


@each_row("name", CHANGES)
def test_every_hashed_field_changes_the_hash(name: str) -> None:
    intent = OPERATIONS[1]["intent"]

    assert intent_hash(fields_of({**intent, name: CHANGES[name]})) != intent_hash(fields_of(intent))


@each_row(("name", "value"), [("opType", 4), ("user", "0x" + "01" * 20), ("data", "0x05"), ("events", [])])
def test_every_field_of_an_operation_changes_the_hash(name: str, value: object) -> None:
    intent = OPERATIONS[1]["intent"]
    first, *others = intent["operations"]

    changed = {**intent, "operations": [{**first, name: value}, *others]}
    assert intent_hash(fields_of(changed)) != intent_hash(fields_of(intent))


def test_the_order_of_operations_changes_the_hash() -> None:
    intent = OPERATIONS[1]["intent"]

    turned = {**intent, "operations": intent["operations"][::-1]}
    assert intent_hash(fields_of(turned)) != intent_hash(fields_of(intent))


def hexes(min_size: int, max_size: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=min_size, max_size=max_size).map(lambda raw: "0x" + raw.hex())


ADDRESSES = hexes(20, 20)
NUMBERS = st.integers(0, 2**256 - 1).map(str)
FEES = st.lists(st.fixed_dictionaries({"token": ADDRESSES, "amount": NUMBERS}), max_size=3)
EVENTS = st.lists(st.fixed_dictionaries({"topic": hexes(32, 32), "data": hexes(0, 70)}), max_size=3)
INTENTS = st.fixed_dictionaries(
    {
        "feePayer": ADDRESSES, "settler": ADDRESSES, "nonce": hexes(32, 32), "deadline": NUMBERS, "maxFees": FEES,
        "triggerSig": hexes(0, 100), "minValidations": st.integers(0, 2**53 - 1),
        "operations": st.lists(
            st.fixed_dictionaries(
                {"opType": st.integers(0, 4), "user": ADDRESSES, "data": hexes(0, 70), "events": EVENTS}
            ),
            min_size=1, max_size=4,
        ),
    }
)  # fmt: skip
PROPOSALS = st.fixed_dictionaries(
    {
        "solver": ADDRESSES, "datas": st.lists(hexes(0, 70), min_size=1, max_size=4), "deadline": NUMBERS,
        "fees": st.lists(NUMBERS, max_size=3),
    }
)  # fmt: skip


def hash_of(text: str) -> bytes:
    return keccak256(bytes.fromhex(text[2:]))


def hash_list(kind: str, types: list[str], rows: list[list[Any]]) -> bytes:
    """The hash of a list of structs whose type string is `kind`."""
    type_hash = keccak256(kind.encode())
    return keccak256(b"".join(keccak256(encode_values(["bytes32", *types], [type_hash, *row])) for row in rows))


@given(INTENTS)
def test_an_intent_hash_is_that_of_the_solidity_abi(intent: dict[str, Any]) -> None:
    operations = [
        [
            each["opType"], each["user"], hash_of(each["data"]),
            hash_list(EVENT, ["bytes32", "bytes32"], [[one["topic"], hash_of(one["data"])] for one in each["events"]]),
        ]
        for each in intent["operations"]
    ]  # fmt: skip
    expected = encode_values(
        ["bytes32", "address", "address", "bytes32", "uint256", "bytes32", "bytes", "uint256", "bytes32"],
        [
            keccak256((INTENT + FEE + OPERATION + EVENT).encode()), intent["feePayer"], intent["settler"],
            intent["nonce"], intent["deadline"],
            hash_list(FEE, ["address", "uint256"], [[fee["token"], fee["amount"]] for fee in intent["maxFees"]]),
            intent["triggerSig"], intent["minValidations"],
            hash_list(OPERATION, ["uint8", "address", "bytes32", "bytes32"], operations),
        ],
    )  # fmt: skip

    assert intent_hash(fields_of(intent)) == keccak256(expected)


@given(hexes(32, 32), PROPOSALS)
def test_a_proposal_hash_is_that_of_the_solidity_abi(intent: str, proposal: dict[str, Any]) -> None:
    datas = keccak256(b"".join(hash_of(each) for each in proposal["datas"]))
    fees = keccak256(b"".join(int(fee).to_bytes(32) for fee in proposal["fees"]))
    expected = encode_values(
        ["bytes32", "bytes32", "address", "uint256", "bytes32", "bytes32"],
        [keccak256(PROPOSAL.encode()), intent, proposal["solver"], proposal["deadline"], datas, fees],
    )

    assert proposal_hash(bytes.fromhex(intent[2:]), read(NewOperationsProposal, proposal)) == keccak256(expected)
