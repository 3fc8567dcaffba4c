"""The shapes of runs, their JSON Schemas and examples."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from muniment.protocol.errors import InvalidText
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.evm.words import SAFE_INTEGER_MAX
from muniment.protocol.runs.reasons import RunReasonCode, RunResult
from muniment.protocol.runs.texts import (
    INPUTS_MAX,
    OUTPUTS_MAX,
    RUN_BYTES_MAX,
    RUN_LOGS_MAX,
    Engine,
    Query,
    ReasonText,
    RunLog,
)
from muniment.protocol.triggers.types import SIG, TimestampMs
from muniment.protocol.wire import Amount, DateTime, Record

# A run reads a chain at one block, and a registry knows some ten chains.
BLOCKS_MAX: Final = 32
# Tokens of an answer, accounts of a look-up: no honest list is as long.
_LIST_MAX: Final = 2_000
_PARAMS_MAX: Final = 16
# Conflicts that the answer for a run lists: operators could record many.
CONFLICTS_SHOWN: Final = 20
# A listing shows this many of the first lines of a log.
LOGS_SHOWN: Final = 50
# `triggerSigs` of one listing, as `sigs` of triggers.
TRIGGER_SIGS_MAX: Final = 100

TriggerType = Literal[0, 1, 2]
RunStatus = Annotated[
    Literal["pending", "valid", "invalid"],
    Meta(
        description="`valid` from the trigger's minValidations on, `pending` before; `invalid` once every operator "
        "that recorded it said that its block is not canonical any more",
        examples=["pending"],
    ),
]
_ChainId = Annotated[int, Meta(ge=1, le=SAFE_INTEGER_MAX, description="EIP-155", examples=[8453])]
_NO_NUL: Final = r"^[^\u0000]*$"
_Text = Annotated[str, Meta(pattern=_NO_NUL, max_length=RUN_BYTES_MAX)]
# Beside a list, `_check_text` does what the pattern says: msgspec 0.22 frees the pattern of a text in such a union as
# if it were a type, and the process may end by a segmentation fault (msgspec #717).
_TextOrList = Annotated[str, Meta(max_length=RUN_BYTES_MAX, extra_json_schema={"pattern": _NO_NUL})]
_ParamName = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9]{0,49}$")]
_Param = _TextOrList | Annotated[list[_Text], Meta(max_length=_LIST_MAX)]

_HASH: Final = "0x" + "ab" * 32
_ADDRESS: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_SETTLER: Final = {"address": "0x609d831C0068844e11eF85a273c7F356212Fd6D1", "chainId": 8453}
_BLOCK: Final[dict[str, Any]] = {"chainId": 8453, "number": 38_000_000, "hash": "0x" + "02" * 32}
_CALL: Final[dict[str, Any]] = {
    "to": _ADDRESS, "data": "0x313ce567", "block": _BLOCK, "answer": "0x" + "00" * 31 + "06",
}  # fmt: skip
_ANSWER: Final[dict[str, Any]] = {"success": True, "data": ["1000000000000000000"]}
_INPUT: Final[dict[str, Any]] = {
    "query": "tokenPrice", "params": {"address": _ADDRESS, "chainId": "8453"}, "answer": _ANSWER, "block": _BLOCK,
    "calls": [_CALL],
}  # fmt: skip
_CONTEXT: Final[dict[str, Any]] = {"consensusThreshold": 1, "settlers": [_SETTLER]}
_RUN: Final[dict[str, Any]] = {
    "triggerSig": SIG, "triggerType": 0, "triggerData": "0x" + f"{1_795_204_080_000:064x}",
    "timestamp": 1_795_204_080_000, "result": "intents", "fuelUsed": "7000000", "logs": ["[Info] price 1.02"],
    "inputs": [_INPUT], "context": _CONTEXT, "blocks": [_BLOCK], "outputs": [{"hash": _HASH}],
    "engine": "muniment 0.3.0, wasmtime 40.0.0", "fee": "0", "solverFees": [],
}  # fmt: skip
_RECORD: Final = {"relayer": _ADDRESS, "evidence": "0x" + "03" * 32, "createdAt": "2026-11-20T19:48:00.123Z"}


def _check_text(value: object, pointer: str) -> None:
    if isinstance(value, str) and "\0" in value:
        raise InvalidText("the text has the character U+0000, which is not stored", pointer=pointer)


class RunReason(Record, frozen=True):
    """Why a run has no intents."""

    code: RunReasonCode
    text: ReasonText = field(default_factory=lambda: ReasonText(""))

    example: ClassVar[dict[str, Any]] = {"code": "abort", "text": "the price is above the limit"}


class RunBlock(Record, frozen=True):
    """A block at which a run read a chain."""

    chain_id: _ChainId
    number: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]
    hash: Bytes32
    quiet: (
        Annotated[bool, Meta(description="The chain had no new block for so long that its head was taken")] | UnsetType
    ) = UNSET

    example: ClassVar[dict[str, Any]] = _BLOCK


class RunToken(Record, frozen=True):
    """A token, or another contract, of one chain."""

    address: Address
    chain_id: _ChainId

    example: ClassVar[dict[str, Any]] = _SETTLER


class RunBalance(Record, frozen=True):
    """A balance in base units of its token."""

    token: RunToken
    balance: Amount

    example: ClassVar[dict[str, Any]] = {"token": _SETTLER, "balance": "1000000"}


class RunBalances(Record, frozen=True):
    """The balances that a source gave."""

    timestamp: TimestampMs
    balances: Annotated[list[RunBalance], Meta(max_length=_LIST_MAX)]

    example: ClassVar[dict[str, Any]] = {"timestamp": 1_795_204_080_000, "balances": [RunBalance.example]}


class RunAnswer(Record, frozen=True):
    """What the function got: `data`, or where `success` is false the `error`."""

    success: bool
    data: (
        Annotated[
            _TextOrList | Annotated[list[_Text | RunBalances], Meta(max_length=_LIST_MAX)],
            Meta(description="The hex of an EVM call; the prices, US dollars × 10^18 of a whole token; the balances"),
        ]
        | UnsetType
    ) = UNSET
    error: ReasonText | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = _ANSWER

    def __post_init__(self) -> None:
        """Raises `InvalidText` for data with U+0000."""
        _check_text(self.data, "/data")


class RunCall(Record, frozen=True, kw_only=True):
    """A call from which an answer was made; without `to`, `data` is code that was run once."""

    to: Address | UnsetType = UNSET
    data: HexString
    block: RunBlock
    answer: HexString

    example: ClassVar[dict[str, Any]] = _CALL


class RunInput(Record, frozen=True):
    """A question of the function and its answer. Prices and balances list the calls that they were made from."""

    query: Query
    params: Annotated[dict[_ParamName, _Param], Meta(max_length=_PARAMS_MAX)]
    answer: RunAnswer
    block: RunBlock | UnsetType = UNSET
    calls: Annotated[list[RunCall], Meta(max_length=_LIST_MAX)] | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = _INPUT

    def __post_init__(self) -> None:
        """Raises `InvalidText` for a param with U+0000."""
        for name, value in self.params.items():
            _check_text(value, f"/params/{name}")


class RunContext(Record, frozen=True):
    """What the function was told besides the trigger and what made it due."""

    consensus_threshold: Annotated[int, Meta(ge=0, le=255)] = 1
    settlers: Annotated[list[RunToken], Meta(max_length=BLOCKS_MAX)] = field(default_factory=list[RunToken])

    example: ClassVar[dict[str, Any]] = _CONTEXT


class NewRunOutput(Record, frozen=True):
    """The hash of an intent that the run made."""

    hash: Bytes32

    example: ClassVar[dict[str, Any]] = {"hash": _HASH}


class RunOutput(NewRunOutput, frozen=True):
    """The hash of an intent that the run made, and whether the intent is recorded here."""

    recorded: bool

    example: ClassVar[dict[str, Any]] = {"hash": _HASH, "recorded": True}


class RunRecord(Record, frozen=True):
    """Who recorded the run, and the hash of what that relayer read."""

    relayer: Address
    evidence: Bytes32
    created_at: DateTime
    orphaned: (
        Annotated[bool, Meta(description="This relayer said that the block is not canonical any more")] | UnsetType
    ) = UNSET

    example: ClassVar[dict[str, Any]] = _RECORD


_TriggerData: TypeAlias = Annotated[
    HexString, Meta(description="What made the run due, ABI-encoded, as the function got it")
]
_Timestamp: TypeAlias = Annotated[
    TimestampMs, Meta(description="The tick, the time of the event's block, or the start, in milliseconds since 1970")
]
_MissedCount: TypeAlias = Annotated[
    int, Meta(ge=1, le=SAFE_INTEGER_MAX, description="How many runs a note of missed runs stands for", examples=[3])
]
_Logs: TypeAlias = Annotated[list[RunLog], Meta(max_length=RUN_LOGS_MAX, description="In a listing the first 50 lines")]
_LogsCut: TypeAlias = Annotated[bool, Meta(description="The function logged more than is kept")]
_Blocks: TypeAlias = Annotated[list[RunBlock], Meta(max_length=BLOCKS_MAX, description="One for each chain")]
_Fee: TypeAlias = Annotated[
    Amount, Meta(description="The price of the run at its operator, in the unit of the trigger's executionFeeLimit")
]
_SolverFees: TypeAlias = Annotated[list[Amount], Meta(max_length=OUTPUTS_MAX)]
_Signature: TypeAlias = Annotated[Signature, Meta(description="By the relayer, EIP-191 over the 32 bytes of the hash")]


class NewRun(Record, frozen=True, kw_only=True):
    """A run as a relayer records it. Also as GET answers it: members that are computed here are ignored.

    `reason` belongs to exactly the results `stopped`, `missed`, `skipped` and `incomplete`; `missedCount`, `from` and
    `to` exactly for `missed`; `outputs` are the intents in the order of the function, for `intents` alone.
    """

    hash: Bytes32 | None = None
    trigger_sig: Signature
    trigger_type: TriggerType
    trigger_data: _TriggerData
    timestamp: _Timestamp
    result: RunResult
    reason: RunReason | None = None
    missed_count: _MissedCount | None = None
    from_ms: TimestampMs | None = field(default=None, name="from")
    to_ms: TimestampMs | None = field(default=None, name="to")
    fuel_used: Amount = field(default_factory=lambda: Amount("0"))
    logs: _Logs = field(default_factory=list[RunLog])
    logs_cut: _LogsCut = False
    inputs: Annotated[list[RunInput], Meta(max_length=INPUTS_MAX)] = field(default_factory=list[RunInput])
    context: RunContext = field(default_factory=RunContext)
    blocks: _Blocks = field(default_factory=list[RunBlock])
    outputs: Annotated[list[NewRunOutput], Meta(max_length=OUTPUTS_MAX)] = field(default_factory=list[NewRunOutput])
    engine: Engine
    signature: _Signature | None = None
    evidence: Bytes32 | None = None
    fee: _Fee = field(default_factory=lambda: Amount("0"))
    solver_fees: _SolverFees = field(default_factory=list[Amount])

    example: ClassVar[dict[str, Any]] = _RUN


class RecordedRun(Record, frozen=True, kw_only=True):
    """The members of a run that never change and that listings show, in the order of the answer."""

    hash: Bytes32
    trigger_sig: Signature
    trigger_type: TriggerType
    trigger_data: _TriggerData
    timestamp: _Timestamp
    result: RunResult
    reason: RunReason | UnsetType = UNSET
    missed_count: _MissedCount | UnsetType = UNSET
    from_ms: TimestampMs | UnsetType = field(default=UNSET, name="from")
    to_ms: TimestampMs | UnsetType = field(default=UNSET, name="to")
    fuel_used: Amount
    blocks: _Blocks
    engine: Engine
    relayer: Annotated[Address, Meta(description="Of the operator that recorded it first; zeros: it has no address")]
    signature: _Signature | UnsetType = UNSET
    fee: _Fee
    solver_fees: _SolverFees
    created_at: DateTime
    logs_cut: _LogsCut | UnsetType = UNSET
    logs: _Logs


class RunDetail(Record, frozen=True, kw_only=True):
    """The members that only the answer for one run has."""

    inputs: Annotated[list[RunInput], Meta(max_length=INPUTS_MAX)]
    context: RunContext


class Run(RecordedRun, frozen=True, kw_only=True):
    """A recorded run. A listing leaves out `inputs`, `context` and the lines of the log after the first 50."""

    outputs: Annotated[list[RunOutput], Meta(max_length=OUTPUTS_MAX)]
    status: RunStatus
    validations: Annotated[int, Meta(ge=0, description="Operators in good standing that recorded this hash")]
    records: list[RunRecord]
    conflicts: Annotated[
        list[Bytes32],
        Meta(max_length=CONFLICTS_SHOWN, description="Other verdicts on what made this run due; at most 20"),
    ]
    inputs: Annotated[list[RunInput], Meta(max_length=INPUTS_MAX)] | UnsetType = UNSET
    context: RunContext | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = {
        **_RUN, "hash": _HASH, "outputs": [RunOutput.example], "relayer": _ADDRESS, "status": "valid",
        "validations": 1, "records": [_RECORD], "conflicts": [], "createdAt": "2026-11-20T19:48:00.123Z",
    }  # fmt: skip


class Orphaning(Record, frozen=True):
    """The block of an event that is not canonical any more."""

    chain_id: _ChainId
    block_hash: Bytes32

    example: ClassVar[dict[str, Any]] = {"chainId": 8453, "blockHash": "0x" + "02" * 32}
