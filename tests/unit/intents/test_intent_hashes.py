"""The hashes and digests against the answers of the compiled settlement contract and its real executions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import Wallet
from each_row import each_row
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature, recover, sign
from muniment.protocol.intents.hashes import Signed, intent_hash, proposal_hash, settlement_digest, signed_by
from muniment.protocol.intents.texts import ConfigSig
from muniment.protocol.intents.types import Hashed, NewProposal
from settler import read

VECTORS = Path(__file__).parents[2] / "vectors/evm"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "intent_hash.json").read_text())["cases"]
EXECUTIONS: list[dict[str, Any]] = json.loads((VECTORS / "settler_logs.json").read_text())["executions"]
OURS = [case for case in CASES if "op" in case["intent"]]
# Whose key signed the proposals of both executions: neither solver, but a signer that the controller allows.
SIGNER = "0x3028B12E7EEF5a10693849eF4A56be9B75F57398"
SETTLER = Address.parse("0x" + "5e" * 20)


def fields_of(intent: dict[str, Any]) -> Hashed:
    """With a config signature of any length, as the contract takes it and this service does not."""
    fields = read(Hashed, {**intent, "configSig": "0x" + "11" * 65})
    return replace(fields, config_sig=ConfigSig(intent["configSig"]))


def proposal_of(case: dict[str, Any]) -> NewProposal:
    return read(NewProposal, {**case["proposal"], "solver": case["solver"]})


def test_half_of_the_vectors_have_the_first_form() -> None:
    # The others are in test_operations_hashes.py.
    assert len(OURS) == 10
    assert len(CASES) == 20


@each_row("case", OURS, ids=lambda case: case["id"])
def test_intents_and_proposals_have_the_hashes_of_the_vectors(case: dict[str, Any]) -> None:
    ours = intent_hash(fields_of(case["intent"]))

    assert ours == Bytes32(case["intentHash"]).raw
    assert proposal_hash(ours, proposal_of(case)) == Bytes32(case["proposalHash"]).raw


CHANGES: dict[str, Any] = {
    "op": 3, "user": "0x" + "01" * 20, "settler": "0x" + "02" * 20, "nonce": "0x" + "03" * 32, "deadline": "4",
    "data": "0x05", "maxFees": [], "events": [], "configSig": "0x" + "06" * 65, "minValidations": 7,
}  # fmt: skip


@each_row("name", CHANGES)
def test_every_hashed_field_changes_the_hash(name: str) -> None:
    intent = EXECUTIONS[0]["intent"]

    assert intent_hash(fields_of({**intent, name: CHANGES[name]})) != intent_hash(fields_of(intent))


@each_row("name", ["solver", "deadline", "data", "fees"])
def test_every_hashed_field_of_a_proposal_changes_its_hash(name: str) -> None:
    given: dict[str, Any] = {"solver": "0x" + "08" * 20, "deadline": "9", "data": "0x0a", "fees": ["11", "12"]}
    changed: dict[str, Any] = {"solver": "0x" + "01" * 20, "deadline": "8", "data": "0x", "fees": ["12", "11"]}
    proposal = read(NewProposal, given)

    assert proposal_hash(bytes(32), proposal) != proposal_hash(
        bytes(32), read(NewProposal, {**given, name: changed[name]})
    )
    assert proposal_hash(bytes(32), proposal) != proposal_hash(b"\1" * 32, proposal)


@each_row("execution", EXECUTIONS, ids=lambda execution: execution["form"])
def test_the_signature_of_an_executed_proposal_is_over_our_digest(execution: dict[str, Any]) -> None:
    digest = settlement_digest(
        Bytes32(execution["proposalHash"]).raw, "Mimic", execution["chainId"], Address(execution["settler"])
    )

    # Both executions were signed with one key, which a wrong digest would recover to two others.
    assert recover(digest, Signature.parse(execution["proposalSignature"])) == SIGNER


def test_a_digest_binds_protocol_chain_and_settler() -> None:
    given = bytes(32), "Mimic", 8453, SETTLER
    others = [
        (b"\1" * 32, "Mimic", 8453, SETTLER), (bytes(32), "Other", 8453, SETTLER), (bytes(32), "Mimic", 1, SETTLER),
        (bytes(32), "Mimic", 8453, Address.parse("0x" + "5d" * 20)),
    ]  # fmt: skip

    assert len({settlement_digest(*each) for each in [given, *others]}) == 5


SOLVER, STRANGER, COLLEAGUE = Wallet(31), Wallet(32), Wallet(33)
HERE, THERE = keccak256(b"here"), keccak256(b"there")


def signed(*signatures: Signature) -> NewProposal:
    given = {"solver": SOLVER.address, "deadline": "1", "data": "0x", "fees": [], "signatures": list(signatures)}
    return read(NewProposal, given)


BY_SOLVER_HERE, BY_SOLVER_THERE = sign(HERE, SOLVER.key), sign(THERE, SOLVER.key)
BY_STRANGER, BY_COLLEAGUE = sign(HERE, STRANGER.key), sign(HERE, COLLEAGUE.key)
# Who may sign beside the solver.
ALLOWED = [Address(COLLEAGUE.address)]


@each_row(
    ("signatures", "digests", "expected"),
    [
        pytest.param([], [HERE], None, id="no signature"),
        pytest.param([BY_SOLVER_HERE], [], None, id="no chain"),
        pytest.param([BY_SOLVER_HERE], [HERE], True, id="by the solver"),
        pytest.param([BY_SOLVER_THERE], [HERE, THERE], True, id="on the second chain"),
        pytest.param([BY_SOLVER_HERE, BY_SOLVER_HERE], [HERE], True, id="twice"),
        pytest.param([BY_COLLEAGUE], [HERE], True, id="by one who may"),
        pytest.param([BY_SOLVER_HERE, BY_COLLEAGUE], [THERE, HERE], True, id="by the solver and one who may"),
        pytest.param([BY_COLLEAGUE, BY_STRANGER], [HERE], False, id="by one who may and a stranger"),
        pytest.param([BY_STRANGER], [HERE], False, id="by a stranger"),
        pytest.param([BY_SOLVER_HERE, BY_STRANGER], [HERE], False, id="one by a stranger"),
        pytest.param([BY_SOLVER_HERE], [THERE], False, id="on another chain"),
        pytest.param([BY_SOLVER_HERE, BY_SOLVER_THERE], [HERE, THERE], False, id="on two chains"),
    ],
)
def test_a_proposal_is_verified_when_every_signature_is_by_its_solver_or_who_else_may_sign_on_one_chain(
    signatures: list[Signature], digests: list[bytes], *, expected: bool | None
) -> None:
    assert signed_by(signed(*signatures), [(digest, ALLOWED) for digest in digests]).verified is expected


def test_who_may_sign_on_one_chain_may_not_on_another() -> None:
    assert signed_by(signed(BY_COLLEAGUE), [(HERE, []), (THERE, ALLOWED)]).verified is False


def test_the_signers_are_told_once_each_under_the_chain_on_which_they_count() -> None:
    given = signed(BY_COLLEAGUE, BY_STRANGER, BY_COLLEAGUE)
    signers = [Address(COLLEAGUE.address), Address(STRANGER.address)]
    assert signed_by(given, [(THERE, ALLOWED), (HERE, ALLOWED)]) == Signed(verified=False, signers=signers)
    assert signed_by(signed(), [(HERE, ALLOWED)]).signers == []
    assert signed_by(given, []).signers == []


def test_a_signature_that_recovers_to_nobody_is_not_the_solvers() -> None:
    # No point of the curve has 5 as its x.
    nobody = Signature.parse("0x" + HexString.from_raw((5).to_bytes(32) + (1).to_bytes(32))[2:] + "1b")

    assert recover(HERE, nobody) is None
    assert signed_by(signed(nobody), [(HERE, [])]) == Signed(verified=False, signers=[])
