"""The context of a run, and the nonces that functions compute from it."""

from __future__ import annotations

import json

import pytest

import guest_functions
from muniment.chains.catalogue import CATALOGUE, FIRST_SETTLER, SECOND_SETTLER
from muniment.guest.sandbox import Sandbox
from muniment.guest.types import Answer, Question, inputs_of
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.relayer.runner.context import context_text, run_context, settlers_of
from warm_sandbox import warm_sandbox

__all__ = ["warm_sandbox"]  # the fixture

SIG = Signature.parse("0x" + "1a" * 64 + "1b")
TICK_MS = 1_795_262_400_000
USER = Address.parse("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
TOKEN = Address.parse("0x" + "cd" * 20)
SETTLERS = settlers_of(CATALOGUE.values())
TEXT = context_text(
    sig=SIG, kind=0, payload=time_payload(TICK_MS), timestamp_ms=TICK_MS, user=USER, settlers=SETTLERS[:1]
)


def test_a_context_has_the_members_that_functions_read() -> None:
    assert json.loads(TEXT) == {
        "timestamp": TICK_MS,
        "consensusThreshold": 1,
        "user": USER.lower(),
        "settlers": [{"address": SECOND_SETTLER.lower(), "chainId": 1}],
        "triggerSig": SIG,
        "triggerPayload": {"type": 0, "data": f"0x{TICK_MS:064x}"},
        "oracleResponses": {},
    }


def test_the_settlers_are_the_first_of_each_chain_by_chain_id() -> None:
    chains = [CATALOGUE[8453], CATALOGUE[84532], CATALOGUE[1]]
    found = [(each.chain_id, each.address) for each in settlers_of(chains)]
    assert found == [(1, SECOND_SETTLER), (8453, SECOND_SETTLER), (84532, FIRST_SETTLER)]
    assert run_context(SETTLERS).settlers == SETTLERS


@pytest.mark.usefixtures("warm_sandbox")
async def test_a_nonce_is_the_hash_of_signature_time_payload_and_place() -> None:
    async def answer(question: Question) -> Answer:
        raise AssertionError(question)

    values = {"chainId": 1, "token": str(TOKEN), "amount": "1", "recipient": str(USER), "fee": "1"}
    async with Sandbox.open() as sandbox:
        compiled = await sandbox.compile_module(guest_functions.kept("transfer"))
        inputs = inputs_of(guest_functions.INPUTS["transfer"], values)
        run = await sandbox.run_module(compiled, context=TEXT, inputs=inputs, answer=answer)
    (intent,) = run.intents
    assert intent.body["nonce"] == "0x" + keccak256(f"{SIG}{TICK_MS}0x{TICK_MS:064x}1".encode()).hex()
    # The vector: a change of the rule or of the context would give one consent two nonces.
    assert intent.body["nonce"] == "0xaa97b0610e8d134beed120c5ce85ac582712004543721731dd249be5631f8ca3"
