"""The intents of a function, brought into the form of the settlement contract that they name. Pure.

A function of generation B sends one operation in each intent, one of generation C a list of them. The settlement
contract decides which form an intent gets:

| function | first generation | second generation |
|---|---|---|
| B | as it is | its operation alone in the list |
| C | refused | as it is |

Sources: packages/lib-ts/src/intents of mimic-protocol/tooling at eadecbf and 5058681, and
packages/evm/contracts/Intents.sol of mimic-protocol/contracts at 79af160 and 9fc31ff.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from muniment.guest.types import GuestIntent, GuestRun
from muniment.protocol.errors import Invalid
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.rules import HEAD_BYTES_MAX
from muniment.protocol.intents.types import FIRST, AnyNewIntent, Generation, NewIntent, NewOperationsIntent
from muniment.protocol.wire import Amount, encode
from muniment.relayer.runner.operations import CROSS_CHAIN_SWAP, SWAP, Refused, is_cross_chain, operation_data, shape

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.reasons import StopReason

_OPS: Final[Mapping[str, int]] = {"swap": 0, "transfer": 1, "evmCall": 2}


class Made(NamedTuple):
    """An intent in the form of the registry, and its hash, 32 bytes."""

    hash: bytes
    intent: AnyNewIntent


class _Fee(Struct, frozen=True):
    token: Address
    amount: Amount


class _Event(Struct, frozen=True):
    topic: Bytes32
    data: HexString


class _Named(Struct, frozen=True):
    settler: Address


class _Sent(Struct, frozen=True, rename="camel", kw_only=True):
    """What both generations send of an intent."""

    settler: Address
    deadline: Amount
    nonce: Bytes32
    max_fees: list[_Fee]


class _SentB(_Sent, frozen=True, rename="camel", kw_only=True):
    user: Address
    events: list[_Event] = []


class _SentOperation(Struct, frozen=True, rename="camel", kw_only=True):
    op_type: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]
    user: Address
    events: list[_Event] = []


class _SentC(_Sent, frozen=True, rename="camel", kw_only=True):
    fee_payer: Address
    operations: list[dict[str, Any]]


def formed(
    run: GuestRun, *, sig: Signature, min_validations: int, generations: Mapping[Address, Generation]
) -> tuple[GuestRun, list[Made]]:
    """The run, and its intents in their order; an intent that was sent twice is one.

    `sig` and `min_validations` are those of the trigger, `generations` has the known settlement contracts. An intent
    that has no form makes it a stopped run without intents.
    """
    made: dict[bytes, Made] = {}
    for place, sent in enumerate(run.intents, 1):
        try:
            intent = _intent(sent, sig, min_validations, generations)
        except Refused as refused:
            return _stopped(run, refused.reason, f"intent {place}: {refused.text}"), []
        computed = intent_hash(intent)
        made.setdefault(computed, Made(computed, intent))
    return run, list(made.values())


def named_settlers(run: GuestRun) -> list[Address]:
    """The settlement contracts that the intents of a run name. `formed` refuses an intent that names none."""
    named: dict[Address, None] = {}
    for sent in run.intents:
        with suppress(Refused):
            named[shape(sent.body, _Named).settler] = None
    return list(named)


def _stopped(run: GuestRun, reason: StopReason, text: str) -> GuestRun:
    return replace(run, result="stopped", reason=reason, text=text, intents=())


def _intent(
    sent: GuestIntent, sig: Signature, min_validations: int, generations: Mapping[Address, Generation]
) -> AnyNewIntent:
    """The intent in the form of its settlement contract. Raises `Refused`."""
    head = shape(sent.body, _SentC if sent.kind == "intent" else _SentB)
    generation = generations.get(head.settler)
    if generation is None:
        raise Refused("refused-call", f"no known settlement contract answers at {head.settler.lower()}")
    shared = {
        "settler": head.settler, "deadline": head.deadline, "nonce": head.nonce, "minValidations": min_validations,
        "maxFees": [{"token": fee.token, "amount": fee.amount} for fee in head.max_fees],
    }  # fmt: skip
    if isinstance(head, _SentB):
        op, data = _OPS[sent.kind], operation_data(_OPS[sent.kind], sent.body)
        if generation == FIRST:
            own = {"op": op, "user": head.user, "data": data, "events": _events(head.events), "configSig": sig}
            return _checked({**shared, **own}, NewIntent)
        op_type = CROSS_CHAIN_SWAP if op == SWAP and is_cross_chain(sent.body) else op
        operation = {"opType": op_type, "user": head.user, "data": data, "events": _events(head.events)}
        return _checked(
            {**shared, "feePayer": head.user, "triggerSig": sig, "operations": [operation]}, NewOperationsIntent
        )
    if generation == FIRST:
        raise Refused(
            "refused-call", f"{head.settler.lower()} takes no list of operations: it is of the first generation"
        )
    operations = [_operation(each) for each in head.operations]
    return _checked(
        {**shared, "feePayer": head.fee_payer, "triggerSig": sig, "operations": operations}, NewOperationsIntent
    )


def _operation(body: Mapping[str, Any]) -> dict[str, Any]:
    head = shape(body, _SentOperation)
    data = operation_data(head.op_type, body)
    return {"opType": head.op_type, "user": head.user, "data": data, "events": _events(head.events)}


def _events(events: list[_Event]) -> list[dict[str, str]]:
    return [{"topic": event.topic, "data": event.data} for event in events]


def _checked(fields: dict[str, Any], kind: type[NewIntent | NewOperationsIntent]) -> AnyNewIntent:
    """The intent as a registry would read it. Raises `Refused`."""
    try:
        intent: AnyNewIntent = decode_record(fields, kind)
    except Invalid as refusal:
        raise Refused("bad-argument", refusal.detail) from None
    if len(encode(intent)) > HEAD_BYTES_MAX:
        raise Refused("limit-intent-bytes", f"it has more than {HEAD_BYTES_MAX} bytes")
    return intent
