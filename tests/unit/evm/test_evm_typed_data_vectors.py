"""The encoder on signatures that wallets' libraries made, and on requests that they should have refused."""

from typing import Any

from evm_vectors import cases

from counted_calls import calls_within
from each_row import each_row
from muniment.protocol.errors import Refusal, SignatureMismatch
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature, recover
from muniment.protocol.evm.typed_data import Domain, compile_types, digest

DOMAIN = Domain(name="Mimic Protocol - Registry", version="1")
# Generous for the slowest machine; the vectors that hang other verifiers take seconds there.
CALLS_MAX = 10_000

# Where the registry decides otherwise than the verifier that the vectors were made with.
ACCEPTED_HERE = {"PN14": "v 0 and 1 are lifted to 27 and 28, as hardware wallets count from 0"}
REFUSED_HERE = {"PN91": "U+0000 is valid to sign, but is not stored"}


def verify(case: dict[str, Any]) -> None:
    signature = Signature.parse(case["sig"])
    signer = Address.parse(case["signer"])
    struct_hash = compile_types(case["types"], "Trigger").struct_hash(case["values"])
    if recover(digest(DOMAIN, struct_hash), signature) != signer:
        raise SignatureMismatch("the signature is by another key or over other data")


@each_row("case", cases("eip712_trigger_valid"), ids=lambda case: case["id"])
def test_a_valid_trigger_has_the_hashes_and_the_signer_that_every_library_finds(case: dict[str, Any]) -> None:
    encoder = compile_types(case["types"], "Trigger")
    struct_hash = encoder.struct_hash(case["values"])

    assert encoder.encode_type == case["encodeType"]
    assert "0x" + DOMAIN.separator.hex() == case["domainSeparator"]
    assert "0x" + struct_hash.hex() == case["structHash"]
    assert "0x" + digest(DOMAIN, struct_hash).hex() == case["digest"]
    assert recover(digest(DOMAIN, struct_hash), Signature.parse(case["signature"])) == case["signer"]


def outcome(case: dict[str, Any]) -> str:
    try:
        verify(case)
    except SignatureMismatch:
        return "unauthorised"
    except Refusal:
        return "malformed"
    return "ok"


@each_row("case", cases("eip712_trigger_hostile"), ids=lambda case: f"{case['id']}-{case['kind']}")
def test_a_hostile_request_is_refused_for_its_kind_and_quickly(case: dict[str, Any]) -> None:
    with calls_within(CALLS_MAX):
        found = outcome(case)
    if case["id"] in ACCEPTED_HERE:
        assert found == "ok"
    elif case["id"] in REFUSED_HERE:
        assert found == "malformed"
    else:
        assert found == case["expect"]["class"]
