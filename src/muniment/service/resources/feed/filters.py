"""Filters of the feed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, LiteralString, Self

from msgspec import Meta

from muniment.protocol.errors import InvalidParameter
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import BundleCid
from muniment.protocol.wire import ProvedText, Record
from muniment.service.resources.feed.events import (
    ABOUT_INTENTS,
    ABOUT_TRIGGERS,
    ADDRESS_BYTES,
    EVENT_TYPES,
    KINDS,
    Event,
    Kind,
)
from muniment.service.storage.sql import Condition, number_text, placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class FilterQuery(Record, frozen=True):
    """Events that match every given filter in one of its values."""

    types: Annotated[list[TypeName], _Few, Meta(description="Only events of these types")] | None = None
    owner: (
        Annotated[list[Address], _Few, Meta(description="Signer, creator, user or payer of fees")] | None
    ) = None  # fmt: skip
    signer: Annotated[list[Address], _Few, Meta(description="Of trigger events")] | None = None
    function_cid: Annotated[list[BundleCid], _Few, Meta(description="Of trigger and function events")] | None = None
    user: Annotated[list[Address], _Few, Meta(description="Of intent events; also the payer of fees")] | None = None
    config_sig: Annotated[list[Signature], _Few, Meta(description="Of intent events; also `triggerSig`")] | None = None
    settler: Annotated[list[Address], _Few, Meta(description="Of intent events")] | None = None

    def chosen(self) -> EventFilter:
        """The filter, limited to the kinds of events that it can match."""
        kinds = set(Kind) if self.types is None else {each.kind for each in self.types}
        if self.signer is not None:
            kinds &= set(ABOUT_TRIGGERS)
        if self.function_cid is not None:
            kinds &= {*ABOUT_TRIGGERS, Kind.FUNCTION_CREATED}
        if self.user is not None or self.config_sig is not None or self.settler is not None:
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
