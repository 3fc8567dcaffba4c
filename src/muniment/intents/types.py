"""The shapes of the intents slice."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from msgspec import UNSET, Meta, UnsetType, field

from muniment.errors import InvalidSignature, InvalidText, InvalidTimestamp
from muniment.evm.address import Address
from muniment.evm.hex import Bytes32, HexString
from muniment.evm.signature import Signature
from muniment.evm.words import SAFE_INTEGER_MAX
from muniment.intents.schemas import HASHED, INTENT, LOG, PROPOSAL, PROPOSED
from muniment.wire import Amount, DateTime, ProvedText, Record

# The most that one intent holds; docs/relaying.md promises these numbers.
PROPOSALS_MAX: Final = 1_000
LOGS_MAX: Final = 10_000
LOG_BYTES_MAX: Final = 4_096
# A listing shows this many of the newest proposals and of the newest logs.
NEWEST_SHOWN: Final = 50
# More than an intent on chain could pay the gas for.
LIST_MAX: Final = 256
# Unix seconds have ten digits until the year 2286; a number of this size is a time in milliseconds.
_LOOKS_LIKE_MS: Final = range(10**12, 10**14 + 1)
_CONFIG_SIG: Final = re.compile(r"0x[0-9a-fA-F]{130}")

Op = Annotated[int, Meta(ge=0, le=3, description="0 Swap, 1 Transfer, 2 EvmCall, 3 SvmCall", examples=[1])]
# The moves between these are in `lifecycle`.
IntentStatus = Annotated[
    Literal["created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired"],
    Meta(description="How the intent fares", examples=["created"]),
]
ProposalStatus = Annotated[
    Literal["received", "accepted", "rejected", "submitted", "succeeded", "failed", "expired"],
    Meta(description="How the proposal fares", examples=["received"]),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"], Meta(description="How much it matters", examples=["info"])
]
Verified = Annotated[
    bool | None,
    Meta(
        description="Whether every signature is by `solver` or by one of the chain's `proposal_signers`, under the "
        "settlement domain of a configured chain; null: there is no signature, or no configured chain has this settler"
    ),
]
Signers = Annotated[
    list[Address],
    Meta(
        description="The addresses that the signatures lead to under the settlement domain of the chain where most of "
        "them count, each once; empty where `verified` is null, absent of a proposal recorded by an earlier release",
        max_length=LIST_MAX,
    ),
]


class ConfigSig(ProvedText):
    """The signature of the trigger behind an intent: 65 bytes, lower case, otherwise as they were hashed.

    Not canonicalised and not checked as `Signature` is: the settlement contract hashes these bytes as they are.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "pattern": "^0x[0-9a-fA-F]{130}$",
        "description": "The `sig` of the trigger, 65 bytes, as it enters the intent's hash",
        "examples": ["0x" + "1" * 128 + "1b"],
    }  # fmt: skip
    refuses = InvalidSignature

    @classmethod
    def parse(cls, text: str) -> Self:
        """Lower case. Raises `InvalidSignature` for any other length."""
        if not _CONFIG_SIG.fullmatch(text):
            raise InvalidSignature("a config signature is 0x and 130 hex digits")
        return cls(text.lower())

    @property
    def raw(self) -> bytes:
        """The 65 bytes."""
        return bytes.fromhex(self[2:])


class DeadlineBound(Amount):
    """A time in Unix seconds, as a filter on deadlines."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        **Amount.schema, "description": "Unix seconds in decimal", "examples": ["1795204080"],
    }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidAmount`, and `InvalidTimestamp` for what must be milliseconds."""
        bound = super().parse(text)
        if int(bound) in _LOOKS_LIKE_MS:
            raise InvalidTimestamp("a deadline is in Unix seconds; is this in milliseconds?")
        return bound


class LogText(ProvedText):
    """The text of a log line, 1 byte to 4 KiB of UTF-8."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "minLength": 1, "maxLength": LOG_BYTES_MAX, "pattern": r"^[^\u0000]*$",
        "description": "At most 4 KiB of UTF-8", "examples": ["solver answered in 120 ms"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText` for a wrong size, and for U+0000, which no database of ours stores."""
        if not 1 <= len(text.encode()) <= LOG_BYTES_MAX:
            raise InvalidText(f"a log has 1 to {LOG_BYTES_MAX} bytes of UTF-8")
        if "\0" in text:
            raise InvalidText("a log has no U+0000")
        return cls(text)


class ShortText(ProvedText):
    """A remark of up to 1000 characters."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "maxLength": 1_000, "pattern": r"^[^\u0000]*$", "description": "At most 1000 characters",
        "examples": ["0.3 % better than the last"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        if len(text) > 1_000:  # noqa: PLR2004 - as the schema above says
            raise InvalidText("at most 1000 characters")
        if "\0" in text:
            raise InvalidText("a text has no U+0000")
        return cls(text)


class LogId(ShortText):
    """A writer's own name for a log, 1 to 100 characters: the same name twice is one log."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "minLength": 1, "maxLength": 100, "pattern": r"^[^\u0000]*$",
        "description": "The writer's own name for a log; the same twice is one log", "examples": ["relayer-1/42"],
    }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        if not 1 <= len(text) <= 100:  # noqa: PLR2004 - as the schema above says
            raise InvalidText("an id has 1 to 100 characters")
        return super().parse(text)


class MaxFee(Record, frozen=True):
    """The most that may be taken in one token."""

    token: Address
    amount: Amount

    example: ClassVar[dict[str, Any]] = HASHED["maxFees"][0]


class IntentEvent(Record, frozen=True):
    """What the settlement contract emits when the intent is executed."""

    topic: Bytes32
    data: HexString

    example: ClassVar[dict[str, Any]] = HASHED["events"][0]


class Hashed(Record, frozen=True):
    """The fields of an intent that its hash is made of."""

    op: Op
    user: Address
    settler: Address
    nonce: Bytes32
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    data: HexString
    max_fees: Annotated[list[MaxFee], Meta(max_length=LIST_MAX)]
    events: Annotated[list[IntentEvent], Meta(max_length=LIST_MAX)]
    config_sig: ConfigSig
    min_validations: Annotated[int, Meta(ge=0, le=SAFE_INTEGER_MAX)]

    example: ClassVar[dict[str, Any]] = HASHED


class NewProposal(Record, frozen=True):
    """A solver's offer; its hash, which is computed here, is its identity."""

    solver: Address
    data: HexString
    deadline: Annotated[Amount, Meta(description="Unix seconds in decimal")]
    fees: Annotated[list[Amount], Meta(max_length=LIST_MAX)]
    fee_usd: Amount = field(default_factory=lambda: Amount("0"))
    status: ProposalStatus = "received"
    description: ShortText = field(default_factory=lambda: ShortText(""))
    signatures: Annotated[list[Signature], Meta(max_length=LIST_MAX)] = field(default_factory=list[Signature])
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = PROPOSED


class NewLog(Record, frozen=True):
    """A log line to append."""

    level: LogLevel
    data: LogText
    created_at: DateTime | None = None
    id: LogId | None = None

    example: ClassVar[dict[str, Any]] = LOG


class NewIntent(Hashed, frozen=True):
    """An intent as an operator has it. Also as GET answers it: members that are computed here are ignored."""

    hash: Bytes32 | None = None
    execution_hash: HexString = field(default_factory=lambda: HexString("0x"))
    status: IntentStatus | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None
    proposals: Annotated[list[NewProposal], Meta(max_length=PROPOSALS_MAX)] = field(default_factory=list[NewProposal])
    logs: Annotated[list[NewLog], Meta(max_length=LOGS_MAX)] = field(default_factory=list[NewLog])

    example: ClassVar[dict[str, Any]] = HASHED


class StatusChange(Record, frozen=True):
    """A move: of the intent, or of the proposal that is named."""

    status: Annotated[str, Meta(description="An intent's status, or with `proposal` a proposal's", max_length=20)]
    proposal: Bytes32 | None = None
    transaction_hash: Bytes32 | None = None
    dest_transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = {"status": "enqueued"}


class Proposal(Record, frozen=True):
    """A solver's offer."""

    hash: Bytes32
    solver: Address
    data: HexString
    deadline: Amount
    fees: list[Amount]
    fee_usd: Amount
    status: ProposalStatus
    description: ShortText
    signatures: list[Signature]
    verified: Verified
    signers: Signers | UnsetType = UNSET
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = PROPOSAL


class Log(Record, frozen=True):
    """A log line."""

    level: LogLevel
    data: LogText
    created_at: DateTime
    id: LogId | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = LOG


class Intent(Hashed, frozen=True, kw_only=True):
    """An intent with its proposals and logs; in a listing with the newest 50 of each."""

    hash: Bytes32
    execution_hash: HexString
    created_at: Annotated[DateTime, Meta(description="When it arrived in this registry")]
    status: IntentStatus
    transaction_hash: Bytes32 | UnsetType = UNSET
    dest_transaction_hash: Bytes32 | UnsetType = UNSET
    proposals: Annotated[list[Proposal], Meta(max_length=PROPOSALS_MAX)]
    logs: list[Log]

    example: ClassVar[dict[str, Any]] = INTENT
