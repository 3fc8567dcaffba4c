"""The closed table on signatures that wallets' libraries made, and on requests that they should have refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from counted_calls import calls_within
from each_row import each_row
from muniment.protocol.errors import InvalidTypedData, Refusal, SignatureMismatch
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature, personal_digest, recover
from muniment.protocol.evm.typed_data import digest
from muniment.protocol.triggers.typed_data import (
    DEACTIVATE_TYPES,
    deactivation_digests,
    deactivation_text,
    registry_domain,
    trigger_hash,
)

FOLDER = Path(__file__).parents[2] / "vectors" / "evm"
DOMAIN = registry_domain("Mimic")
# Of this process's own time: others share the machine.
CALLS_MAX = 10_000
MANIFEST_TYPE = re.compile(
    r"u?int(8|16|32|64|128|256)?|bool|address|bytes([1-9]|[12][0-9]|3[0-2])?|string|Token|TokenAmount"
)

# Arrays and structs of one's own are valid to sign, but no manifest declares them.
NO_MANIFEST_DECLARES = {"P13", "P14", "P15", "P16", "P17", "P25", "P28"}
# v 0 and 1 are lifted to 27 and 28, as hardware wallets count from 0.
LIFTED = {"PN14"}


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["cases"]


def manifest_of(types: Any) -> dict[str, str]:
    """The inputs of the function that a caller means: those of its types that a manifest can declare."""
    members = types.get("Input", [])
    if not isinstance(members, list):
        return {}
    return {member["name"]: member["type"] for member in members if MANIFEST_TYPE.fullmatch(member["type"])}


@each_row("case", cases("eip712_trigger_valid"), ids=lambda case: case["id"])
def test_a_valid_trigger_passes_when_a_manifest_can_declare_its_inputs(case: dict[str, Any]) -> None:
    inputs = manifest_of(case["types"])
    if case["id"] in NO_MANIFEST_DECLARES:
        with pytest.raises(InvalidTypedData):
            trigger_hash(case["types"], case["values"], inputs)
    else:
        assert "0x" + trigger_hash(case["types"], case["values"], inputs).hex() == case["structHash"]


@each_row("case", cases("eip712_trigger_hostile"), ids=lambda case: f"{case['id']}-{case['kind']}")
def test_a_hostile_request_is_refused_quickly_and_an_honest_one_is_not(case: dict[str, Any]) -> None:
    with calls_within(CALLS_MAX):
        try:
            signature, signer = Signature.parse(case["sig"]), Address.parse(case["signer"])
            struct_hash = trigger_hash(case["types"], case["values"], manifest_of(case["types"]))
            if recover(digest(DOMAIN, struct_hash), signature) != signer:
                raise SignatureMismatch("the signature is by another key or over other data")
            accepted = True
        except Refusal:
            accepted = False
    assert accepted is (case["expect"]["verdict"] == "accept" or case["id"] in LIFTED)


@each_row("case", cases("deactivation_candidates"), ids=lambda case: f"{case['id']}-{case['kind']}")
def test_a_deactivation_is_signed_as_text_or_as_typed_data_and_in_no_other_way(case: dict[str, Any]) -> None:
    taken = {"eip191-text-comma", "eip712-string-array"}
    # Lists without a trigger, with one twice, or with somebody else's are refused by other rules than the signature.
    other_rules = {"PD16", "PD20", "PD21"}
    expected = case["id"] in other_rules or (case["expect"]["verdict"] == "accept" and case["scheme"] in taken)
    try:
        signature = Signature.parse(case["signature"])
        digests = deactivation_digests([Signature.parse(sig) for sig in case["triggerSigs"]], DOMAIN)
        accepted = case["owner"] in {recover(signed, signature) for signed in digests}
    except Refusal:
        accepted = False

    assert accepted is expected


def test_the_text_and_the_types_of_a_deactivation_are_those_of_the_vectors() -> None:
    text = next(case for case in cases("deactivation_candidates") if case["id"] == "PD08")
    typed = next(case for case in cases("deactivation_candidates") if case["id"] == "PD12")
    sigs = [Signature.parse(sig) for sig in text["triggerSigs"]]

    assert deactivation_text(sigs) == text["message"]
    assert deactivation_digests(sigs, DOMAIN)[0] == personal_digest(text["message"].encode())
    assert typed["types"] == DEACTIVATE_TYPES
    assert "0x" + deactivation_digests(sigs, DOMAIN)[1].hex() == typed["digest"]
