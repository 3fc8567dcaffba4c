from __future__ import annotations

import pytest

from each_row import each_row
from muniment.protocol.errors import InvalidIntent, StatusConflict
from muniment.protocol.intents.lifecycle import (
    INTENT_MOVES,
    PROPOSAL_MOVES,
    Diagram,
    Moment,
    check_move,
    passed_until,
    reachable,
    status_as_read,
)

DEADLINE = 1_795_290_480
GRACE_S = 3_600
# As the interface has it, typed a second time: one row for each status.
INTENT = {
    "created": "enqueued discarded",
    "enqueued": "submitted discarded",
    "discarded": "",
    "submitted": "succeeded failed",
    "succeeded": "",
    "failed": "",
    "expired": "",
}
INTENT_FAR = {
    **INTENT,
    "created": "enqueued discarded submitted succeeded failed",
    "enqueued": "submitted discarded succeeded failed",
}
PROPOSAL = {
    "received": "accepted rejected expired",
    "accepted": "submitted rejected expired",
    "rejected": "",
    "submitted": "succeeded failed expired",
    "succeeded": "",
    "failed": "",
    "expired": "",
}
PROPOSAL_FAR = {
    **PROPOSAL,
    "received": "accepted rejected expired submitted succeeded failed",
    "accepted": "submitted rejected expired succeeded failed",
}


def moves(diagram: Diagram, table: dict[str, str], name: str, *, several: bool) -> list[object]:
    """Every pair of statuses, and whether the table has it."""
    return [
        pytest.param(
            diagram, status, wanted, several, wanted == status or wanted in row.split(), id=f"{name}-{status}-{wanted}"
        )
        for status, row in table.items()
        for wanted in table
    ]


@each_row(
    ("diagram", "status", "wanted", "several", "allowed"),
    [
        *moves(INTENT_MOVES, INTENT, "intent", several=False),
        *moves(INTENT_MOVES, INTENT_FAR, "intent-far", several=True),
        *moves(PROPOSAL_MOVES, PROPOSAL, "proposal", several=False),
        *moves(PROPOSAL_MOVES, PROPOSAL_FAR, "proposal-far", several=True),
    ],
)
def test_a_status_moves_along_the_diagram(
    diagram: Diagram, status: str, wanted: str, *, several: bool, allowed: bool
) -> None:
    if allowed:
        check_move(diagram, status, wanted, several=several)
    else:
        with pytest.raises(StatusConflict) as caught:
            check_move(diagram, status, wanted, several=several)
        assert [fault.pointer for fault in caught.value.faults] == ["/status"]


@each_row("diagram", [INTENT_MOVES, PROPOSAL_MOVES])
def test_a_status_never_comes_back(diagram: Diagram) -> None:
    assert all(status not in reachable(diagram, status) for status in diagram)


@each_row(
    ("status", "wanted", "several", "named"),
    [
        ("created", "failed", False, "enqueued or discarded"),
        ("enqueued", "created", True, "submitted or discarded or succeeded or failed"),
        ("expired", "enqueued", False, "final"),
    ],
)
def test_a_conflict_names_the_moves_that_are_allowed(status: str, wanted: str, named: str, *, several: bool) -> None:
    with pytest.raises(StatusConflict) as caught:
        check_move(INTENT_MOVES, status, wanted, several=several)

    assert f"the status is {status}" in caught.value.detail
    assert named in caught.value.detail


@each_row("wanted", ["", "Created", "received", "done", "created "])
def test_an_unknown_status_is_refused(wanted: str) -> None:
    with pytest.raises(InvalidIntent) as caught:
        check_move(INTENT_MOVES, "created", wanted, several=True)

    assert [fault.pointer for fault in caught.value.faults] == ["/status"]


AT_DEADLINE_MS = DEADLINE * 1_000
AFTER_GRACE_MS = AT_DEADLINE_MS + GRACE_S * 1_000


@each_row(
    ("standing", "now_ms", "read"),
    [
        *[(status, AT_DEADLINE_MS - 1, status) for status in INTENT],
        ("created", AT_DEADLINE_MS, "expired"),
        ("enqueued", AT_DEADLINE_MS, "expired"),
        ("submitted", AT_DEADLINE_MS, "submitted"),
        ("submitted", AFTER_GRACE_MS - 1, "submitted"),
        ("submitted", AFTER_GRACE_MS, "expired"),
        *[(status, AFTER_GRACE_MS * 2, status) for status in ("discarded", "succeeded", "failed", "expired")],
    ],
)
def test_time_expires_a_status_that_is_not_final(standing: str, now_ms: int, read: str) -> None:
    assert status_as_read(standing, DEADLINE, Moment(now_ms, GRACE_S)) == read


@each_row("status", ["created", "enqueued", "submitted"])
def test_a_deadline_beyond_all_time_never_passes(status: str) -> None:
    assert status_as_read(status, 2**256 - 1, Moment(8_640_000_000_000_000, GRACE_S)) == status


def test_a_deadline_of_zero_has_passed() -> None:
    assert status_as_read("created", 0, Moment(0, GRACE_S)) == "expired"


def test_a_deadline_passes_with_its_second() -> None:
    assert [passed_until(DEADLINE * 1_000 + ms) - DEADLINE for ms in (-1, 0, 999, 1_000)] == [-1, 0, 0, 1]
