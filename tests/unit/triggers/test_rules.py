"""The rules for a new consent at their limits, and the changes of a deactivation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from each_row import each_row
from muniment.protocol.errors import Invalid, InvalidBody, InvalidConfig, InvalidTimestamp, NotTheOwner
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.rules import check_config, check_distinct, check_owner, deactivated, end_date_ms
from muniment.protocol.triggers.types import Trigger
from muniment.protocol.wire import TIMESTAMP_MS_MAX, decode_text

NOW_MS = 1_795_204_080_123
CHAINS = {1, 8453}
TOPIC = "0x" + "ab" * 32
ONE, TWO = Address("0x" + "1" * 40), Address("0x" + "2" * 40)


def sig(number: int) -> Signature:
    return Signature(f"0x{number:064x}{'1' * 64}1b")


def cron(**changes: Any) -> dict[str, Any]:
    return {"type": 0, "schedule": "0 * * * *", "delta": "1h", "endDate": 0, **changes}


def event(**changes: Any) -> dict[str, Any]:
    return {"type": 1, "chainId": 1, "contract": ONE, "topics": [], "delta": "1h", "endDate": 0, **changes}


def once(**changes: Any) -> dict[str, Any]:
    return {"type": 2, "delta": "1h", "endDate": 0, **changes}


ACCEPTED = {
    "never-ends": cron(),
    "never-ends-as-text": cron(endDate="0"),
    "a-millisecond-from-now": cron(endDate=NOW_MS + 1),
    "as-text": cron(endDate=str(NOW_MS + 1)),
    "the-last-time": cron(endDate=TIMESTAMP_MS_MAX),
    "52-weeks": cron(delta="52w"),
    "four-positions": event(topics=[[], [TOPIC] * 100, [], []]),
    "chain-as-text": event(chainId="8453"),
    "no-start": once(),
    "start-0": once(startDate=0, endDate=NOW_MS + 1),
    "start-in-the-past": once(startDate=1),
    "start-at-the-end": once(startDate=NOW_MS + 1, endDate=NOW_MS + 1),
    "start-without-an-end": once(startDate=TIMESTAMP_MS_MAX),
}


@each_row("config", ACCEPTED.values(), ids=ACCEPTED)
def test_a_config_within_the_rules_is_accepted(config: dict[str, Any]) -> None:
    check_config(config, NOW_MS, CHAINS)


REFUSED: dict[str, tuple[dict[str, Any], type[Invalid], str]] = {
    "now": (cron(endDate=NOW_MS), InvalidTimestamp, "/endDate"),
    "one": (cron(endDate=1), InvalidTimestamp, "/endDate"),
    "past-as-text": (cron(endDate=str(NOW_MS)), InvalidTimestamp, "/endDate"),
    "after-the-last-time": (cron(endDate=TIMESTAMP_MS_MAX + 1), InvalidTimestamp, "/endDate"),
    "schedule": (cron(schedule="x"), InvalidConfig, "/schedule"),
    "delta": (once(delta="53w"), InvalidConfig, "/delta"),
    "five-positions": (event(topics=[[]] * 5), InvalidConfig, "/topics"),
    "101-choices": (event(topics=[[], [TOPIC] * 101]), InvalidConfig, "/topics/1"),
    "chain": (event(chainId=10), InvalidConfig, "/chainId"),
    "start-after-the-end": (once(startDate=NOW_MS + 2, endDate=NOW_MS + 1), InvalidConfig, "/startDate"),
    "start-too-late": (once(startDate=TIMESTAMP_MS_MAX + 1), InvalidTimestamp, "/startDate"),
    "start-too-late-as-text": (once(startDate=str(2**255)), InvalidTimestamp, "/startDate"),
}


@each_row(("config", "kind", "pointer"), REFUSED.values(), ids=REFUSED)
def test_a_config_outside_the_rules_is_refused(config: dict[str, Any], kind: type[Invalid], pointer: str) -> None:
    with pytest.raises(kind) as refused:
        check_config(config, NOW_MS, CHAINS)
    assert type(refused.value) is kind
    assert [fault.pointer for fault in refused.value.faults] == [pointer]


@each_row(("end", "has_hint"), [(NOW_MS // 1000, True), (10**12 - 1, True), (10**12, False)])
def test_an_end_that_looks_like_seconds_is_hinted_at(end: int, *, has_hint: bool) -> None:
    with pytest.raises(InvalidTimestamp) as refused:
        check_config(cron(endDate=end), NOW_MS, CHAINS)
    assert (str(end * 1000) in refused.value.detail) is has_hint


def test_the_end_is_read_from_numbers_and_from_text() -> None:
    assert [end_date_ms(cron(endDate=end)) for end in (0, "0", 5, "5")] == [0, 0, 5, 5]


@each_row(
    ("owners", "signers"),
    [({ONE.raw}, set()), ({ONE.raw}, {TWO}), ({ONE.raw, TWO.raw}, {ONE}), ({ONE.raw, TWO.raw}, {ONE, TWO})],
    ids=["nobody", "another", "one-of-two-owners", "each-under-another-scheme"],
)
def test_a_deactivation_that_is_not_by_the_one_owner_is_refused(owners: set[bytes], signers: set[Address]) -> None:
    with pytest.raises(NotTheOwner):
        check_owner(owners, frozenset(signers))


@each_row("signers", [{ONE}, {ONE, TWO}])
def test_the_owner_may_deactivate_under_either_scheme(signers: set[Address]) -> None:
    check_owner({ONE.raw}, frozenset(signers))


def test_a_trigger_listed_twice_is_pointed_at() -> None:
    check_distinct([sig(1), sig(2), sig(3)])
    with pytest.raises(InvalidBody) as refused:
        check_distinct([sig(1), sig(2), sig(1)])
    assert refused.value.faults[0].pointer == "/triggerSigs/2"


def test_the_first_deactivation_stays() -> None:
    trigger = msgspec.convert(Trigger.example, Trigger, dec_hook=decode_text)
    ended = deactivated(trigger, sig(1))
    assert ended.deactivate_sig == sig(1)
    assert msgspec.structs.replace(ended, deactivate_sig=msgspec.UNSET) == trigger
    assert deactivated(ended, sig(2)) == ended
