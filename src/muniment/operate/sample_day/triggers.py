"""The functions of the sample day, and the triggers that its wallets sign for them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from muniment.client import Bundle, KeySigner, TriggerDraft
from muniment.operate.sample_day.wallets import (
    EMPLOYER,
    FIRST_DEVELOPER,
    KEEPER,
    KEYS,
    RECIPIENT,
    SAVER,
    SECOND_DEVELOPER,
    TREASURER,
)
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256

if TYPE_CHECKING:
    from collections.abc import Mapping

MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * 60 * MINUTE_MS
BASE: Final = 8453
# Tokens of Base and OP Mainnet (`chains/tokens.json`).
USDC: Final = Address("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")
WETH: Final = Address("0x4200000000000000000000000000000000000006")
# Of a contract that nobody has deployed.
QUEUE: Final = Address.from_raw(keccak256(b"the queue of the sample day")[12:])
_ASKED: Final = "0x" + keccak256(b"Asked(bytes32,bytes)").hex()
_TRANSFERRED: Final = "0x" + keccak256(b"Transfer(address,address,uint256)").hex()
ADDRESSES: Final = tuple(KeySigner(key).address for key in KEYS)


def time_of(begin_ms: int, minute: int) -> int:
    """A time within this minute of the day that begins at `begin_ms`: people do nothing at the full minute."""
    return begin_ms + minute * MINUTE_MS + minute * 7_919 % MINUTE_MS


class SampleFunction(NamedTuple):
    """A function: its bundle, the wallet that deploys it, and when, in minutes of the day."""

    bundle: Bundle
    developer: int
    minute: int

    @property
    def version(self) -> str:
        """The version in its manifest."""
        return msgspec.json.decode(self.bundle.manifest)["version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleTrigger:
    """A trigger: when its owner registers it, and when the owner ends it (None: never), in minutes of the day.

    `start` and `end` are its `startDate` and `endDate` in minutes of the day; 0: none.
    """

    function: str
    owner: int
    minute: int
    description: str
    input: Mapping[str, Any]
    config: Mapping[str, Any]
    start: int = 0
    end: int = 0
    fee_limit: str = "0"
    ended: int | None = None

    def draft(self, cid: str, version: str, begin_ms: int) -> TriggerDraft:
        """The trigger on the day that begins at `begin_ms`, in milliseconds since 1970."""
        config = {**self.config, "endDate": begin_ms + self.end * MINUTE_MS if self.end else 0}
        if self.start:
            config["startDate"] = begin_ms + self.start * MINUTE_MS
        return TriggerDraft.of(
            cid, version=version, description=self.description, input=self.input, config=config,
            execution_fee_limit=self.fee_limit,
        )  # fmt: skip


def functions(transfer: Bundle) -> dict[str, SampleFunction]:
    """The functions by name; `transfer` is the one that the demo deploys too."""
    folder = files("muniment.operate.sample_day") / "functions"
    manifests = {name: (folder / name / "manifest.json").read_bytes() for name in ("payroll", "swap", "event")}
    modules = {name: (folder / name / "function.wasm").read_bytes() for name in ("swap", "event")}
    return {
        "transfer": SampleFunction(transfer, FIRST_DEVELOPER, 0),
        "payroll": SampleFunction(Bundle(manifests["payroll"], transfer.wasm), FIRST_DEVELOPER, 3),
        "swap": SampleFunction(Bundle(manifests["swap"], modules["swap"]), SECOND_DEVELOPER, 11),
        "event": SampleFunction(Bundle(manifests["event"], modules["event"]), SECOND_DEVELOPER, 14),
    }


def _transfer(amount: int, fee: int) -> dict[str, Any]:
    return {
        "chainId": BASE, "token": USDC, "amount": str(amount), "recipient": ADDRESSES[RECIPIENT], "fee": str(fee)
    }  # fmt: skip


def _swap(amount: int, least: int, fee: int) -> dict[str, Any]:
    return {
        "chainId": BASE, "tokenIn": USDC, "amountIn": str(amount), "tokenOut": WETH, "minAmountOut": str(least),
        "fee": str(fee),
    }  # fmt: skip


_CENT: Final = 10**16
# In the order of their registration; the last one is the last record of the day.
TRIGGERS: Final[Mapping[str, SampleTrigger]] = {
    "salary": SampleTrigger(
        function="payroll", owner=TREASURER, minute=22, description="Salary of the week, an hour at a time",
        input=_transfer(12_500_000, 50_000), config={"type": 0, "schedule": "0 * * * *", "delta": "15m"},
        fee_limit=str(5 * _CENT),
    ),
    "saving": SampleTrigger(
        function="swap", owner=SAVER, minute=47, description="Buy WETH for 25 USDC every two hours",
        input=_swap(25_000_000, 72 * 10**14, 3 * 10**13),
        config={"type": 0, "schedule": "15 */2 * * *", "delta": "10m"}, fee_limit=str(2 * _CENT), ended=968,
    ),
    "float": SampleTrigger(
        function="transfer", owner=SAVER, minute=91, description="Keep the trading wallet afloat for eleven hours",
        input=_transfer(5_000_000, 40_000), config={"type": 0, "schedule": "30 */3 * * *", "delta": "5m"}, end=760,
    ),
    "queue": SampleTrigger(
        function="event", owner=KEEPER, minute=128, description="Make the calls that the keepers' queue asks for",
        input={"feeToken": USDC, "fee": "90000"},
        config={"type": 1, "chainId": BASE, "contract": QUEUE, "topics": [[_ASKED]], "delta": "1h"},
    ),
    "invoice": SampleTrigger(
        function="transfer", owner=TREASURER, minute=193, description="Invoice 2087 of the auditors",
        input=_transfer(1_850_000_000, 100_000), config={"type": 2, "delta": "1h"}, start=360, end=720,
        fee_limit=str(10 * _CENT),
    ),
    "sweep": SampleTrigger(
        function="swap", owner=TREASURER, minute=236, description="Swap 100 USDC whenever the treasury gets USDC",
        input=_swap(100_000_000, 29 * 10**15, 10**14),
        config={
            "type": 1, "chainId": BASE, "contract": USDC,
            "topics": [[_TRANSFERRED], [], ["0x" + ADDRESSES[TREASURER].raw.rjust(32, b"\0").hex()]], "delta": "30m",
        },
    ),
    "deposit": SampleTrigger(
        function="transfer", owner=KEEPER, minute=1_204, description="Return the deposit in two days",
        input=_transfer(600_000_000, 100_000), config={"type": 2, "delta": "6h"}, start=4_320, end=5_760,
    ),
    "bonus": SampleTrigger(
        function="payroll", owner=EMPLOYER, minute=1_438, description="Bonus on the first of each month",
        input=_transfer(250_000_000, 50_000), config={"type": 0, "schedule": "0 9 1 * *", "delta": "1h"},
        fee_limit=str(5 * _CENT),
    ),
}  # fmt: skip
