"""Events of the feed: their positions, rows and filters, and their form in the API (CloudEvents 1.0, JSON format)."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, LiteralString, NamedTuple, Self

import msgspec
from msgspec import Meta

from muniment.protocol.errors import InvalidParameter
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import DAG_PB, BundleCid, Cid, cid_v0, cid_v1
from muniment.protocol.runs.reasons import RunResult
from muniment.protocol.wire import Amount, DateTime, ProvedText, Record, encode, iso_time
from muniment.service.storage.sql import Condition, number_text, placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDRESS_BYTES: Final = 20
_HASH_BYTES: Final = 32
# CIDs of functions that many events name. Under 1 MB.
_CIDS_KEPT: Final = 4_096
_SEQ_MAX: Final = 2**63 - 1
_EPOCH_MAX: Final = 2**32 - 1
# `e-`, eight hex digits of the epoch, `-` and the digits of `_SEQ_MAX`, in base64.
_LENGTH_MAX: Final = 40


class Position(ProvedText):
    """A position in the feed: an epoch of the registry, and the number of an event.

    As an id it names that event; as a cursor it means the events after it. It is base64url without dots, as ids of
    Standard Webhooks.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^[A-Za-z0-9_-]{{2,{_LENGTH_MAX}}}$",
        "description": "Opaque; from the `Link` header of a page, or the `id` of an event",
        "examples": ["ZS0wYmFkY2FmZS0xMDA"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for a text that is not in the form of a position."""
        try:
            epoch, seq = _parts(text) if len(text) <= _LENGTH_MAX else (-1, -1)
        except (binascii.Error, ValueError):
            epoch, seq = -1, -1
        if not (0 <= seq <= _SEQ_MAX and 0 <= epoch <= _EPOCH_MAX) or cls.at(epoch, seq) != text:
            raise InvalidParameter("this service did not issue the cursor")
        return cls(text)

    @classmethod
    def at(cls, epoch: int, seq: int) -> Self:
        """The position of the event with the number `seq`."""
        plain = b"e-%08x-%d" % (epoch, seq)
        return cls(base64.urlsafe_b64encode(plain).rstrip(b"=").decode())

    @property
    def epoch(self) -> int:
        """The epoch of the registry."""
        return _parts(self)[0]

    @property
    def seq(self) -> int:
        """The number of the event; 0 is before the first."""
        return _parts(self)[1]


def _parts(text: str) -> tuple[int, int]:
    """Epoch and number. Raises `ValueError` for most other texts."""
    plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    kind, epoch, digits = plain.split("-")
    if kind != "e":
        raise ValueError(kind)
    return int(epoch, 16), int(digits)


class Kind(IntEnum):
    """The kinds of events; the migrations have these numbers too."""

    TRIGGER_CREATED = 1
    TRIGGER_DEACTIVATED = 2
    FUNCTION_CREATED = 3
    INTENT_CREATED = 4
    INTENT_CHANGED = 5
    INTENT_LOGGED = 6
    RUN_RECORDED = 7


EventType = Literal[
    "muniment.trigger.created",
    "muniment.trigger.deactivated",
    "muniment.function.created",
    "muniment.intent.created",
    "muniment.intent.changed",
    "muniment.intent.logged",
    "muniment.execution.recorded",
]
EVENT_TYPES: Final[dict[Kind, EventType]] = {
    Kind.TRIGGER_CREATED: "muniment.trigger.created",
    Kind.TRIGGER_DEACTIVATED: "muniment.trigger.deactivated",
    Kind.FUNCTION_CREATED: "muniment.function.created",
    Kind.INTENT_CREATED: "muniment.intent.created",
    Kind.INTENT_CHANGED: "muniment.intent.changed",
    Kind.INTENT_LOGGED: "muniment.intent.logged",
    Kind.RUN_RECORDED: "muniment.execution.recorded",
}
KINDS: Final = {name: kind for kind, name in EVENT_TYPES.items()}
ABOUT_TRIGGERS: Final = (Kind.TRIGGER_CREATED, Kind.TRIGGER_DEACTIVATED)
ABOUT_INTENTS: Final = (Kind.INTENT_CREATED, Kind.INTENT_CHANGED, Kind.INTENT_LOGGED)


class Event(NamedTuple):
    """A row of `events`; docs/develop/database.md explains the columns."""

    seq: int
    at_ms: int
    kind: int
    subject: bytes
    owners: bytes
    origin: bytes
    settler: bytes | None
    facts: str

    @property
    def addresses(self) -> list[bytes]:
        """The distinct addresses that the event concerns, 20 bytes each."""
        return [self.owners[at : at + ADDRESS_BYTES] for at in range(0, len(self.owners), ADDRESS_BYTES)]


class Source(NamedTuple):
    """The registry of events: its name, its epoch, and the version of the CIDs that it makes."""

    issuer: str
    epoch: int
    cid_version: int

    @property
    def urn(self) -> str:
        """The `source` of its events."""
        return f"urn:muniment:{self.issuer}:{self.epoch:08x}"


class EventData(Record, frozen=True, omit_defaults=True):
    """The state after the change. Each type of event has its own members; other operations return the records."""

    signer: Annotated[Address, Meta(description="Of trigger events")] | None = None
    function_cid: Annotated[BundleCid, Meta(description="Of trigger events")] | None = None
    end_date: Annotated[int, Meta(description="Of `trigger.created`, in milliseconds; 0: it never ends")] | None = None
    deactivate_sig: Annotated[Signature, Meta(description="Of `trigger.deactivated`")] | None = None
    creator: Annotated[Address, Meta(description="Of `function.created`")] | None = None
    trigger_type: (
        Annotated[Literal[0, 1, 2], Meta(description="Of `execution.recorded`, like the next three")] | None
    ) = None
    result: RunResult | None = None
    outputs: Annotated[list[Bytes32], Meta(description="The hashes of the intents that the run made")] | None = None
    relayer: Annotated[Address, Meta(description="Of the operator that recorded it first; zeros: unnamed")] | None = (
        None
    )
    generation: Annotated[Literal[1, 2], Meta(description="Of intent events, like all that follow")] | None = None
    user: Annotated[Address, Meta(description="Of the first generation")] | None = None
    users: Annotated[list[Address], Meta(description="Of the second: users and payer of fees")] | None = None
    settler: Address | None = None
    config_sig: Annotated[Signature, Meta(description="Of the first generation")] | None = None
    trigger_sig: Annotated[Signature, Meta(description="Of the second generation; of `execution.recorded`")] | None = (
        None
    )
    deadline: Annotated[Amount, Meta(description="Unix seconds; an intent expires without an event")] | None = None
    status: (
        Annotated[
            str,
            Meta(
                description="From the chain, or else from operators; never `expired`. Of `execution.recorded`: "
                "pending, valid or invalid"
            ),
        ]
        | None
    ) = None
    version: Annotated[int, Meta(description="Grows with every change")] | None = None
    proposals: Annotated[int, Meta(description="Their number")] | None = None
    logs: Annotated[int, Meta(description="Their number")] | None = None
    transaction_hash: Bytes32 | None = None

    example: ClassVar[dict[str, Any]] = {"creator": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}


class CloudEvent(Record, frozen=True):
    """A change, as CloudEvents 1.0."""

    specversion: Literal["1.0"]
    id: Position
    source: Annotated[str, Meta(description="`urn:muniment:<issuer>:<epoch>`; with `id` it is unique")]
    type: EventType
    subject: Annotated[
        str, Meta(description="Signature of the trigger, CID of the function, or hash of the intent or the run")
    ]
    time: DateTime
    data: EventData

    example: ClassVar[dict[str, Any]] = {
        "specversion": "1.0",
        "id": "ZS0wYmFkY2FmZS0xMDA",
        "source": "urn:muniment:muniment:0badcafe",
        "type": "muniment.function.created",
        "subject": "QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ",
        "time": "2026-11-20T19:48:00.123Z",
        "data": EventData.example,
    }


def encode_event(event: Event, source: Source) -> bytes:
    """The event as JSON."""
    return encode(
        {
            "specversion": "1.0",
            "id": Position.at(source.epoch, event.seq),
            "source": source.urn,
            "type": EVENT_TYPES[Kind(event.kind)],
            "subject": _subject(event, source),
            "time": iso_time(event.at_ms),
            "data": _data(event, source),
        }
    )


def _subject(event: Event, source: Source) -> str:
    if event.kind == Kind.FUNCTION_CREATED:
        return _cid(event.subject, source.cid_version)
    return f"0x{event.subject.hex()}"


def _data(event: Event, source: Source) -> dict[str, object]:
    facts: dict[str, Any] = msgspec.json.decode(event.facts)
    owners = [Address.from_raw(each) for each in event.addresses]
    if event.kind in ABOUT_INTENTS:
        return _intent(event, owners, facts)
    if event.kind == Kind.FUNCTION_CREATED:
        return {"creator": owners[0]}
    if event.kind == Kind.RUN_RECORDED:
        return _run(event, facts)
    return {"signer": owners[0], "functionCid": _cid(event.origin, source.cid_version), **facts}


def _intent(event: Event, owners: list[Address], facts: dict[str, Any]) -> dict[str, object]:
    origin = f"0x{event.origin.hex()}"
    is_first = facts["generation"] == 1
    shown: dict[str, object] = {
        "generation": facts["generation"],
        **({"user": owners[0]} if is_first else {"users": owners}),
        "settler": Address.from_raw(event.settler or b""),
        "configSig" if is_first else "triggerSig": origin,
        "deadline": str(int(facts["deadline"] or "0", 16)),
        **{name: facts[name] for name in ("status", "version", "proposals", "logs")},
    }
    if transaction := facts["transaction"]:
        shown["transactionHash"] = f"0x{transaction.lower()}"
    return shown


def _run(event: Event, facts: dict[str, Any]) -> dict[str, object]:
    outputs = bytes.fromhex(facts["outputs"])
    return {
        "triggerSig": f"0x{event.origin.hex()}",
        **{name: facts[name] for name in ("triggerType", "result", "status")},
        "outputs": [f"0x{outputs[at : at + _HASH_BYTES].hex()}" for at in range(0, len(outputs), _HASH_BYTES)],
        "relayer": Address.from_raw(bytes.fromhex(facts["relayer"])),
    }


@lru_cache(maxsize=_CIDS_KEPT)
def _cid(digest: bytes, version: int) -> Cid:
    return cid_v0(digest) if version == 0 else cid_v1(DAG_PB, digest)


# Values of one filter. A client with more follows everything, or opens several streams.
VALUES_MAX: Final = 20
_PREFIX: Final = "muniment."
# Values in a statement are repeated up to one of these numbers, for few distinct statements.
_STEPS: Final = (1, 4, VALUES_MAX)


class TypeName(ProvedText):
    """The type of an event, with or without `muniment.`."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "enum": [*EVENT_TYPES.values(), *(name.removeprefix(_PREFIX) for name in EVENT_TYPES.values())],
        "description": "The type of an event, with or without `muniment.`",
        "examples": ["trigger.deactivated"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """The full name. Raises `InvalidParameter` for an unknown type."""
        name = _PREFIX + text.removeprefix(_PREFIX)
        if name not in KINDS:
            raise InvalidParameter(f"a type is one of {', '.join(EVENT_TYPES.values())}")
        return cls(name)

    @property
    def kind(self) -> Kind:
        """The number of the type."""
        return KINDS[str(self)]


_Few: Final = Meta(min_length=1, max_length=VALUES_MAX)
Types = Annotated[list[TypeName], _Few, Meta(description="Only events of these types")]


class Filters(Record, frozen=True):
    """Events that match every given filter in one of its values."""

    owner: Annotated[list[Address], _Few, Meta(description="Signer, creator, user or payer of fees")] | None = None
    signer: Annotated[list[Address], _Few, Meta(description="Of trigger and run events")] | None = None
    function_cid: Annotated[list[BundleCid], _Few, Meta(description="Of trigger and function events")] | None = None
    user: Annotated[list[Address], _Few, Meta(description="Of intent events; also the payer of fees")] | None = None
    config_sig: (
        Annotated[list[Signature], _Few, Meta(description="Of intent and run events; also `triggerSig`")] | None
    ) = None
    settler: Annotated[list[Address], _Few, Meta(description="Of intent events")] | None = None

    def of_types(self, types: list[TypeName] | None) -> EventFilter:
        """The filter on events of `types` (None: of all), limited to the kinds of events that it can match."""
        kinds = set(Kind) if types is None else {each.kind for each in types}
        if self.signer is not None:
            kinds &= {*ABOUT_TRIGGERS, Kind.RUN_RECORDED}
        if self.function_cid is not None:
            kinds &= {*ABOUT_TRIGGERS, Kind.FUNCTION_CREATED}
        if self.config_sig is not None:
            kinds &= {*ABOUT_INTENTS, Kind.RUN_RECORDED}
        if self.user is not None or self.settler is not None:
            kinds &= set(ABOUT_INTENTS)
        origins = _all_of(_raw(self.config_sig), _digests(self.function_cid))
        owners = _all_of(_raw(self.owner), _raw(self.signer), _raw(self.user))
        return EventFilter(
            None if len(kinds) == len(Kind) else frozenset(int(kind) for kind in kinds),
            owners[0] if owners else None,
            owners[1:],
            origins[0] if origins else None,
            _raw(self.settler),
        )


class FilterQuery(Filters, frozen=True):
    """Filters, and types of events."""

    types: Types | None = None

    def chosen(self) -> EventFilter:
        """The filter on events of these types."""
        return self.of_types(self.types)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A filter on events; members that were not given are None."""

    kinds: frozenset[int] | None = None
    # Addresses of 20 bytes; an event has one of them among its owners.
    owners: frozenset[bytes] | None = None
    # Further sets; an event has an owner of each.
    more_owners: tuple[frozenset[bytes], ...] = ()
    # Digests of functions, or signatures of triggers.
    origins: frozenset[bytes] | None = None
    settlers: frozenset[bytes] | None = None

    @property
    def is_open(self) -> bool:
        """Whether every event matches."""
        return self == EVERYTHING

    def matches(self, event: Event) -> bool:
        """Whether the event matches."""
        if self.kinds is not None and event.kind not in self.kinds:
            return False
        if self.origins is not None and event.origin not in self.origins:
            return False
        if self.settlers is not None and event.settler not in self.settlers:
            return False
        if self.owners is None:
            return True
        own = event.addresses
        return all(not wanted.isdisjoint(own) for wanted in (self.owners, *self.more_owners))

    def conditions(self) -> list[Condition]:
        """SQL that is true for every matching event, and for a few others with several owners."""
        made: list[Condition] = []
        if self.kinds is not None:
            made.append(_is_one_of("kind", sorted(self.kinds or _NO_KIND)))
        if self.origins is not None:
            made.append(_is_one_of("origin", sorted(self.origins)))
        if self.settlers is not None:
            made.append(_is_one_of("settler", sorted(self.settlers)))
        if self.owners is not None:
            length = number_text(ADDRESS_BYTES)
            first, values = _is_one_of(f"substr(owners, 1, {length})", sorted(self.owners))
            made.append(Condition(f"({first} OR length(owners) > {length})", values))
        return made


EVERYTHING: Final = EventFilter()
# Filters that no kind of event can match.
_NO_KIND: Final = frozenset({0})


def _is_one_of(column: LiteralString, listed: Sequence[object]) -> Condition:
    count = next(each for each in _STEPS if each >= len(listed))
    return Condition(f"{column} IN ({placeholders(count)})", (*listed, *[listed[-1]] * (count - len(listed))))


def _raw(values: Sequence[Address] | Sequence[Signature] | None) -> frozenset[bytes] | None:
    return None if values is None else frozenset(each.raw for each in values)


def _digests(cids: Sequence[BundleCid] | None) -> frozenset[bytes] | None:
    return None if cids is None else frozenset(cid.digest for cid in cids)


def _all_of(*given: frozenset[bytes] | None) -> tuple[frozenset[bytes], ...]:
    return tuple(each for each in given if each is not None)
