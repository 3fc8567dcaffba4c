"""The records of triggers, their JSON Schemas and examples."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from msgspec import UNSET, Meta, UnsetType, field

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import BundleCid, Cid
from muniment.protocol.triggers.schedule import next_runs
from muniment.protocol.wire import TIMESTAMP_MS_MAX, Amount, BoundedText, DateTime, Record, SemVer

SIG: Final = "0x" + "1" * 128 + "1b"
SIGNER: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
CONFIG: Final = {"type": 0, "schedule": "0 */6 * * *", "delta": "10m", "endDate": 0}
VALUES: Final[dict[str, Any]] = {
    "functionCid": "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4", "version": "1.0.0", "input": {},
    "config": CONFIG, "executionFeeLimit": "0", "minValidations": 1,
}  # fmt: skip
TYPES: Final[dict[str, Any]] = {
    "Trigger": [
        {"name": "functionCid", "type": "string"}, {"name": "version", "type": "string"},
        {"name": "input", "type": "Input"}, {"name": "config", "type": "Config"},
        {"name": "executionFeeLimit", "type": "uint256"}, {"name": "minValidations", "type": "uint8"},
    ],
    "Input": [],
    "Config": [
        {"name": "type", "type": "uint8"}, {"name": "schedule", "type": "string"},
        {"name": "delta", "type": "string"}, {"name": "endDate", "type": "uint256"},
    ],
}  # fmt: skip
_INTEGER: Final = {
    "title": "Integer",
    "description": "A JSON integer up to 2^53 - 1, or decimal digits as text; bounded by its EIP-712 type",
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,77})$"},
    ],
    "examples": [0],
}
_DELTA: Final = {
    "title": "Delta", "type": "string", "pattern": "^[1-9][0-9]*(s|m|h|d|w)$",
    "description": "How late a run may start: seconds, minutes, hours, days or weeks, at most 52w", "examples": ["10m"],
}  # fmt: skip
_TOPIC: Final = {"type": "string", "pattern": "^0x[0-9a-fA-F]{64}$"}


_END_DATE: Final = {"allOf": [_INTEGER], "description": "Milliseconds since 1970; 0: never ends"}


def _variant(title: str, members: dict[str, Any], sample: dict[str, Any], *optional: str) -> dict[str, Any]:
    properties = {"type": {"const": sample["type"]}, **members, "delta": _DELTA, "endDate": _END_DATE}
    return {
        "type": "object", "title": title, "properties": properties, "additionalProperties": False,
        "required": [name for name in properties if name not in optional], "examples": [sample],
    }  # fmt: skip


# OpenAPI's `discriminator` needs a string; here the constant integer `type` distinguishes the variants.
CONFIG_SCHEMA: Final = {
    "type": "object",
    "anyOf": [
        _variant("CronConfig", {"schedule": {"type": "string", "minLength": 9, "maxLength": 100}}, CONFIG),
        _variant(
            "EventConfig",
            {
                "chainId": _INTEGER,
                "contract": {"title": "Address", **Address.schema},
                "topics": {
                    "type": "array", "maxItems": 4,
                    "items": {"type": "array", "maxItems": 100, "items": _TOPIC},
                },
            },
            {
                "type": 1, "chainId": 8453, "contract": SIGNER, "topics": [["0x" + "ab" * 32], []],
                "delta": "1h", "endDate": 0,
            },
        ),
        _variant("OnceConfig", {"startDate": _INTEGER}, {"type": 2, "delta": "1h", "endDate": 0}, "startDate"),
    ],
}  # fmt: skip

_MEMBER: Final = {
    "title": "TypeMember", "description": "A member of an EIP-712 struct",
    "examples": [{"name": "type", "type": "uint8"}],
    "type": "object", "required": ["name", "type"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Za-z_$][A-Za-z0-9_$]*$"},
        "type": {"type": "string", "pattern": r"^[A-Za-z_$][A-Za-z0-9_$]*(\[[0-9]*\]){0,4}$"},
    },
}  # fmt: skip
_MEMBERS: Final = {"type": "array", "items": _MEMBER, "maxItems": 64}
DEACTIVATE_TYPES_SCHEMA: Final = {
    "properties": {"Deactivate": _MEMBERS}, "additionalProperties": _MEMBERS, "required": ["Deactivate"],
    "examples": [{"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}],
}  # fmt: skip
_STRUCTS: Final = ("Trigger", "Input", "Config")
INPUT_SCHEMA: Final[dict[str, Any]] = {"maxProperties": 64, "additionalProperties": True, "examples": [{}]}
TYPES_SCHEMA: Final = {
    "maxProperties": 32, "properties": dict.fromkeys(_STRUCTS, _MEMBERS), "additionalProperties": _MEMBERS,
    "required": [*_STRUCTS],
}  # fmt: skip


# Limited because one transaction deactivates them, and a wallet shows them in one list.
TRIGGER_SIGS_MAX: Final = 100
DESCRIPTION_LENGTH_MAX: Final = 1000

Config = Annotated[
    dict[str, Any],
    Meta(title="Config", description="When the function may run", examples=[CONFIG], extra_json_schema=CONFIG_SCHEMA),
]
Input = Annotated[
    dict[str, Any],
    Meta(title="Input", description="The manifest's inputs, no more and no fewer", extra_json_schema=INPUT_SCHEMA),
]
Types = Annotated[
    dict[str, Any],
    Meta(title="Types", description="EIP-712 type definitions", examples=[TYPES], extra_json_schema=TYPES_SCHEMA),
]
DeactivateTypes = Annotated[
    dict[str, Any],
    Meta(
        title="DeactivateTypes",
        description="EIP-712 type definitions of a deactivation",
        extra_json_schema=DEACTIVATE_TYPES_SCHEMA,
    ),
]
MinValidations = Annotated[int, Meta(ge=1, le=255)]
TimestampMs = Annotated[
    int, Meta(ge=0, le=TIMESTAMP_MS_MAX, description="Milliseconds since 1970", examples=[1_795_204_080_123])
]
# The form of a signed deactivation: text (EIP-191) or typed data (EIP-712).
DeactivationForm = Literal["eip191", "eip712"]
TriggerSigs = Annotated[
    list[Signature], Meta(min_length=1, max_length=TRIGGER_SIGS_MAX, extra_json_schema={"uniqueItems": True})
]


class Description(
    BoundedText, length_min=1, length_max=DESCRIPTION_LENGTH_MAX, description="Not signed; need not be unique",
    example="Every six hours",
):  # fmt: skip
    """The owner's description of a trigger. It is not signed."""

    __slots__ = ()


class Values(Record, frozen=True, forbid_unknown_fields=True):
    """The signed message: exactly these members."""

    function_cid: BundleCid
    version: SemVer
    input: Input
    config: Config
    execution_fee_limit: Amount
    min_validations: MinValidations

    example: ClassVar[dict[str, Any]] = VALUES

    @classmethod
    def of(cls, trigger: Trigger | TriggerParams) -> Self:
        """What was, or is to be, signed for a trigger. Raises `InvalidCid` for a CID that no function has."""
        return cls(
            function_cid=BundleCid.parse(trigger.function_cid), version=trigger.version, input=trigger.input,
            config=trigger.config, execution_fee_limit=trigger.execution_fee_limit,
            min_validations=trigger.min_validations,
        )  # fmt: skip


class TypedData(Record, frozen=True):
    """The typed data as its signer had it: types and values; the domain is this registry's."""

    types: Types
    values: Values

    example: ClassVar[dict[str, Any]] = {"types": TYPES, "values": VALUES}


class NewTrigger(Record, frozen=True):
    """A signed trigger."""

    description: Description
    typed_data: TypedData
    sig: Signature
    signer: Address

    example: ClassVar[dict[str, Any]] = {
        "description": "Every six hours", "typedData": {"types": TYPES, "values": VALUES},
        "sig": SIG, "signer": SIGNER,
    }  # fmt: skip


class Trigger(Record, frozen=True, kw_only=True):
    """A registered trigger, identified by its signature."""

    sig: Signature
    function_cid: Cid
    signer: Address
    version: SemVer
    description: Description
    deactivate_sig: Signature | UnsetType = UNSET
    created_at: DateTime
    input: Input
    config: Config
    execution_fee_limit: Amount
    min_validations: MinValidations
    types: Types
    end_date: TimestampMs

    example: ClassVar[dict[str, Any]] = {
        "sig": SIG, "signer": SIGNER, "description": "Every six hours", "createdAt": "2026-11-20T19:48:00.123Z",
        "types": TYPES, "endDate": 0, **VALUES,
    }  # fmt: skip

    def is_over(self, now_ms: int) -> bool:
        """Whether it is deactivated, or has ended at `now_ms` (milliseconds since 1970)."""
        return self.deactivate_sig is not UNSET or 0 < self.end_date <= now_ms

    def next_runs(self, after_ms: int, count: int = 1) -> list[int]:
        """The next `count` runs of its schedule, all after `after_ms`, in milliseconds since 1970 (UTC).

        There are fewer before its end, and none if it is deactivated or has no schedule. Raises `InvalidConfig` for a
        schedule that no registry accepts.
        """
        if "schedule" not in self.config or self.deactivate_sig is not UNSET:
            return []
        return next_runs(self.config["schedule"], after_ms, count, self.end_date)


class TriggerParams(Record, frozen=True):
    """The content of a trigger to sign."""

    function_cid: BundleCid
    version: SemVer
    config: Config
    input: Input
    execution_fee_limit: Amount = field(default_factory=lambda: Amount("0"))
    min_validations: MinValidations = 1

    example: ClassVar[dict[str, Any]] = {
        "functionCid": VALUES["functionCid"], "version": "1.0.0", "config": CONFIG, "input": {},
    }  # fmt: skip


class DomainShown(Record, frozen=True):
    """The EIP-712 domain: a name and a version, no chain and no contract."""

    name: Annotated[str, Meta(examples=["Mimic Protocol - Registry"])]
    version: Annotated[str, Meta(examples=["1"])]

    example: ClassVar[dict[str, Any]] = {"name": "Mimic Protocol - Registry", "version": "1"}


class SignParams(Record, frozen=True):
    """EIP-712 typed data, ready for a wallet."""

    domain: DomainShown
    primary_type: Annotated[str, Meta(examples=["Trigger"])]
    types: Types
    message: Values

    example: ClassVar[dict[str, Any]] = {
        "domain": {"name": "Mimic Protocol - Registry", "version": "1"}, "primaryType": "Trigger",
        "types": TYPES, "message": VALUES,
    }  # fmt: skip


class Preview(Record, frozen=True):
    """A trigger in plain words."""

    summary: Annotated[list[str], Meta(description="Its content, one sentence each")]
    next_runs: Annotated[list[DateTime], Meta(max_length=5, description="The next runs of its schedule")]
    warnings: Annotated[list[str], Meta(description="Risks that its signer should know")]

    example: ClassVar[dict[str, Any]] = {
        "summary": ["Function QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4 may run."],
        "nextRuns": ["2026-11-20T18:00:00.000Z"], "warnings": ["It never ends."],
    }  # fmt: skip


class Deactivation(Record, frozen=True):
    """A consent to deactivate: the listed triggers, and their owner's signature over the list in this order."""

    trigger_sigs: TriggerSigs
    signature: Signature

    example: ClassVar[dict[str, Any]] = {"triggerSigs": [SIG], "signature": "0x" + "2" * 128 + "1b"}


class RecordedDeactivation(Record, frozen=True, kw_only=True):
    """An accepted consent to deactivate. Any client can verify its signature with the list and the form.

    With the form `eip191` the signed text is the list joined by commas; with `eip712` the typed data is
    `Deactivate(string[] triggerSigs)` under `domain`.
    """

    signature: Signature
    signer: Address
    domain: Annotated[DomainShown, Meta(description="The domain under which the first trigger was signed")]
    form: Annotated[DeactivationForm, Meta(examples=["eip712"])]
    trigger_sigs: TriggerSigs
    created_at: DateTime

    example: ClassVar[dict[str, Any]] = {
        "signature": "0x" + "2" * 128 + "1b", "signer": SIGNER, "domain": DomainShown.example, "form": "eip712",
        "triggerSigs": [SIG], "createdAt": "2026-11-20T19:48:00.123Z",
    }  # fmt: skip


class DeactivationParams(Record, frozen=True):
    """The triggers to deactivate."""

    trigger_sigs: TriggerSigs

    example: ClassVar[dict[str, Any]] = {"triggerSigs": [SIG]}


class DeactivationMessage(Record, frozen=True):
    """The signed message: the canonical signatures in the posted order."""

    trigger_sigs: TriggerSigs

    example: ClassVar[dict[str, Any]] = {"triggerSigs": [SIG]}


class DeactivationTypedData(Record, frozen=True):
    """EIP-712 typed data, ready for a wallet."""

    domain: DomainShown
    primary_type: Annotated[str, Meta(examples=["Deactivate"])]
    types: DeactivateTypes
    message: DeactivationMessage

    example: ClassVar[dict[str, Any]] = {
        "domain": DomainShown.example, "primaryType": "Deactivate",
        "types": {"Deactivate": [{"name": "triggerSigs", "type": "string[]"}]}, "message": {"triggerSigs": [SIG]},
    }  # fmt: skip


class DeactivationSignParams(Record, frozen=True):
    """Sign either `message` by personal_sign (EIP-191), or `typedData` (EIP-712), which wallets show better."""

    message: str
    typed_data: DeactivationTypedData

    example: ClassVar[dict[str, Any]] = {"message": SIG, "typedData": DeactivationTypedData.example}
