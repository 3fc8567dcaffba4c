"""The intents of the sample day, with the runs that made some of them.

Runs are of the functions that transfer tokens: their intents are computed as those functions do, so that
`muniment runs verify` comes to the same result. Other intents have no run here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muniment.chains.catalogue import FIRST_SETTLER, SECOND_SETTLER
from muniment.operate.sample_day.triggers import (
    ADDRESSES,
    BASE,
    DAY_MS,
    MINUTE_MS,
    QUEUE,
    TRIGGERS,
    USDC,
    WETH,
    time_of,
)
from muniment.operate.sample_day.wallets import KEYS, SOLVERS
from muniment.protocol.evm.abi import ADDRESS, BYTES, UINT256, ListOf, TupleOf, encode
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.signature import Signature, sign
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash, proposal_hash, settlement_digest
from muniment.protocol.intents.types import AnyNewIntent, AnyNewProposal
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.triggers.typed_data import ONCE
from muniment.protocol.wire import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# The data of operations and offers (`packages/evm/contracts/Intents.sol` of mimic-protocol/contracts).
_PAYMENTS: Final = ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))
_SWAP: Final = TupleOf((UINT256, UINT256, ListOf(TupleOf((ADDRESS, UINT256))), _PAYMENTS))
_TRANSFER: Final = TupleOf((UINT256, _PAYMENTS))
_CALL: Final = TupleOf((UINT256, ListOf(TupleOf((ADDRESS, BYTES, UINT256)))))
_OFFER: Final = TupleOf((ADDRESS, BYTES, ListOf(UINT256)))
_OP_MAINNET: Final = 10
_OP_WETH: Final = Address("0x4200000000000000000000000000000000000006")
_CROSS_CHAIN: Final = 3
# The first block of Base was at this second; since then one comes every two seconds.
_BASE_BEGAN_S: Final = 1_686_789_347
# As the functions have it, and for intents that wait for a solver while somebody looks at them.
_USUAL_S: Final = 300
_WAITING_S: Final = 2 * 24 * 60 * 60
# What the function that transfers uses up, in the unit of `fuelUsed`.
_FUEL: Final = "486085"


class Stage(NamedTuple):
    """An intent from a time on, in milliseconds since 1970: all that is known of it then."""

    at_ms: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleIntent:
    """An intent: the members of its hash, when it arrives, and where it gets to.

    `outcome` is a status, `offers` what the two solvers offer for its swaps, `fees` what they ask for.
    """

    hashed: dict[str, Any]
    arrives_ms: int
    outcome: str
    fees: tuple[int, int]
    offers: tuple[int, int] | None = None
    execution_hash: str = "0x"

    @property
    def hash(self) -> bytes:
        """Its hash, 32 bytes."""
        return intent_hash(_intent(self.hashed))

    @property
    def hash_text(self) -> str:
        """Its hash, as 0x and hex digits."""
        return "0x" + self.hash.hex()

    def stages(self, protocol: str) -> list[Stage]:
        """Its life, a stage for each write, with what is new; `protocol` is the name that solvers sign under."""
        offers = [self._offer(place, protocol) for place in range(len(SOLVERS))]
        lasts_ms = int(self.hashed["deadline"]) * 1_000 - self.arrives_ms
        found, told = list[Stage](), ("", "")
        for life in _LIVES[self.outcome]:
            at_ms = self.arrives_ms + (life.after_ms if life.after_ms >= 0 else lasts_ms - life.after_ms)
            body = {**self.hashed, "executionHash": self.execution_hash}
            if life.status is not None:
                body["status"] = life.status
            if life.status == "submitted":
                body["transactionHash"] = "0x" + keccak256(b"transaction of " + self.hash).hex()
            if life.line is not None:
                level, text = life.line
                block = (at_ms // 1_000 - _BASE_BEGAN_S) // 2
                body["logs"] = [{"level": level, "data": text.format(block=block), "createdAt": iso_time(at_ms)}]
            body["proposals"] = [
                {**offer, "status": now}
                for offer, before, now in zip(offers, told, life.proposals, strict=False) if now != before
            ]  # fmt: skip
            found.append(Stage(at_ms, body))
            told = life.proposals or told
        return found

    def _offer(self, place: int, protocol: str) -> dict[str, Any]:
        """The proposal of a solver, signed."""
        solver = SOLVERS[place]
        data = "0x"
        if self.offers is not None:
            data = "0x" + encode([_OFFER], [(ADDRESSES[solver], b"", (self.offers[place],))]).hex()
        count = len(self.hashed.get("operations", ()))
        content = {"datas": [data] * count} if count else {"data": data}
        offer = {
            "solver": ADDRESSES[solver], "deadline": self.hashed["deadline"], "fees": [str(self.fees[place])],
            "description": _DESCRIPTIONS[place] if self.offers else "", **content,
        }  # fmt: skip
        new: AnyNewProposal = decode_record({**offer}, AnyNewProposal)
        digest = settlement_digest(
            proposal_hash(self.hash, new), protocol, BASE, Address.parse(self.hashed["settler"])
        )  # fmt: skip
        return {**offer, "signatures": [sign(digest, KEYS[solver])]}


_DESCRIPTIONS: Final = ("own inventory", "best of two pools")


class _Stage(NamedTuple):
    """A stage of the life of intents with one outcome.

    It begins `after_ms` milliseconds after the arrival; a negative number counts from the deadline. `status` is told
    then; `proposals` are the statuses of the first and the second one, `line` is one for the log.
    """

    after_ms: int
    status: str | None
    proposals: tuple[str, ...] = ()
    line: tuple[str, str] | None = None


_ARRIVED: Final = _Stage(0, None)
_CHOSEN: Final = _Stage(
    6_480, "enqueued", ("accepted", "rejected"), ("info", "2 proposals; the one with the lower fee is accepted")
)
_SENT: Final = (_ARRIVED, _CHOSEN, _Stage(15_210, "submitted", ("submitted", "rejected"), ("info", "sent to Base")))
_LIVES: Final[Mapping[str, tuple[_Stage, ...]]] = {
    "created": (
        _ARRIVED,
        _Stage(3_120, None, ("received", "received"), ("info", "2 proposals, the second one after 3.1 seconds")),
    ),
    "enqueued": _SENT[:2],
    "submitted": _SENT,
    "succeeded": (
        *_SENT, _Stage(21_640, "succeeded", ("succeeded", "rejected"), ("info", "executed in block {block}"))
    ),
    "failed": (
        *_SENT, _Stage(22_930, "failed", ("failed", "rejected"), ("error", "the execution reverted in block {block}"))
    ),
    "discarded": (
        _ARRIVED,
        _Stage(
            41_370, "discarded", ("rejected", "rejected"), ("warning", "no proposal is within the limits of the intent")
        ),
    ),
    "expired": (
        _ARRIVED,
        _Stage(8_050, None, ("received",), ("warning", "only one proposal so far; waiting for another")),
        _Stage(-1_200, None, ("expired",), ("error", "the deadline has passed")),
    ),
}  # fmt: skip


def _intent(hashed: Mapping[str, Any]) -> AnyNewIntent:
    return decode_record({**hashed}, AnyNewIntent)


class SampleRun(NamedTuple):
    """A run with one intent: what its relayer tells, and the intent."""

    at_ms: int
    body: dict[str, Any]
    intent: SampleIntent


class Due(NamedTuple):
    """A run that is due: the name of the trigger, its time, and where the intent of the run gets to."""

    trigger: str
    time_ms: int
    outcome: str


# The outcomes of the runs of a trigger in their order; after the last one they begin again.
_OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "salary": (
        "succeeded", "succeeded", "failed", "succeeded", "succeeded", "succeeded", "expired", "succeeded",
        "succeeded", "discarded", "succeeded",
    ),
    "float": ("succeeded",),
    "invoice": ("succeeded",),
}  # fmt: skip


def runs_of(name: str, begin_ms: int) -> Iterator[Due]:
    """The runs of a trigger, up to twenty minutes before the end of the day that begins at `begin_ms`.

    A relayer that starts when the day ends runs what its delta still allows, at most fifteen minutes late.
    """
    trigger, outcomes = TRIGGERS[name], _OUTCOMES.get(name, ())
    if not outcomes:
        return
    if trigger.config["type"] == ONCE:
        times = [begin_ms + trigger.start * MINUTE_MS]
    else:
        times = _ticks(name, begin_ms, DAY_MS - 20 * MINUTE_MS)
    for number, time_ms in enumerate(times):
        yield Due(name, time_ms, outcomes[number % len(outcomes)])


def _ticks(name: str, begin_ms: int, lasts_ms: int) -> list[int]:
    """The times of a schedule while its trigger is active, within the first `lasts_ms` of the day."""
    trigger = TRIGGERS[name]
    ended_ms = (trigger.ended or trigger.end) * MINUTE_MS or lasts_ms
    until_ms = begin_ms + min(lasts_ms, ended_ms)
    since_ms = time_of(begin_ms, trigger.minute)
    return next_runs(trigger.config["schedule"], since_ms, 24 * 60, until_ms)


def run_of(due: Due, sig: str, settlers: Sequence[Mapping[str, object]]) -> SampleRun:
    """The run, with its intent, of the trigger with this signature. `settlers` are those that the function is told."""
    trigger = TRIGGERS[due.trigger]
    owner, given, kind = ADDRESSES[trigger.owner], trigger.input, trigger.config["type"]
    payload = time_payload(due.time_ms)
    nonce = keccak256(f"{sig}{due.time_ms}0x{payload.hex()}1".encode())
    transfer = (Address.parse(given["token"]), int(given["amount"]), Address.parse(given["recipient"]))
    operation: dict[str, Any] = {"opType": 1, "user": owner, "data": _hex(_TRANSFER, (BASE, (transfer,))), "events": []}
    fee = (given["token"], given["fee"])
    hashed = _second_form(sig, owner, nonce, due.time_ms // 1_000 + _USUAL_S, fee, [operation])
    made = intent_hash(_intent(hashed))
    intent = SampleIntent(
        hashed=hashed, arrives_ms=due.time_ms + 1_900, outcome=due.outcome, fees=_below(int(given["fee"])),
        execution_hash="0x" + execution_hash(Signature.parse(sig), kind, payload, "intents", [made]).hex(),
    )  # fmt: skip
    body = {
        "triggerSig": sig, "triggerType": kind, "triggerData": "0x" + payload.hex(), "timestamp": due.time_ms,
        "result": "intents", "fuelUsed": _FUEL, "engine": "muniment demo",
        "logs": [f"[Info] {given['amount']} of {given['token'].lower()} to {given['recipient'].lower()}"],
        "context": {"consensusThreshold": 1, "settlers": settlers}, "outputs": [{"hash": "0x" + made.hex()}],
    }  # fmt: skip
    return SampleRun(due.time_ms + 1_300, body, intent)


def _second_form(
    sig: str, owner: Address, nonce: bytes, deadline_s: int, fee: tuple[str, str], operations: list[dict[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    """The members of the hash of an intent of generation 2; `fee` is a token and the most to take of it."""
    token, amount = fee
    return {
        "feePayer": owner, "settler": SECOND_SETTLER, "nonce": "0x" + nonce.hex(), "deadline": str(deadline_s),
        "maxFees": [{"token": token, "amount": amount}], "triggerSig": sig, "minValidations": 1,
        "operations": operations,
    }  # fmt: skip


def _below(fee: int) -> tuple[int, int]:
    """What two solvers ask for where at most `fee` is allowed."""
    return fee * 36 // 100, fee * 48 // 100


def _hex(form: TupleOf, values: Any) -> str:
    return "0x" + encode([form], [values]).hex()


# Intents without a run, by trigger: minutes of the day and outcomes.
_CALLS: Final = (
    (188, "succeeded"), (611, "succeeded"), (1_103, "failed"), (1_424, "submitted"), (1_431, "enqueued"),
    (1_434, "created"),
)  # fmt: skip
_SWEEPS: Final = (
    (251, "succeeded"), (702, "discarded"), (1_017, "succeeded"), (1_427, "submitted"), (1_433, "enqueued"),
    (1_436, "created"),
)  # fmt: skip
_SAVINGS: Final = ("succeeded", "succeeded", "failed", "expired", "discarded", "succeeded")
_STANDING: Final = ("created", "enqueued", "submitted")


def intents_alone(name: str, sig: str, begin_ms: int) -> Iterator[SampleIntent]:
    """The intents without a run of a trigger with this signature, on the day that begins at `begin_ms`."""
    if name == "saving":
        for number, time_ms in enumerate(_ticks(name, begin_ms, DAY_MS)):
            yield _saving(sig, time_ms, _SAVINGS[number % len(_SAVINGS)])
    for minute, outcome in _CALLS if name == "queue" else ():
        yield _call(sig, time_of(begin_ms, minute), outcome)
    for number, (minute, outcome) in enumerate(_SWEEPS if name == "sweep" else ()):
        yield _sweep(sig, time_of(begin_ms, minute), outcome, goes_far=number % 2 == 1)


def _first_form(name: str, sig: str, time_ms: int, outcome: str) -> dict[str, Any]:
    """The members that intents of generation 1 share."""
    lasts_s = _WAITING_S if outcome in _STANDING else _USUAL_S
    return {
        "user": ADDRESSES[TRIGGERS[name].owner], "settler": FIRST_SETTLER, "configSig": sig, "minValidations": 1,
        "nonce": "0x" + keccak256(f"{sig}{time_ms}1".encode()).hex(), "deadline": str(time_ms // 1_000 + lasts_s),
    }  # fmt: skip


def _saving(sig: str, time_ms: int, outcome: str) -> SampleIntent:
    given = TRIGGERS["saving"].input
    owner, least = ADDRESSES[TRIGGERS["saving"].owner], int(given["minAmountOut"])
    data = _hex(_SWAP, (BASE, BASE, ((USDC, int(given["amountIn"])),), ((WETH, least, owner),)))
    hashed = {
        **_first_form("saving", sig, time_ms, outcome), "op": 0, "data": data, "events": [],
        "maxFees": [{"token": WETH, "amount": given["fee"]}],
    }  # fmt: skip
    moved = time_ms // MINUTE_MS % 11 * 10**13  # the price is not the same all day
    return SampleIntent(
        hashed=hashed, arrives_ms=time_ms + 2_300, outcome=outcome, fees=_below(int(given["fee"])),
        offers=(least + 21 * 10**13 + moved, least + 18 * 10**13 + moved),
    )  # fmt: skip


def _call(sig: str, time_ms: int, outcome: str) -> SampleIntent:
    """A call of `harvest()`, which the event asked for."""
    data = _hex(_CALL, (BASE, ((QUEUE, keccak256(b"harvest()")[:4], 0),)))
    event = {"topic": "0x" + keccak256(b"Asked(bytes32,bytes)").hex(), "data": "0x" + keccak256(b"harvest()")[:4].hex()}
    fee = TRIGGERS["queue"].input["fee"]
    hashed = {
        **_first_form("queue", sig, time_ms, outcome), "op": 2, "data": data, "events": [event],
        "maxFees": [{"token": USDC, "amount": fee}],
    }  # fmt: skip
    return SampleIntent(hashed=hashed, arrives_ms=time_ms + 4_700, outcome=outcome, fees=_below(int(fee)))


def _sweep(sig: str, time_ms: int, outcome: str, *, goes_far: bool) -> SampleIntent:
    """A swap, and with `goes_far` another one to OP Mainnet in the same intent."""
    trigger = TRIGGERS["sweep"]
    owner, least = ADDRESSES[trigger.owner], int(trigger.input["minAmountOut"])
    swaps = [(0, BASE, WETH), (_CROSS_CHAIN, _OP_MAINNET, _OP_WETH)] if goes_far else [(0, BASE, WETH)]
    amount = int(trigger.input["amountIn"]) // len(swaps)
    operations: list[dict[str, Any]] = [
        {
            "opType": kind, "user": owner, "events": [],
            "data": _hex(
                _SWAP, (BASE, chain_id, ((USDC, amount),), ((token, least // len(swaps), owner),))
            ),
        }
        for kind, chain_id, token in swaps
    ]  # fmt: skip
    lasts_s = _WAITING_S if outcome in _STANDING else _USUAL_S
    nonce = keccak256(f"{sig}{time_ms}1".encode())
    fee = trigger.input["fee"]
    hashed = _second_form(sig, owner, nonce, time_ms // 1_000 + lasts_s, (WETH, fee), operations)
    return SampleIntent(
        hashed=hashed, arrives_ms=time_ms + 3_400, outcome=outcome, fees=_below(int(fee)),
        offers=(least // len(swaps) * 1_022 // 1_000, least // len(swaps) * 1_019 // 1_000),
    )  # fmt: skip
