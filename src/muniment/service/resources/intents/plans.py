"""The ways to find a page of intents of one generation: which indexes are walked, and which rows are tested.

Every index ends with `seq`, the order of commits, so the rows of one filter are read in that order. Intents of the
second generation have several users and types of operations, in tables of their own: there a filter walks a join.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from muniment.protocol.intents.lifecycle import CAN_EXPIRE
from muniment.protocol.intents.types import FIRST, Generation
from muniment.service.resources.intents import store
from muniment.service.resources.intents.store import EARLY, ENDED, STATUS_AS_READ
from muniment.service.storage.listing import Listed, Part, unindexed
from muniment.service.storage.sql import Condition

if TYPE_CHECKING:
    from muniment.service.resources.intents.queries import IntentQuery

_INTENTS: Final = "intents"
LISTED: Final = Listed(
    _INTENTS,
    columns="seq, generation, settler, trigger_sig, user_address, op, deadline, status, chain_status, standing, "
    "created_at_ms",
)
# With USING, `seq` is the number in the table on the left, whose index has the rows in order.
_BY_USER: Final = "intent_users JOIN intents USING (seq)"
_BY_OP: Final = "intent_ops JOIN intents USING (seq)"
# The inner SELECT names its columns anew, so that `seq` is the number of the row that is tested.
_HAS_USER: Final = (
    "EXISTS (SELECT 1 FROM (SELECT seq AS intent_seq, address FROM intent_users) users "
    "WHERE users.address = ? AND users.intent_seq = seq)"
)
_HAS_OP: Final = (
    "EXISTS (SELECT 1 FROM (SELECT seq AS intent_seq, op_type FROM intent_ops) ops "
    "WHERE ops.op_type = ? AND ops.intent_seq = seq)"
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the condition that an index of `tables` answers, and the same condition on a row of the listing."""

    tables: LiteralString
    index: Condition
    test: Condition
    # Whether another index has the rows of the filter and of one `standing`.
    has_standing: bool = False


class Plan(NamedTuple):
    """The ways to find a page of one generation."""

    # The rows to choose from. The first part is a walk along an index, the others are few rows.
    parts: tuple[Part, ...]
    # Whether the walk tests rows for filters that its index does not answer, and so may read many rows for a page.
    tests_rows: bool
    # Lists of parts that may have few rows. If one has, it is read in place of a walk that `tests_rows` (0.1 ms, where
    # the walk takes 0.8 s among a million intents): every row of the listing is in it. Any other walk is short only if
    # one has: these are the rows whose `standing` is wrong.
    tried: list[tuple[Part, ...]]


def planned(query: IntentQuery, generation: Generation, ended: tuple[bytes, bytes]) -> Plan:
    """The plan for `query`; `ended` are the parameters of `ENDED`."""
    own = Condition("generation = ?", (generation,))
    equal, op, deadline = _equal(query, generation), _op(query, generation), _deadline(query, generation)
    standing = (_plain(generation, "standing = ?", query.status),) if query.status else ()
    status = (Condition(f"{STATUS_AS_READ} = ?", (*ended, query.status)),) if query.status else ()
    near = equal[:1]  # the most selective index
    by_standing = bool(standing) and all(each.has_standing for each in near)
    walked = (*near, *standing) if by_standing else near or op
    others = [each for each in (*equal, *op, *deadline) if each not in walked]
    tests_rows = bool(others) or (bool(standing) and not by_standing)

    everything = unindexed(own, *(each.test for each in (*equal, *op, *deadline)), *status)
    missed, wrong = ([Part(everything, each) for each in kind] for kind in _unswept(query, ended))
    tested = (*(each.test for each in others), *(status if tests_rows or missed else ()))
    index = tuple(each.index for each in walked) or (own,)
    walk = Part((*index, *unindexed(*tested)), tables=walked[0].tables if walked else _INTENTS)
    parts = (walk, *missed) if by_standing else (walk,)
    if not tests_rows:
        return Plan(parts, tests_rows, tried=[(*missed, *wrong)] if missed else [])
    tried = list[tuple[Part, ...]]()
    tried += [(Part(everything, each.index, each.tables),) for each in (*equal, *op, *deadline)]
    if standing:
        tried.append((Part(everything, standing[0].index), *missed))
    return Plan(parts, tests_rows, tried)


def _equal(query: IntentQuery, generation: Generation) -> tuple[Filter, ...]:
    """The filters on one value of a signature or an address, the most selective first."""
    found = list[Filter]()
    if query.config_sig is not None:
        found.append(_plain(generation, "trigger_sig = ?", query.config_sig.raw))
    if query.user is not None:
        found.append(_user(query.user.raw, generation))
    if query.settler is not None:
        found.append(_plain(generation, "settler = ?", query.settler.raw, has_standing=True))
    return tuple(found)


def _user(address: bytes, generation: Generation) -> Filter:
    if generation is FIRST:
        condition = Condition("user_address = ?", (address,))
        return Filter(_INTENTS, condition, condition, has_standing=True)
    return Filter(_BY_USER, Condition("address = ?", (address,)), Condition(_HAS_USER, (address,)))


def _op(query: IntentQuery, generation: Generation) -> tuple[Filter, ...]:
    if query.op is None:
        return ()
    if generation is FIRST:
        condition = Condition("op = ?", (query.op,))
        return (Filter(_INTENTS, condition, condition),)
    return (Filter(_BY_OP, Condition("op_type = ?", (query.op,)), Condition(_HAS_OP, (query.op,))),)


def _deadline(query: IntentQuery, generation: Generation) -> tuple[Filter, ...]:
    if query.deadline_after is None and query.deadline_before is None:
        return ()
    first, last = query.deadlines[0], query.deadlines[-1]
    return (_plain(generation, "deadline >= ? AND deadline <= ?", first.to_bytes(32), last.to_bytes(32)),)


def _plain(generation: Generation, sql: LiteralString, *values: object, has_standing: bool = False) -> Filter:
    """A filter on a column that both generations have; its index begins with the generation."""
    index = Condition(f"generation = ? AND {sql}", (generation, *values))
    return Filter(_INTENTS, index, Condition(sql, values), has_standing)


def _unswept(query: IntentQuery, ended: tuple[bytes, bytes]) -> tuple[list[Condition], list[Condition]]:
    """The intents whose `standing` is not the status of the query though their status is, and the other way round.

    Some expired after the last sweep; some were marked by a sweep with another time or grace. A final status stays.
    """
    expired = [Condition(ENDED, ended)]
    if query.status == "expired":
        return expired, [Condition(EARLY, store.early(each, ended)) for each in CAN_EXPIRE]
    if query.status in CAN_EXPIRE:
        return [Condition(EARLY, store.early(query.status, ended))], expired
    return [], []
