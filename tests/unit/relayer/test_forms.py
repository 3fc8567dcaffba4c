"""The form of a function's intent: the settlement contract that it names decides."""

from __future__ import annotations

from typing import Any

from each_row import each_row
from muniment.chains.catalogue import FIRST_SETTLER, SECOND_SETTLER
from muniment.chains.settlers import KNOWN
from muniment.guest.types import Generation, GuestIntent, GuestRun, IntentKind
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import FIRST, AnyNewIntent, NewIntent, NewOperationsIntent
from muniment.relayer.runner.forms import Made, formed
from operation_data import BASE, DAI, OP_DAI, RECIPIENT, USDC, call_data, dynamic_call_data, swap_data, transfer_data

SIG = Signature.parse("0x" + "11" * 64 + "1b")
USER = "0x" + "aa" * 20
PAYER = "0x" + "bb" * 20
NONCE = "0x" + "c1" * 32
DEADLINE = "1795262700"
EVENT = {"topic": "0x" + "0e" * 32, "data": "0xbeef"}
FEE = {"token": USDC.upper().replace("0X", "0x"), "amount": "7"}
TRANSFER: dict[str, Any] = {
    "chainId": BASE, "transfers": [{"token": USDC, "amount": "250000", "recipient": RECIPIENT}],
}  # fmt: skip
CALL: dict[str, Any] = {
    "chainId": BASE, "calls": [{"target": USDC, "data": "0xa9059cbb" + "00" * 64, "value": "0"}],
}  # fmt: skip


def swap(destination: int = BASE) -> dict[str, Any]:
    wanted = DAI if destination == BASE else OP_DAI
    return {
        "sourceChain": BASE, "destinationChain": destination, "tokensIn": [{"token": USDC, "amount": "1500000"}],
        "tokensOut": [{"token": wanted, "minAmount": str(14 * 10**17), "recipient": RECIPIENT}],
    }  # fmt: skip


def sent_b(body: dict[str, Any], settler: Address, **members: Any) -> dict[str, Any]:
    head = {"op": 9, "user": USER, "settler": settler.lower(), "nonce": NONCE, "deadline": DEADLINE}
    return {**head, "maxFees": [FEE], "events": [EVENT], **body, **members}


def sent_c(*operations: dict[str, Any], settler: Address = SECOND_SETTLER) -> dict[str, Any]:
    head = {"feePayer": PAYER, "settler": settler.lower(), "nonce": NONCE, "deadline": DEADLINE, "maxFees": [FEE]}
    return {**head, "operations": list(operations)}


def operation(op_type: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"opType": op_type, "chainId": BASE, "user": USER, "events": [EVENT], **body}


def run_of(*intents: tuple[IntentKind, dict[str, Any]], generation: Generation = "B") -> GuestRun:
    sent = tuple(GuestIntent(kind, body) for kind, body in intents)
    return GuestRun(result="intents", generation=generation, intents=sent)


def forms(run: GuestRun) -> tuple[GuestRun, list[Made]]:
    return formed(run, sig=SIG, min_validations=2, generations=KNOWN)


def one(kind: IntentKind, body: dict[str, Any]) -> AnyNewIntent:
    run, (made,) = forms(run_of((kind, body)))
    assert run.result == "intents"
    assert made.hash == intent_hash(made.intent)
    return made.intent


@each_row(
    ("kind", "body", "op", "data"),
    [
        ("swap", swap(), 0, swap_data()),
        ("swap", swap(10), 0, swap_data(BASE, 10)),
        ("transfer", TRANSFER, 1, transfer_data()),
        ("evmCall", CALL, 2, call_data()),
    ],
)
def test_an_operation_of_generation_b_is_an_intent_of_the_first_settler(
    kind: IntentKind, body: dict[str, Any], op: int, data: str
) -> None:
    intent = one(kind, sent_b(body, FIRST_SETTLER))
    assert isinstance(intent, NewIntent)
    assert (intent.op, intent.data, intent.user) == (op, data, Address.parse(USER))
    assert (intent.config_sig, intent.min_validations) == (SIG, 2)
    assert (intent.nonce, intent.deadline, intent.settler) == (NONCE, DEADLINE, FIRST_SETTLER)
    assert [(fee.token, fee.amount) for fee in intent.max_fees] == [(USDC, "7")]
    assert [(event.topic, event.data) for event in intent.events] == [tuple(EVENT.values())]


@each_row(
    ("kind", "body", "op_type", "data"),
    [
        ("swap", swap(), 0, swap_data()),
        ("swap", swap(10), 3, swap_data(BASE, 10)),
        ("transfer", TRANSFER, 1, transfer_data()),
        ("evmCall", CALL, 2, call_data()),
    ],
)
def test_an_operation_of_generation_b_is_wrapped_for_the_second_settler(
    kind: IntentKind, body: dict[str, Any], op_type: int, data: str
) -> None:
    intent = one(kind, sent_b(body, SECOND_SETTLER))
    assert isinstance(intent, NewOperationsIntent)
    (wrapped,) = intent.operations
    assert (wrapped.op_type, wrapped.data, wrapped.user) == (op_type, data, Address.parse(USER))
    assert [(event.topic, event.data) for event in wrapped.events] == [tuple(EVENT.values())]
    assert (intent.fee_payer, intent.trigger_sig, intent.min_validations) == (Address.parse(USER), SIG, 2)


def test_the_operations_of_generation_c_stay_as_they_are() -> None:
    bodies = [operation(0, swap()), operation(1, TRANSFER), operation(2, CALL), operation(3, swap(10))]
    intent = one("intent", sent_c(*bodies))
    assert isinstance(intent, NewOperationsIntent)
    assert [(each.op_type, each.data) for each in intent.operations] == [
        (0, swap_data()), (1, transfer_data()), (2, call_data()), (3, swap_data(BASE, 10)),
    ]  # fmt: skip
    assert (intent.fee_payer, intent.trigger_sig) == (Address.parse(PAYER), SIG)


def test_a_dynamic_call_is_encoded_as_the_contract_reads_it() -> None:
    call = {"target": USDC, "value": "0", "selector": "0xa9059cbb", "arguments": []}
    intent = one("intent", sent_c(operation(4, {"calls": [call]})))
    assert isinstance(intent, NewOperationsIntent)
    (made,) = intent.operations
    # The same words around the one call, whose own encoding is 6 words instead of one padded byte.
    assert made.data[: 2 + 64 * 5] == dynamic_call_data(1)[: 2 + 64 * 5]
    assert "a9059cbb" + "00" * 28 in made.data


@each_row(
    ("kind", "body", "reason", "text"),
    [
        ("intent", sent_c(operation(1, TRANSFER), settler=FIRST_SETTLER), "refused-call", "first generation"),
        ("transfer", sent_b(TRANSFER, Address.parse(USER)), "refused-call", "no known settlement contract"),
        ("intent", sent_c(operation(5, TRANSFER)), "refused-call", "no operation 5"),
        ("transfer", sent_b({}, FIRST_SETTLER), "bad-argument", "chainId is required"),
        ("transfer", sent_b({**TRANSFER, "transfers": []}, FIRST_SETTLER), "bad-argument", "/transfers"),
        ("transfer", sent_b(TRANSFER, FIRST_SETTLER, nonce="0x"), "bad-argument", "/nonce"),
        ("transfer", sent_b(TRANSFER, FIRST_SETTLER, deadline="-1"), "bad-argument", "/deadline"),
        ("transfer", sent_b(TRANSFER, FIRST_SETTLER, events=[EVENT] * 257), "bad-argument", "256"),
        ("intent", sent_c(), "bad-argument", "length >= 1"),
        ("intent", {}, "bad-argument", "settler is required"),
        ("evmCall", sent_b({**CALL, "calls": CALL["calls"] * 700}, FIRST_SETTLER), "limit-intent-bytes", "bytes"),
    ],
)
def test_an_intent_without_a_form_stops_the_run_and_takes_those_before_it(
    kind: IntentKind, body: dict[str, Any], reason: str, text: str
) -> None:
    good: tuple[IntentKind, dict[str, Any]] = ("transfer", sent_b(TRANSFER, SECOND_SETTLER))
    run, made = forms(run_of(good, (kind, body)))
    assert (run.result, run.reason, made, run.intents) == ("stopped", reason, [], ())
    assert run.text.startswith("intent 2: ")
    assert text in run.text


def test_an_intent_that_was_sent_twice_is_one() -> None:
    first, second = sent_b(TRANSFER, SECOND_SETTLER), sent_b(CALL, FIRST_SETTLER)
    run, made = forms(run_of(("transfer", first), ("evmCall", second), ("transfer", first)))
    assert run.result == "intents"
    assert [KNOWN[each.intent.settler] == FIRST for each in made] == [False, True]


def test_a_run_without_intents_stays_as_it_is() -> None:
    run = GuestRun(result="stopped", reason="abort", text="no")
    assert forms(run) == (run, [])
