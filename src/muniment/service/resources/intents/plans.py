"""The ways to find a page of intents of one generation: which indexes are walked, and which rows are tested.

Every index ends with `seq`, the order of commits, so the rows of one filter are read in that order. Intents of the
second generation have several users and types of operations, in tables of their own: there a filter walks a join.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from muniment.protocol.intents.lifecycle import CAN_EXPIRE
from muniment.protocol.intents.types import FIRST, Generation
from muniment.service.resources.intents import store
from muniment.service.resources.intents.store import EARLY, ENDED, STATUS_AS_READ
from muniment.service.storage.listing import Listed, Part, unindexed
from muniment.service.storage.sql import Condition, placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.resources.intents.queries import IntentQuery
    from muniment.service.resources.intents.run_outputs import Outputs

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


@dataclass(frozen=True, slots=True)
class Plan:
    """The ways to find a page of one generation."""

    # The tables and conditions that one index answers, in order; whether each row is tested for others besides.
    tables: LiteralString
    walked: tuple[Condition, ...]
    tests_rows: bool
    # The rows to choose from. Only the first part is a walk.
    parts: tuple[Part, ...]
    # Filters that may select few rows, to be tried before and after a walk. The filters of one list select different
    # rows, and every row of the listing is among these.
    tried_before: list[tuple[Filter, ...]]
    tried_after: list[tuple[Filter, ...]]
    # All conditions, to test the rows of such a list.
    everything: tuple[Condition, ...]

    def parts_of(self, few: tuple[Filter, ...]) -> tuple[Part, ...]:
        """All rows of filters that select few, each tested for every condition of the query."""
        return tuple(Part(self.everything, each.index, each.tables) for each in few)


def planned(
    query: IntentQuery, generation: Generation, ended: tuple[bytes, bytes], outputs: Outputs | None = None
) -> Plan:
    """The plan for `query`; `ended` are the parameters of `ENDED`.

    `outputs` is what the run of the query made; None for a query without a run.
    """
    own = Condition("generation = ?", (generation,))
    equal, op = _equal(query, generation), _op(query, generation)
    deadline = _deadline(query, generation)
    if outputs is not None:
        status = (Condition(f"{STATUS_AS_READ} = ?", (*ended, query.status)),) if query.status else ()
        of_trigger = Condition("trigger_sig = ?", (outputs.trigger_sig,))
        return _of_outputs(outputs.hashes, unindexed(own, of_trigger, *_tests(*equal, *op, *deadline), *status))
    standing = (_plain(generation, "standing = ?", query.status),) if query.status else ()
    status = (Condition(f"{STATUS_AS_READ} = ?", (*ended, query.status)),) if query.status else ()
    unswept = tuple(Filter(_INTENTS, each, each) for each in _unswept(query, ended))
    near, tested = equal[:1], _tests(*equal[1:], *deadline)  # the most selective index
    tried_after = [equal[1:2], equal[2:], op]
    parts: tuple[Part, ...] = ()
    if standing and all(each.has_standing for each in near):
        tested = (*tested, *_tests(*op), *(status if unswept else ()))
        parts = tuple(Part((*unindexed(own), *_tests(*near), *unindexed(*tested)), each.index) for each in unswept)
        near = (*near, *standing)
    elif near:
        tested, tried_after = (*tested, *_tests(*op), *status), [*tried_after, (*standing, *unswept)]
    else:
        near, tried_after = op, []
    tables, walked = near[0].tables if near else _INTENTS, tuple(each.index for each in near) or (own,)
    return Plan(
        tables, walked, tests_rows=bool(tested),
        parts=(Part((*walked, *unindexed(*tested)), tables=tables), *parts),
        tried_before=[deadline] if deadline else [], tried_after=[each for each in tried_after if each],
        everything=unindexed(own, *_tests(*equal, *op, *deadline), *status),
    )  # fmt: skip


def _of_outputs(outputs: Sequence[bytes], everything: tuple[Condition, ...]) -> Plan:
    """The plan for the intents with these hashes, each tested for every condition of the query."""
    few = Condition(f"hash IN ({placeholders(len(outputs))})", tuple(outputs))
    return Plan(_INTENTS, (), tests_rows=False, parts=(Part(everything, few),), tried_before=[], tried_after=[],
                everything=everything)  # fmt: skip


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


def _tests(*filters: Filter) -> tuple[Condition, ...]:
    return tuple(each.test for each in filters)


def _unswept(query: IntentQuery, ended: tuple[bytes, bytes]) -> tuple[Condition, ...]:
    """The intents that have the status of the query now, although their `standing` is another.

    Some expired after the last sweep; some were marked by a sweep with another time or grace. A final status stays.
    """
    if query.status == "expired":
        return (Condition(ENDED, ended),)
    return (Condition(EARLY, store.early(query.status, ended)),) if query.status in CAN_EXPIRE else ()
