"""A registry that lies: each provable fact of an answer is changed in turn, and the client refuses every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from facades_world import draft, new_intent, new_proposal, signer
from lies import in_place_of, lies, other, telling
from lying_world import (
    CLAIMED_OF_INTENTS,
    CLAIMED_OF_PROPOSALS,
    CLAIMED_OF_TRIGGERS,
    GIVEN,
    Lying,
    Read,
    lying_registry,
    trigger_reads,
)

from builders import event
from middle import Answered, Asked, Forward, remembering
from muniment.client import Forged, NotARegistry, Registry
from operator_client import SETTLER

GENERATIONS = pytest.mark.parametrize("generation", [1, 2])

WITHHELD = {
    "proposals.* removed", "proposals repeated", "proposals.*.signatures.* removed", "proposals.0.signatures repeated",
}  # fmt: skip


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    with lying_registry(tmp_path_factory.mktemp("lies")) as made:
        yield made


def accepted(
    world: Lying, registry: Registry, truth: Any, claimed: list[str], index: int, read: Read, path: str
) -> list[str]:
    """The lies about a record that `read` does not find."""
    found: list[str] = []
    told = 0
    known: dict[tuple[str, str, bytes], Answered] = {}
    for name, lie in lies(truth, claimed):
        with world.middle.behaving(remembering(telling(in_place_of(index, lie), path=path), known)):
            told += 1
            try:
                read(registry)
            except (Forged, NotARegistry):  # a record without a member
                continue
            found.append(name)
    assert told > 15
    return found


@pytest.mark.parametrize("name", ["get", "list", "list of a function", "follow", "refresh", "create"])
def test_every_lie_about_a_trigger_is_refused(lying: Lying, name: str) -> None:
    read = trigger_reads(lying)[name]
    truth = lying.truth(f"/triggers/{lying.sigs[1]}")
    rows = lying.truth(f"/triggers?sigs={','.join(lying.sigs)}")
    index = [each["sig"] for each in rows].index(lying.sigs[1]) if name == "refresh" else 1
    with lying.registry() as registry:
        read(registry)
        assert accepted(lying, registry, truth, CLAIMED_OF_TRIGGERS, index, read, "/triggers") == []
        moved = {**truth, "functionCid": lying.other_cid}
        with lying.middle.behaving(telling(in_place_of(index, moved), path="/triggers")), pytest.raises(Forged):
            read(registry)


def intent_reads(hash_: str) -> dict[str, Read]:
    """The operations that answer an intent."""
    return {
        "get": lambda registry: registry.intents.get(hash_),
        "list": lambda registry: [*registry.intents.list(settler=SETTLER)],
        "follow": lambda registry: next(iter(registry.intents.follow())),
    }


@GENERATIONS
@pytest.mark.parametrize("name", ["get", "list", "follow"])
def test_every_lie_about_an_intent_is_refused(lying: Lying, name: str, generation: int) -> None:
    hash_ = lying.hashes[generation][1]
    truth = lying.truth(f"/intents/{hash_}")
    index = [each["hash"] for each in lying.truth("/intents?sort=1&generation=all")].index(hash_)
    read = intent_reads(hash_)[name]
    with lying.registry() as registry:
        claimed = [each for each in CLAIMED_OF_INTENTS if each != "proposals"]
        found = accepted(lying, registry, truth, claimed, index, read, "/intents")
        # A registry may withhold proposals and signatures, or show one twice: that a list is complete is a claim.
        assert set(found) == WITHHELD


@GENERATIONS
@pytest.mark.parametrize("name", ["put", "move"])
def test_every_lie_about_a_written_intent_is_refused(lying: Lying, name: str, generation: int) -> None:
    new = new_intent(generation)
    with lying.registry() as registry:
        hash_ = registry.intents.put(new).hash
        read: Read = {
            "put": lambda registry: registry.intents.put(new),
            "move": lambda registry: registry.intents.move(hash_, "created"),
        }[name]
        read(registry)
        truth = lying.truth(f"/intents/{hash_}")
        assert accepted(lying, registry, truth, CLAIMED_OF_INTENTS, 0, read, "/intents") == []


@GENERATIONS
def test_every_lie_about_a_new_proposal_is_refused(lying: Lying, generation: int) -> None:
    hash_ = lying.hashes[generation][2]
    offer = new_proposal(generation, 9, fees=["3", "5"])
    with lying.registry() as registry:
        registry.intents.propose(hash_, offer)
        truth = next(each for each in lying.truth(f"/intents/{hash_}")["proposals"] if not each["signatures"])
        claimed = [*CLAIMED_OF_PROPOSALS, "signatures"]
        found = []
        for name, lie in lies(truth, claimed):
            with lying.middle.behaving(telling(in_place_of(0, lie), "POST")):
                try:
                    registry.intents.propose(hash_, offer)
                except (Forged, NotARegistry):
                    continue
                found.append(name)
        assert found == []


def test_a_log_line_that_was_written_is_the_one_that_was_sent(lying: Lying) -> None:
    with lying.registry() as registry:
        for name in ("id", "data", "level"):
            lie = {"id": "mine", "data": "a line", "level": "info", "createdAt": "2026-11-20T19:48:00.123Z"}
            lie[name] = "error" if name == "level" else other(lie[name])
            with lying.middle.behaving(telling(in_place_of(0, lie), "POST")), pytest.raises(Forged):
                registry.intents.log(lying.hashes[1][0], "info", "a line", id="mine")


@pytest.mark.parametrize("kind", ["triggers", "intents"])
def test_a_follower_may_go_on_without_the_forged_record(lying: Lying, kind: str) -> None:
    forged: list[Forged] = []
    names = lying.sigs if kind == "triggers" else lying.hashes[1]
    key = "sig" if kind == "triggers" else "hash"
    truth = lying.truth(f"/{kind}/{names[1]}")

    def change(answer: Any) -> Any:
        lie = {**truth, "minValidations": truth["minValidations"] + 1}
        return [lie if each[key] == names[1] else each for each in answer] if isinstance(answer, list) else answer

    with lying.registry() as registry, lying.middle.behaving(telling(change, path=f"/{kind}")):
        page = next(iter(getattr(registry, kind).follow(on_forged=forged.append)))
        shown = [getattr(each, key) for each in page]
        assert [each for each in shown if each in names] == [names[0], names[2]]
        assert [names[1] in str(each) for each in forged] == [True]
        with pytest.raises(Forged):
            next(iter(getattr(registry, kind).follow()))


@pytest.mark.parametrize(
    ("kind", "filters"),
    [
        ("triggers", {"signer": signer(8).address}), ("triggers", {"function_cid": "other"}),
        ("intents", {"user": signer(8).address}), ("intents", {"settler": signer(8).address}),
        ("intents", {"config_sig": "0x" + "34" * 64 + "1b"}), ("intents", {"status": "enqueued"}),
        ("functions", {"cids": ["other"]}),
    ],
)  # fmt: skip
def test_a_record_outside_the_filter_is_forged(lying: Lying, kind: str, filters: dict[str, Any]) -> None:
    names = {"other": lying.other_cid}
    given = {
        name: [names.get(each, each) for each in value] if isinstance(value, list) else names.get(value, value)
        for name, value in filters.items()
    }

    def behave(asked: Asked, forward: Forward) -> Answered:
        del forward
        return lying.middle.forward(asked._replace(target=f"/{kind}?sort=1&limit=1"))

    for verify in (True, False):
        with lying.registry(verify=verify) as registry:
            listed = getattr(registry, kind)
            assert [*listed.list(**given)] == [] or kind == "functions" or "function_cid" in filters
            with lying.middle.behaving(behave):
                with pytest.raises(Forged):
                    list(listed.list(**given))
                if kind != "functions" and "status" not in filters:
                    with pytest.raises(Forged):
                        next(iter(listed.follow(**given)))


def test_another_record_than_the_one_that_was_asked_for_is_forged(lying: Lying) -> None:
    first, second, _ = lying.sigs
    for verify in (True, False):
        with lying.registry(verify=verify, signer=signer()) as registry:
            with lying.middle.behaving(telling(lambda _: lying.truth(f"/triggers/{second}"), path="/triggers")):
                with pytest.raises(Forged):
                    registry.triggers.get(first)
                with pytest.raises(Forged):
                    registry.triggers.create(draft(lying.cid, input=GIVEN, config=event(), version="0.0.0"))
            with (
                lying.middle.behaving(telling(lambda _: [lying.truth(f"/triggers/{second}")], path="/triggers")),
                pytest.raises(Forged),
            ):
                registry.triggers.refresh([first])
            for generation, hashes in lying.hashes.items():
                truth = lying.truth(f"/intents/{hashes[1]}")
                with lying.middle.behaving(telling(in_place_of(0, truth), path="/intents")):
                    with pytest.raises(Forged):
                        registry.intents.get(hashes[0])
                    with pytest.raises(Forged):
                        registry.intents.put(new_intent(generation))
            with lying.middle.behaving(
                telling(lambda _: lying.truth(f"/functions/{lying.other_cid}"), path="/functions")
            ):
                with pytest.raises(Forged, match="but got"):
                    registry.functions.get(lying.cid)
                with pytest.raises(Forged, match="but this bundle has"):
                    registry.functions.deploy(lying.bundle)


@pytest.mark.parametrize("path", ["/users/nonce", "/users/authenticate", "/users/api-key"])
@pytest.mark.parametrize("operation", ["deploy", "api_key", "rotate_api_key"])
def test_no_login_and_no_key_of_another_address_is_used(lying: Lying, path: str, operation: str) -> None:
    def change(answer: Any) -> Any:
        return {**answer, "address": signer(8).address}

    # A wallet logs in eight times in five minutes: each test has its own.
    with lying.registry(signer=signer()) as registry, lying.middle.behaving(telling(change, path=path)):
        calls = {
            "deploy": lambda: registry.functions.deploy(lying.bundle), "api_key": registry.account.api_key,
            "rotate_api_key": registry.account.rotate_api_key,
        }  # fmt: skip
        with pytest.raises(Forged):
            calls[operation]()


def test_the_wallet_of_a_trigger_is_compared_where_it_is_given(lying: Lying) -> None:
    with lying.registry() as registry:
        trigger = registry.triggers.get(lying.sigs[0])
        assert registry.triggers.get(trigger.sig, signer=trigger.signer.lower()) == trigger
        with pytest.raises(Forged, match="asked for the signer"):
            registry.triggers.get(trigger.sig, signer=SETTLER)
