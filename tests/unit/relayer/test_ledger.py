"""The notes that say once an hour that events of a trigger are not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, event_payload
from muniment.protocol.runs.texts import Engine
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.figures import Figures
from muniment.relayer.journal.entries import Ownership, State
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.ledger import Ledger
from muniment.relayer.runner.content import Content
from muniment.relayer.schedule.due import Due

SIG, OTHER = (Signature.parse("0x" + pair * 64 + "1b") for pair in ("11", "22"))
HOUR_MS = 3_600_000
NOW_MS = 1_795_262_400_000


def due(number: int, sig: Signature = SIG) -> Due:
    log = EventPayload(
        8453, Bytes32.parse(f"0x{number:064x}"), 0, Address.parse("0x" + "cc" * 20), (), HexString.parse("0x")
    )
    return Due(sig, EVENT, event_payload(log), NOW_MS, NOW_MS)


def ledger(journal: Journal) -> Ledger:
    caps: Any = None
    return Ledger(journal=journal, caps=caps, figures=Figures(), engine=Engine("a test"))


def told(journal: Journal) -> list[tuple[Signature, str, str, str]]:
    """Trigger, result, reason and text of each note that is to be published."""
    found: list[tuple[Signature, str, str, str]] = []
    for entry in journal.unfinished(State.RAN):
        run, _ = Content.read(entry.body)
        assert run.reason is not None
        found.append((entry.sig, run.result, run.reason.code, run.reason.text))
    return found


@pytest.mark.parametrize(("code", "result"), [("nodes-differ", "missed"), ("run-cap", "skipped")])
def test_events_that_are_not_run_are_told_once_an_hour_also_over_a_restart(
    tmp_path: Path, code: Any, result: str
) -> None:
    path = tmp_path / "relayer.db"
    with Journal.open(path) as journal:
        journal.see([Ownership(sig, Address.parse("0x" + "aa" * 20), b"f") for sig in (SIG, OTHER)], NOW_MS)
        ledger(journal).tell(due(1), code, "1 event", NOW_MS)
        ledger(journal).tell(due(2), code, "2 events", NOW_MS + HOUR_MS - 1)
        assert told(journal) == [(SIG, result, code, "1 event")]
        ledger(journal).tell(due(1, OTHER), code, "another trigger", NOW_MS)
        assert len(told(journal)) == 2
    with Journal.open(path) as journal:
        ledger(journal).tell(due(3), code, "3 events", NOW_MS + HOUR_MS - 1)
        assert len(told(journal)) == 2
        ledger(journal).tell(due(4), code, "4 events", NOW_MS + HOUR_MS)
        assert [text for sig, _, _, text in told(journal) if sig == SIG] == ["1 event", "4 events"]
        ledger(journal).tell(due(5), code, "5 events", NOW_MS + 2 * HOUR_MS - 1)
        ledger(journal).tell(due(4), code, "known already", NOW_MS + 3 * HOUR_MS)
        assert len(told(journal)) == 3
