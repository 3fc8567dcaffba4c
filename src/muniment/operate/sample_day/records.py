"""What the wallets of the sample day deploy and sign, and the runs and intents that come of it.

Runs are of the functions that transfer tokens: their intents are computed as those functions do, so that
`muniment runs verify` comes to the same result. The intents of swaps have no run.
"""

from __future__ import annotations

from importlib.resources import files
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from muniment.chains.catalogue import FIRST_SETTLER, SECOND_SETTLER
from muniment.client import Bundle, KeySigner, TriggerDraft
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
from muniment.protocol.wire import iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
# Keys that everybody knows: of the accounts that anvil and Hardhat make from their default mnemonic, "test test test
# test test test test test test test test junk" (Foundry Book, "anvil"; Hardhat documentation, "Hardhat Network").
KEYS: Final = tuple(
    bytes.fromhex(key)
    for key in (
        "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
        "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
        "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
        "7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
        "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
        "8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
        "92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
        "4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356",
    )
)
ADDRESSES: Final = tuple(KeySigner(key).address for key in KEYS)
# The places of the keys of who deploys, who signs triggers, who proposes, who records runs, and who gets tokens.
DEVELOPER, _TREASURER, _SAVER, _KEEPER, *_SOLVERS, RELAYER, _RECIPIENT = range(len(KEYS))
_BASE: Final = 8453
# Tokens of Base (`chains/tokens.json`).
_USDC: Final = Address("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")
_WETH: Final = Address("0x4200000000000000000000000000000000000006")
# The data of operations and offers (`packages/evm/contracts/Intents.sol` of mimic-protocol/contracts).
_PAYMENTS: Final = ListOf(TupleOf((ADDRESS, UINT256, ADDRESS)))
_SWAP: Final = TupleOf((UINT256, UINT256, ListOf(TupleOf((ADDRESS, UINT256))), _PAYMENTS))
_TRANSFER: Final = TupleOf((UINT256, _PAYMENTS))
_OFFER: Final = TupleOf((ADDRESS, BYTES, ListOf(UINT256)))
# The first block of Base was at this second; since then one comes every two seconds.
_BASE_BEGAN_S: Final = 1_686_789_347
# As the functions have it, and for intents that wait for a solver while somebody looks at them.
_USUAL_S: Final = 300
_STANDING: Final = {"created", "enqueued", "submitted"}
_STANDING_S: Final = 2 * 24 * 60 * 60
# What the function that transfers uses up, in the unit of `fuelUsed`.
_FUEL: Final = "486085"


def functions(transfer: Bundle) -> dict[str, Bundle]:
    """The functions by name; `transfer` is the one that the demo deploys too."""
    folder = files("muniment.operate.sample_day") / "functions"
    payroll, swap = ((folder / name / "manifest.json").read_bytes() for name in ("payroll", "swap"))
    module = (folder / "swap" / "function.wasm").read_bytes()
    return {"transfer": transfer, "payroll": Bundle(payroll, transfer.wasm), "swap": Bundle(swap, module)}


def time_of(begin_ms: int, minute: int) -> int:
    """A time within this minute of the day that begins at `begin_ms`: people do nothing at the full minute."""
    return begin_ms + minute * MINUTE_MS + minute * 7_919 % MINUTE_MS


class SampleTrigger(NamedTuple):
    """A trigger: when its owner registers it, and when the owner ends it (None: never), in minutes of the day.

    `startDate` and `endDate` of `config` are in minutes of the day too. `outcomes` are the statuses that its intents
    get to, in turn. Intents of an event trigger come at `minutes`, those of other triggers when they are due.
    """

    function: str
    owner: int
    minute: int
    description: str
    input: Mapping[str, Any]
    config: Mapping[str, Any]
    outcomes: tuple[str, ...] = ()
    minutes: tuple[int, ...] = ()
    generation: int = 2
    ended: int | None = None

    def draft(self, cid: str, begin_ms: int) -> TriggerDraft:
        """The trigger on the day that begins at `begin_ms`, in milliseconds since 1970."""
        minutes = {name: self.config[name] for name in ("startDate", "endDate") if name in self.config}
        dates = {name: begin_ms + minute * MINUTE_MS for name, minute in minutes.items()}
        config = {"endDate": 0, **self.config, **dates}
        return TriggerDraft.of(cid, description=self.description, input=self.input, config=config)

    def times(self, begin_ms: int) -> Iterator[tuple[int, str]]:
        """When something comes of it on the day that begins at `begin_ms`, and the status that the intent gets to.

        No schedule is due in the last twenty minutes: a relayer that starts when the day ends is still in time for it.
        """
        if self.minutes:
            times = [time_of(begin_ms, minute) for minute in self.minutes]
        elif "schedule" in self.config:
            since_ms, until_ms = time_of(begin_ms, self.minute), time_of(begin_ms, self.ended or 24 * 60 - 20)
            times = next_runs(self.config["schedule"], since_ms, 24 * 60, until_ms)
        else:
            times = [begin_ms + self.config["startDate"] * MINUTE_MS]
        return zip(times, cycle(self.outcomes), strict=False)


def _transfer(amount: int, fee: int) -> dict[str, Any]:
    recipient = ADDRESSES[_RECIPIENT]
    return {"chainId": _BASE, "token": _USDC, "amount": str(amount), "recipient": recipient, "fee": str(fee)}


def _swap(amount: int, least: int, fee: int) -> dict[str, Any]:
    paid, got = {"tokenIn": _USDC, "amountIn": str(amount)}, {"tokenOut": _WETH, "minAmountOut": str(least)}
    return {"chainId": _BASE, **paid, **got, "fee": str(fee)}


def _receipt_of(owner: int) -> dict[str, Any]:
    """The trigger's members for an event: this wallet gets USDC."""
    event, receiver = keccak256(b"Transfer(address,address,uint256)").hex(), ADDRESSES[owner].raw.hex()
    topics: list[list[str]] = [["0x" + event], [], [f"0x{receiver:0>64}"]]
    return {"type": 1, "chainId": _BASE, "contract": _USDC, "topics": topics, "delta": "30m"}


TRIGGERS: Final = (
    SampleTrigger(
        "payroll", _TREASURER, 22, "Salary of the week, an hour at a time", _transfer(12_500_000, 50_000),
        {"type": 0, "schedule": "0 * * * *", "delta": "15m"},
        ("succeeded", "succeeded", "failed", "succeeded", "expired", "succeeded", "discarded", "succeeded"),
    ),
    SampleTrigger(
        "swap", _SAVER, 47, "Buy WETH for 25 USDC every two hours", _swap(25_000_000, 72 * 10**14, 3 * 10**13),
        {"type": 0, "schedule": "15 */2 * * *", "delta": "10m"},
        ("succeeded", "failed", "succeeded", "expired", "discarded", "succeeded"), generation=1, ended=968,
    ),
    SampleTrigger(
        "swap", _KEEPER, 128, "Swap the rewards, 40 USDC at a time", _swap(40_000_000, 115 * 10**14, 5 * 10**13),
        _receipt_of(_KEEPER), ("succeeded", "succeeded", "failed", "submitted", "enqueued", "created"),
        (188, 611, 1_103, 1_424, 1_431, 1_434), generation=1,
    ),
    SampleTrigger(
        "transfer", _TREASURER, 193, "Invoice 2087 of the auditors", _transfer(1_850_000_000, 100_000),
        {"type": 2, "delta": "1h", "startDate": 360, "endDate": 720}, ("succeeded",),
    ),
    SampleTrigger(
        "swap", _TREASURER, 236, "Swap 100 USDC whenever the treasury gets USDC",
        _swap(100_000_000, 29 * 10**15, 10**14), _receipt_of(_TREASURER),
        ("succeeded", "discarded", "succeeded", "submitted", "enqueued", "created"),
        (251, 702, 1_017, 1_427, 1_433, 1_436),
    ),
    SampleTrigger(
        "transfer", _KEEPER, 1_204, "Return the deposit in two days", _transfer(600_000_000, 100_000),
        {"type": 2, "delta": "6h", "startDate": 4_320, "endDate": 5_760},
    ),
)  # fmt: skip


class _Stage(NamedTuple):
    """A stage in the life of an intent: milliseconds after its arrival, its status, and a line of the log.

    `proposals` are the statuses of the proposals.
    """

    after_ms: int
    status: str | None = None
    proposals: tuple[str, ...] = ()
    level: str = ""
    line: str = ""


_SENT: Final = (
    _Stage(0),
    _Stage(6_480, "enqueued", ("accepted", "rejected"), "info", "2 proposals; the one with the lower fee is accepted"),
    _Stage(15_210, "submitted", ("submitted", "rejected"), "info", "sent to Base"),
)
_LIVES: Final = {
    "created": (_Stage(0), _Stage(3_120, None, ("received", "received"), "info", "2 proposals within 3.1 seconds")),
    "enqueued": _SENT[:2],
    "submitted": _SENT,
    "succeeded": (*_SENT, _Stage(21_640, "succeeded", ("succeeded", "rejected"), "info", "executed in block {block}")),
    "failed": (*_SENT, _Stage(22_930, "failed", ("failed", "rejected"), "error", "reverted in block {block}")),
    "discarded": (
        _Stage(0),
        _Stage(41_370, "discarded", ("rejected", "rejected"), "warning", "no proposal is within the intent's limits"),
    ),
    "expired": (
        _Stage(0),
        _Stage(8_050, None, ("received",), "warning", "only one proposal so far; waiting for another"),
        _Stage(_USUAL_S * 1_000, None, ("expired",), "error", "the deadline has passed"),
    ),
}


class Occurrence(NamedTuple):
    """What comes of a trigger at a time: an intent, in a write for each stage of its life, and perhaps a run.

    `stages` are times and what is known then.
    """

    run: dict[str, Any] | None
    stages: list[tuple[int, dict[str, Any]]]


def occurrence(trigger: SampleTrigger, sig: str, time_ms: int, outcome: str, protocol: str) -> Occurrence:
    """What comes at `time_ms` of the trigger with this signature. Solvers sign under the name `protocol`."""
    given, payload, least = trigger.input, time_payload(time_ms), int(trigger.input.get("minAmountOut", 0))
    hashed = _hashed(trigger, sig, time_ms, is_standing=outcome in _STANDING)
    new: AnyNewIntent = decode_record({**hashed}, AnyNewIntent)
    digest, run = intent_hash(new), None
    intent = {**hashed}
    if not least:
        kind = trigger.config["type"]
        intent["executionHash"] = _hex(execution_hash(Signature.parse(sig), kind, payload, "intents", [digest]))
        run = {
            "triggerSig": sig, "triggerType": kind, "triggerData": _hex(payload), "timestamp": time_ms,
            "result": "intents", "outputs": [{"hash": _hex(digest)}], "fuelUsed": _FUEL, "engine": "muniment demo",
            "logs": [f"[Info] {given['amount']} of {_USDC.lower()} to {given['recipient'].lower()}"],
            "context": {"consensusThreshold": 1, "settlers": [{"address": SECOND_SETTLER, "chainId": _BASE}]},
        }  # fmt: skip
    # The price is not the same all day.
    amounts = [least * (1_025 - 3 * place + time_ms // MINUTE_MS % 11) // 1_000 for place in range(len(_SOLVERS))]
    offers = [_offer(place, amount, intent, digest, protocol) for place, amount in enumerate(amounts)]
    return Occurrence(run, [_stage(each, time_ms, intent, offers, digest) for each in _LIVES[outcome]])


def _hashed(trigger: SampleTrigger, sig: str, time_ms: int, *, is_standing: bool) -> dict[str, Any]:
    """The members of the hash of an intent, as the function makes them."""
    owner, given = ADDRESSES[trigger.owner], trigger.input
    if "tokenOut" in given:
        kind, fee_token, paid = 0, given["tokenOut"], (given["tokenIn"], int(given["amountIn"]))
        got = (given["tokenOut"], int(given["minAmountOut"]), owner)
        data = _encoded(_SWAP, (_BASE, _BASE, (paid,), (got,)))
    else:
        kind, fee_token, transfer = 1, given["token"], (given["token"], int(given["amount"]), given["recipient"])
        data = _encoded(_TRANSFER, (_BASE, (transfer,)))
    nonce = keccak256(f"{sig}{time_ms}{_hex(time_payload(time_ms))}1".encode())
    hashed: dict[str, Any] = {
        "nonce": _hex(nonce), "deadline": str(time_ms // 1_000 + (_STANDING_S if is_standing else _USUAL_S)),
        "maxFees": [{"token": fee_token, "amount": given["fee"]}], "minValidations": 1,
    }  # fmt: skip
    operation: dict[str, Any] = {"user": owner, "data": data, "events": []}
    if trigger.generation == 1:
        return {**hashed, **operation, "op": kind, "settler": FIRST_SETTLER, "configSig": sig}
    operations = [{**operation, "opType": kind}]
    return {**hashed, "operations": operations, "feePayer": owner, "settler": SECOND_SETTLER, "triggerSig": sig}


def _offer(place: int, amount: int, intent: dict[str, Any], digest: bytes, protocol: str) -> dict[str, Any]:
    """The signed proposal of a solver, who offers `amount` where the intent swaps."""
    solver, fee = _SOLVERS[place], int(intent["maxFees"][0]["amount"])
    data = _encoded(_OFFER, (ADDRESSES[solver], b"", (amount,))) if amount else "0x"
    offer = {
        "solver": ADDRESSES[solver], "deadline": intent["deadline"], "fees": [str(fee * (3 + place) // 8)],
        "description": ("own inventory", "best of two pools")[place],
        **({"datas": [data]} if "operations" in intent else {"data": data}),
    }  # fmt: skip
    new: AnyNewProposal = decode_record({**offer}, AnyNewProposal)
    signed = settlement_digest(proposal_hash(digest, new), protocol, _BASE, intent["settler"])
    return {**offer, "signatures": [sign(signed, KEYS[solver])]}


def _stage(
    stage: _Stage, time_ms: int, intent: dict[str, Any], offers: Sequence[Mapping[str, Any]], digest: bytes
) -> tuple[int, dict[str, Any]]:  # fmt: skip
    """The time of a stage of an intent, and what is known of the intent then."""
    at_ms = time_ms + 2_300 + stage.after_ms
    known = {**intent, "proposals": [{**o, "status": s} for o, s in zip(offers, stage.proposals, strict=False)]}
    if stage.status is not None:
        known["status"] = stage.status
    if stage.status == "submitted":
        known["transactionHash"] = _hex(keccak256(b"transaction of " + digest))
    if stage.line:
        line = stage.line.format(block=(at_ms // 1_000 - _BASE_BEGAN_S) // 2)
        known["logs"] = [{"level": stage.level, "data": line, "createdAt": iso_time(at_ms)}]
    return at_ms, known


def _encoded(form: TupleOf, values: Any) -> str:
    return _hex(encode([form], [values]))


def _hex(raw: bytes) -> str:
    return "0x" + raw.hex()
