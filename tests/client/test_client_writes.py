"""A write is done when the service has it: no answer of a portal, a proxy or a liar is taken for that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from facades_world import CHAIN_ID, bundle, draft, new_intent, new_proposal, signer
from lies import telling
from lying_world import GIVEN, Lying, lying_registry
from msgspec.structs import replace

from builders import Wallet, event
from curve import ORDER, POINT, times
from middle import Answered, Asked, Behaviour, Forward, always
from muniment.client import Forged, NotARegistry, Registry
from muniment.client.offers import sign_proposal
from muniment.client.signers import KeySigner, typed_digest
from muniment.protocol.evm.signature import Signature
from operator_client import FAR_DEADLINE
from using import Person

if TYPE_CHECKING:
    from service import Service

PORTAL = b"<html><title>Welcome to the hotel</title></html>"
NUMBERS = count(1)
# What a write may be answered by whoever has not done it.
NOT_DONE: dict[str, Behaviour] = {
    "a page of a portal": always(Answered(200, {"content-type": "text/html"}, PORTAL)),
    "half a JSON": always(Answered(200, {"content-type": "application/json"}, b'{"triggerSigs": ["0x')),
    "an empty 200": always(Answered(200, {}, b"")),
    "an empty object": always(Answered(200, {"content-type": "application/json"}, b"{}")),
    "a 202": always(Answered(202, {}, b"")),
    "a 204": always(Answered(204, {}, b"")),
}


@pytest.fixture(scope="module")
def lying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    with lying_registry(tmp_path_factory.mktemp("writes")) as made:
        yield made


def only_writes(behave: Behaviour) -> Behaviour:
    """`behave` for writes; reads are answered honestly."""
    return lambda asked, forward: forward() if asked.method == "GET" else behave(asked, forward)


def new_sig(registry: Registry, lying: Lying) -> str:
    """The signature of a trigger that is active."""
    made = draft(lying.cid, input=GIVEN, config=event(), version=f"7.0.{next(NUMBERS)}")
    return str(registry.triggers.create(made).sig)


@pytest.mark.parametrize("name", NOT_DONE)
@pytest.mark.parametrize("reads", ["honest", "the same"])
def test_an_answer_of_another_program_ends_no_trigger(lying: Lying, name: str, reads: str) -> None:
    for verify in (True, False):
        with lying.registry(verify=verify) as registry:
            sig = new_sig(registry, lying)
            fault = NOT_DONE[name] if reads == "the same" else only_writes(NOT_DONE[name])
            with lying.middle.behaving(fault), pytest.raises((Forged, NotARegistry)):
                registry.triggers.deactivate([sig])
            assert "deactivateSig" not in lying.truth(f"/triggers/{sig}")


def test_the_command_does_not_say_that_a_trigger_is_deactivated_which_is_active(lying: Lying, tmp_path: Path) -> None:
    with lying.registry() as registry:
        sig = new_sig(registry, lying)
    person = Person(cast("Service", lying.middle), tmp_path / "home", Wallet(7))
    for name, fault in NOT_DONE.items():
        with lying.middle.behaving(only_writes(fault)):
            result = person.run("triggers", "deactivate", sig)
        is_claimed = name == "a 204"  # the answer of a registry
        assert result.exit_code == (5 if is_claimed else 4), (name, result.output)
        assert ("FORGED" if is_claimed else "is no registry") in result.stderr, name
        assert "deactivated" not in result.stderr.partition("\n")[2], name
    assert "deactivateSig" not in lying.truth(f"/triggers/{sig}")


def shown_as(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Behaviour:
    """A registry that says 204 and does nothing, and shows a deactivation that `change` makes of the consent."""
    posted: dict[str, Any] = {}

    def behave(asked: Asked, forward: Forward) -> Answered:
        if asked.target == "/triggers/deactivate":
            posted.update(json.loads(asked.body))
            return Answered(204, {}, b"")
        if asked.target.startswith("/deactivations/"):
            domain = {"name": "Mimic Protocol - Registry", "version": "1"}
            record = {
                **posted, "signer": signer(7).address, "domain": domain, "form": "eip712",
                "createdAt": "2026-11-20T19:48:00.123Z",
            }  # fmt: skip
            return Answered(200, {"content-type": "application/json"}, json.dumps(change(record)).encode())
        return forward()

    return behave


def test_a_deactivation_of_other_triggers_is_forged(lying: Lying) -> None:
    with lying.registry() as registry:
        sig, another = new_sig(registry, lying), new_sig(registry, lying)
        others = {
            "a trigger less": lambda record: {**record, "triggerSigs": record["triggerSigs"][:1]},
            "other triggers": lambda record: {**record, "triggerSigs": lying.sigs[:2]},
            "another signature": lambda record: {**record, "signature": signer(5).sign_text("x")},
        }  # fmt: skip
        for name, change in others.items():
            with lying.middle.behaving(shown_as(change)), pytest.raises(Forged, match="but got"):
                registry.triggers.deactivate([sig, another])
            assert "deactivateSig" not in lying.truth(f"/triggers/{sig}"), name


def test_the_deactivation_that_an_owner_keeps_is_proved(lying: Lying) -> None:
    with lying.registry() as registry:
        [kept] = registry.triggers.deactivate([sig := new_sig(registry, lying)])
        assert (kept.signature, kept.trigger_sigs) == (lying.truth(f"/triggers/{sig}")["deactivateSig"], [sig])
        for change in ({"signer": signer(5).address}, {"form": "eip191"}, {"domain": {"name": "x", "version": "1"}}):
            lie = shown_as(lambda record, change=change: {**record, **change})
            another = new_sig(registry, lying)
            with lying.middle.behaving(lie), pytest.raises(Forged):
                registry.triggers.deactivate([another])


def test_triggers_that_ended_before_are_proved_by_their_own_deactivations(lying: Lying) -> None:
    with lying.registry() as registry:
        first, second, third = (new_sig(registry, lying) for _ in range(3))
        endings = registry.triggers.deactivate([first])
        endings += registry.triggers.deactivate([second.upper().replace("X", "x")])
        # It ends nothing, so that the service keeps no row of it.
        assert registry.triggers.deactivate([first, second]) == endings
        registry.triggers.deactivate([first, third])
        invented = signer(5).sign_text("x")

        def end(answer: Any) -> Any:
            listed = answer if isinstance(answer, list) else [answer]
            return [{**each, "deactivateSig": invented} for each in listed]

        registry.triggers.deactivate([third])
        lies: dict[str, Behaviour] = {
            "nothing ended": telling(lambda answer: [
                {name: value for name, value in each.items() if name != "deactivateSig"} for each in answer
            ], path="/triggers?"),
            "one is withheld": telling(lambda answer: answer[:1], path="/triggers?"),
            "an invented deactivation": telling(end, path="/triggers?"),
        }  # fmt: skip
        for lie in lies.values():
            with lying.middle.behaving(lie), pytest.raises(Forged):
                registry.triggers.deactivate([third, second])


def test_a_consent_of_another_wallet_is_posted_and_seen(lying: Lying) -> None:
    with lying.registry() as registry:
        sig = new_sig(registry, lying)
    with lying.registry(signer=None) as registry:
        registry.triggers.post_deactivation([sig], signer(7).sign_text(sig))
        assert Signature.parse(lying.truth(f"/triggers/{sig}")["deactivateSig"])


class Unrepeating(KeySigner):
    """A wallet that signs a text twice with two signatures: its nonces of ECDSA are chance, as FIPS 186-5 allows."""

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        nonce, key = next(NUMBERS) + 1, int.from_bytes(Wallet(7).key)
        point = times(nonce, POINT)
        assert point is not None
        x, y = point
        s = pow(nonce, -1, ORDER) * (int.from_bytes(typed_digest(data)) + x * key) % ORDER
        low, parity = (s, y % 2) if s <= ORDER // 2 else (ORDER - s, 1 - y % 2)
        return f"0x{x:064x}{low:064x}{27 + parity:02x}"


@pytest.mark.parametrize("verify", [True, False])
def test_a_consent_that_was_registered_under_another_signature_is_answered_with_it(
    lying: Lying, *, verify: bool
) -> None:
    wallet = Unrepeating(Wallet(7).key)
    draft_ = draft(lying.cid, input=GIVEN, config=event(), version=f"7.0.{next(NUMBERS)}")
    with lying.registry(signer=wallet, verify=verify) as registry:
        first = registry.triggers.create(draft_)
        again = registry.triggers.sign(draft_)
        assert again.sig != first.sig
        assert registry.triggers.create(again) == first
        # It is this consent alone that another signature may stand for.
        for other in (
            lying.truth(f"/triggers/{lying.sigs[0]}"),
            {**lying.truth(f"/triggers/{first.sig}"), "version": "6.6.6"},
        ):
            with (
                lying.middle.behaving(telling(lambda _, other=other: other, "POST", "/triggers")),
                pytest.raises(Forged, match="but got"),
            ):
                registry.triggers.create(again)


@pytest.mark.parametrize("name", NOT_DONE)
def test_every_lie_about_another_write_is_refused(lying: Lying, name: str) -> None:
    with lying.registry(signer=signer()) as registry:
        registry.account.log_in()
        hash_ = registry.intents.put(new_intent()).hash
        writes: dict[str, Callable[[], object]] = {
            "deploy": lambda: registry.functions.deploy(bundle()),
            "create": lambda: registry.triggers.create(draft(lying.cid, input=GIVEN, config=event(), version="8.0.0")),
            "put": lambda: registry.intents.put(new_intent()),
            "propose": lambda: registry.intents.propose(hash_, new_proposal()),
            "log": lambda: registry.intents.log(hash_, "info", "a line"),
            "move": lambda: registry.intents.move(hash_, "enqueued"),
            "rotate": registry.account.rotate_api_key,
        }  # fmt: skip
        for operation, write in writes.items():
            with lying.middle.behaving(only_writes(NOT_DONE[name])), pytest.raises(NotARegistry):
                write()
            assert operation


@pytest.mark.parametrize("generation", [1, 2])
def test_other_signatures_of_a_proposal_than_its_solver_has_made_are_forged(lying: Lying, generation: int) -> None:
    with lying.registry() as registry:
        intent = registry.intents.put(new_intent(generation))
        offer = sign_proposal(
            signer(72), intent, chain_id=CHAIN_ID, fees=["3", "4"], deadline=FAR_DEADLINE, data="0xbe"
        )
        lie = telling(lambda answer: {**answer, "signatures": [signer(5).sign_text("x")]}, "POST", "/intents/")
        with lying.middle.behaving(lie):
            with pytest.raises(Forged, match="not signed by its solver"):
                registry.intents.propose(intent.hash, offer)
            with lying.registry(chains={}) as elsewhere:  # the settlement contract is not known: a claim
                elsewhere.intents.propose(intent.hash, offer)
        assert registry.intents.propose(intent.hash, offer).signatures == offer.signatures
        unsigned = replace(offer, signatures=[])
        assert registry.intents.propose(intent.hash, unsigned).signatures == offer.signatures  # those of the first


def test_an_intent_that_has_not_moved_is_forged(lying: Lying) -> None:
    with lying.registry() as registry:
        hash_ = registry.intents.put(new_intent()).hash
        offer = registry.intents.propose(hash_, new_proposal())
        truth = lying.truth(f"/intents/{hash_}")
        with lying.middle.behaving(telling(lambda _: truth, "POST")):
            with pytest.raises(Forged, match="enqueued"):
                registry.intents.move(hash_, "enqueued")
            with pytest.raises(Forged, match="accepted"):
                registry.intents.move(hash_, "accepted", proposal=offer.hash)


def test_a_rotation_that_answers_the_old_key_is_forged(lying: Lying) -> None:
    with lying.registry(signer=signer()) as registry:
        old = registry.account.api_key()
        with (
            lying.middle.behaving(telling(lambda answer: {**answer, "apiKey": old}, "POST", "/users/api-key")),
            pytest.raises(Forged, match="old one"),
        ):
            registry.account.rotate_api_key(grace_s=0)


def test_a_bundle_that_was_recorded_under_another_name_is_forged(lying: Lying) -> None:
    with lying.registry(signer=signer()) as registry:
        for member in ("name", "version", "description"):
            lie = telling(lambda answer, member=member: {**answer, member: answer[member] + "-b"}, "POST", "/functions")
            with lying.middle.behaving(lie), pytest.raises(Forged, match="manifest"):
                registry.functions.deploy(bundle())
