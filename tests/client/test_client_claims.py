"""Claims that a registry may make without a proof, and claims that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from facades_world import bundle, new_intent, signer
from lies import in_place_of, telling
from lying_world import Lying, lying_registry, trigger_reads

from builders import DOMAIN
from muniment.client import Forged
from muniment.client.offers import sign_proposal
from muniment.protocol.evm.signature import Signature, recover
from muniment.protocol.evm.typed_data import compile_types, digest
from operator_client import FAR_DEADLINE

GENERATIONS = pytest.mark.parametrize("generation", [1, 2])


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    with lying_registry(tmp_path_factory.mktemp("lies")) as made:
        yield made


def test_a_content_with_another_signer_passes_only_where_the_signer_is_not_known(lying: Lying) -> None:
    """Each content has a signer whose signature a given text is: a signature alone does not name a trigger."""
    truth = lying.truth(f"/triggers/{lying.sigs[1]}")
    lie = {**truth, "executionFeeLimit": "999"}
    names = ("functionCid", "version", "input", "config", "executionFeeLimit", "minValidations")
    struct = compile_types(lie["types"], "Trigger").struct_hash({name: lie[name] for name in names})
    lie["signer"] = recover(digest(DOMAIN, struct), Signature.parse(lying.sigs[1]))
    reads = trigger_reads(lying)
    with lying.registry() as registry, lying.middle.behaving(telling(in_place_of(1, lie), path="/triggers")):
        assert registry.triggers.get(lying.sigs[1]).signer == lie["signer"] != truth["signer"]
        for name in ("create", "list"):
            with pytest.raises(Forged):
                reads[name](registry)


def test_without_verifying_only_what_was_asked_for_is_compared(lying: Lying) -> None:
    trigger = {**lying.truth(f"/triggers/{lying.sigs[1]}"), "version": "6.6.6"}
    intent = {**lying.truth(f"/intents/{lying.hashes[1][1]}"), "data": "0x66"}
    with lying.registry(verify=False) as registry:
        with lying.middle.behaving(telling(in_place_of(1, trigger), path="/triggers")):
            assert registry.triggers.get(lying.sigs[1]).version == "6.6.6"
            assert "6.6.6" in [each.version for each in registry.triggers.list(signer=signer(7).address)]
        with lying.middle.behaving(telling(in_place_of(1, intent), path="/intents")):
            assert registry.intents.get(lying.hashes[1][1]).data == "0x66"  # pyright: ignore[reportAttributeAccessIssue] - of the first generation
    assert not any("/ipfs/" in asked.target for asked in lying.middle.asked[-3:])


@pytest.mark.parametrize("name", ["createdAt", "description", "deactivateSig"])
def test_what_a_trigger_only_claims_may_be_anything(lying: Lying, name: str) -> None:
    values = {
        "createdAt": "2001-01-01T00:00:00.000Z",
        "description": "free money",
        "deactivateSig": signer(5).sign_text("x"),
    }
    lie = {**lying.truth(f"/triggers/{lying.sigs[1]}"), name: values[name]}
    with lying.registry() as registry:
        for read in trigger_reads(lying).values():
            with lying.middle.behaving(telling(in_place_of(1, lie), path="/triggers/")):
                read(registry)


@GENERATIONS
def test_what_an_intent_only_claims_may_be_anything(lying: Lying, generation: int) -> None:
    hash_ = lying.hashes[generation][1]
    truth = lying.truth(f"/intents/{hash_}")
    offer = truth["proposals"][0]
    claims: list[dict[str, Any]] = [
        {"executionHash": "0x66"}, {"createdAt": "2001-01-01T00:00:00.000Z"}, {"status": "succeeded"},
        {"transactionHash": "0x" + "66" * 32}, {"destTransactionHash": "0x" + "66" * 32}, {"logs": []},
        {"proposals": []},
        *({"proposals": [{**offer, **claim}]} for claim in (
            {"feeUsd": "6"}, {"status": "succeeded"}, {"description": "best"}, {"verified": False}, {"signers": []},
            {"signatures": []}, {"transactionHash": "0x" + "66" * 32},
        )),
    ]  # fmt: skip
    with lying.registry() as registry:
        for claim in claims:
            with lying.middle.behaving(telling(in_place_of(0, {**truth, **claim}), path="/intents/")):
                registry.intents.get(hash_)


def test_signatures_of_a_settler_that_the_client_does_not_know_are_claims(lying: Lying) -> None:
    hash_ = lying.hashes[1][1]
    truth = lying.truth(f"/intents/{hash_}")
    truth["proposals"][0]["signatures"] = [signer(5).sign_text("x")]
    with lying.middle.behaving(telling(in_place_of(0, truth), path="/intents/")):
        with lying.registry(chains={}) as registry:
            registry.intents.get(hash_)
        with lying.registry() as registry, pytest.raises(Forged):
            registry.intents.get(hash_)


def test_a_listing_by_a_later_uploader_shows_the_record_of_the_first(lying: Lying) -> None:
    """Whoever has uploaded a bundle is one of its creators, and its record names the first."""
    made, first, second = bundle(), signer(), signer()
    for wallet in (first, second):
        with lying.registry(signer=wallet) as registry:
            registry.functions.deploy(made)
    for wallet in (first, second):
        with lying.registry() as registry:
            (found,) = registry.functions.list(creator=wallet.address)
            assert (found.cid in made.cids(), found.creator) == (True, first.address)


def test_a_function_of_another_name_than_was_asked_for_is_forged(lying: Lying) -> None:
    (function,) = lying.truth("/functions?limit=1")

    def found(name: str) -> set[str]:
        lie = telling(lambda _: [{**function, "name": name}], "GET", "/functions?")
        with lying.middle.behaving(lie), lying.registry() as registry:
            return {each.name for each in registry.functions.list(name="HELL")}

    assert found("\uff28ello") == {"\uff28ello"}  # a compatible form of H
    assert found("\U0001ccddello") == {"\U0001ccddello"}  # another one, which older Pythons do not know
    for name in ("Other", "Hel", "Shell"):
        with pytest.raises(Forged, match="another name"):
            found(name)


def test_another_protocol_name_proves_nothing(lying: Lying) -> None:
    with lying.registry(protocol="Other") as registry:
        with pytest.raises(Forged):
            registry.triggers.get(lying.sigs[0])
        with pytest.raises(Forged):
            registry.intents.get(lying.hashes[1][0])


def test_an_offer_with_a_foreign_signature_is_forged(lying: Lying) -> None:
    with lying.registry() as registry:
        intent = registry.intents.put(new_intent())
        offer = sign_proposal(signer(72), intent, chain_id=1, fees=[], deadline=FAR_DEADLINE)
        registry.intents.propose(intent.hash, offer)
        with pytest.raises(Forged, match="not signed by its solver"):
            registry.intents.get(intent.hash)
