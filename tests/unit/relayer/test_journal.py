"""The journal of a relayer: what it remembers, whom it lets in, and which files it refuses."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.runs.types import TriggerType
from muniment.relayer.journal.sqlite import Journal, JournalError, State, event_key
from muniment.relayer.schedule.due import Due, Gap, Occurrence, Seen

SIG = Signature.parse("0x" + "11" * 64 + "1b")
OTHER = Signature.parse("0x" + "12" * 64 + "1b")
ENDING = Signature.parse("0x" + "13" * 64 + "1b")
HASH = b"\x05" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relayer.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with Journal.open(path) as opened:
        yield opened


def tick(at_ms: int, sig: Signature = SIG, kind: TriggerType = 0) -> Due:
    return Due(sig, kind, time_payload(at_ms), at_ms, at_ms + 60)


def event(block: str, position: int = 1) -> Due:
    log = EventPayload(
        1, Bytes32.parse("0x" + block * 32), 7, Address.parse("0x" + "ab" * 20), (), HexString.parse("0x")
    )
    occurrence = Occurrence(log, 100, 1, Bytes32.parse("0x" + "04" * 32), position)
    return Due(SIG, 1, event_payload(log), 1_000, 2_000, occurrence)


def test_a_run_is_planned_then_ran_then_published(journal: Journal) -> None:
    journal.see([SIG], 90)
    journal.plan([tick(100)], 101)
    [planned] = journal.unfinished(State.PLANNED)
    assert (planned.sig, planned.kind, planned.payload, planned.until_ms) == (SIG, 0, time_payload(100), 160)
    assert journal.known(SIG) == (Seen(90, 0), 0, 0, None)

    journal.ran(tick(100), "intents", b"bytes", HASH, 102)
    assert journal.unfinished(State.PLANNED) == []
    [ran] = journal.unfinished(State.RAN)
    assert (ran.body, ran.result, ran.hash) == (b"bytes", "intents", HASH)
    assert journal.known(SIG) == (Seen(90, 100), 0, 0, None)

    journal.published(ran, 103)
    assert journal.unfinished(State.RAN) == []
    [published] = journal.runs_of(SIG)
    assert (published.state, published.body, published.hash) == (State.PUBLISHED, b"", HASH)


def test_the_disk_has_each_write_at_its_end_but_that_of_a_published_run(journal: Journal) -> None:
    def is_flushed() -> bool:
        (level,) = journal._connection.execute("PRAGMA synchronous").fetchone()
        return level == 2  # FULL

    journal.plan([tick(100)], 1)
    assert is_flushed()
    journal.ran(tick(100), "nothing", b"x", HASH, 2)
    assert is_flushed()
    journal.published(journal.unfinished(State.RAN)[0], 3)
    assert not is_flushed()
    journal.plan([tick(200)], 4)
    assert is_flushed()


def test_a_planned_run_that_is_planned_again_stays_as_it_is(journal: Journal) -> None:
    journal.plan([tick(100)], 101)
    journal.ran(tick(100), "nothing", b"first", HASH, 102)
    journal.plan([tick(100)], 103)
    assert [each.body for each in journal.runs_of(SIG)] == [b"first"]


def test_a_result_needs_a_plan_and_is_never_replaced(journal: Journal) -> None:
    with pytest.raises(AssertionError, match="planned"):
        journal.ran(tick(100), "nothing", b"first", HASH, 102)
    journal.plan([tick(100)], 101)
    journal.ran(tick(100), "nothing", b"first", HASH, 102)
    with pytest.raises(AssertionError, match="planned"):
        journal.ran(tick(100), "nothing", b"second", HASH, 103)
    assert [each.body for each in journal.runs_of(SIG)] == [b"first"]


def test_a_planned_run_makes_its_trigger_seen_from_its_time_on(journal: Journal) -> None:
    journal.see([SIG], 110)
    journal.plan([tick(100)], 111)
    known = journal.known(SIG)
    assert known is not None
    assert known.seen == Seen(100, 0)


def test_a_trigger_is_seen_once(journal: Journal) -> None:
    journal.see([SIG], 110)
    journal.see([SIG, OTHER], 120)
    known = [journal.known(each) for each in (SIG, OTHER, ENDING)]
    assert [None if each is None else each.seen.since_ms for each in known] == [110, 120, None]


def test_a_gap_gives_up_the_planned_ticks_in_it(journal: Journal) -> None:
    journal.plan([tick(100), tick(200), tick(300), tick(200, OTHER)], 101)
    journal.note(Gap(SIG, 0, time_payload(200), 2, 100, 200), b"note", HASH, 250)
    assert [(each.sig, each.timestamp_ms) for each in journal.unfinished(State.PLANNED)] == [(OTHER, 200), (SIG, 300)]
    [noted] = journal.unfinished(State.RAN)
    assert (noted.timestamp_ms, noted.result, noted.body) == (200, "missed", b"note")
    known = journal.known(SIG)
    assert known is not None
    assert known.seen.decided_ms == 200


def test_published_ticks_are_forgotten_when_a_later_one_is_published(journal: Journal) -> None:
    for at_ms in (100, 200, 300):
        journal.plan([tick(at_ms)], at_ms)
        journal.ran(tick(at_ms), "nothing", b"x", HASH, at_ms)
    for entry in journal.unfinished(State.RAN)[:2]:
        journal.published(entry, 400)
    assert [(each.timestamp_ms, each.state) for each in journal.runs_of(SIG)] == [
        (300, State.RAN), (200, State.PUBLISHED),
    ]  # fmt: skip


def test_a_single_run_has_one_entry_whatever_its_payload(journal: Journal) -> None:
    journal.plan([tick(100, kind=2)], 101)
    journal.plan([tick(200, kind=2)], 101)
    assert [each.timestamp_ms for each in journal.runs_of(SIG)] == [100]
    assert journal.entry(SIG, 2, time_payload(300)) == journal.runs_of(SIG)[0]


def test_an_event_is_found_in_whichever_block_it_was(journal: Journal) -> None:
    first, moved, other = event("01"), event("02"), event("01", position=2)
    journal.plan([first], 1)
    journal.ran(first, "nothing", b"x", HASH, 2)
    assert moved.event is not None
    assert other.event is not None
    assert [each.payload for each in journal.runs_of_event(SIG, event_key(moved.event))] == [first.payload]
    assert journal.entry(SIG, 1, moved.payload) is None
    assert journal.runs_of_event(SIG, event_key(other.event)) == []
    journal.published(journal.unfinished(State.RAN)[0], 3)
    journal.plan([moved], 4)
    assert len(journal.runs_of_event(SIG, event_key(moved.event))) == 2


def test_many_events_of_one_trigger_keep_no_other_waiting(journal: Journal) -> None:
    journal.plan([tick(at_ms, SIG, 1) for at_ms in range(100, 120)], 200)
    journal.plan([tick(at_ms, OTHER, 1) for at_ms in (150, 151)], 200)
    journal.plan([tick(90, OTHER, 0)], 200)
    found = [(each.sig, each.timestamp_ms) for each in journal.planned_events(5)]
    assert found == [(SIG, 100), (OTHER, 150), (SIG, 101), (OTHER, 151), (SIG, 102)]


def test_the_end_of_a_trigger_is_remembered_for_ever(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.see([SIG, OTHER], 100)
        journal.end(SIG, ENDING, 200)
        journal.end(SIG, OTHER, 300)
        journal.see([SIG], 400)
    with Journal.open(path) as journal:
        known = journal.known(SIG)
        assert known is not None
        assert known.ended_ms == 200
        assert journal.unended() == [OTHER]


def test_failures_and_facts_are_kept(path: Path) -> None:
    with Journal.open(path) as journal:
        journal.see([SIG], 100)
        journal.failed(SIG, 3, 5_000)
        assert journal.fact("relayer") is None
        journal.keep_fact("relayer", "0x1")
        journal.keep_fact("relayer", "0x2")
    with Journal.open(path) as journal:
        assert journal.known(SIG) == (Seen(100, 0), 3, 5_000, None)
        assert journal.fact("relayer") == "0x2"


def test_a_planned_run_can_be_given_up_and_no_other(journal: Journal) -> None:
    journal.plan([tick(100), tick(200)], 1)
    journal.ran(tick(200), "nothing", b"x", HASH, 2)
    journal.give_up(tick(100), is_decided=False)
    journal.give_up(tick(200), is_decided=False)
    assert [each.timestamp_ms for each in journal.runs_of(SIG)] == [200]
    journal.plan([tick(300)], 3)
    journal.give_up(tick(300), is_decided=True)
    known = journal.known(SIG)
    assert known is not None
    assert known.seen.decided_ms == 300


@pytest.mark.programs
def test_one_process_writes_and_others_read(path: Path) -> None:
    opening = (
        "import sys, pathlib\nfrom muniment.relayer.journal.sqlite import Journal\n"
        "with Journal.open(pathlib.Path(sys.argv[1])): pass"
    )
    with Journal.open(path) as journal:
        journal.see([SIG], 100)
        with pytest.raises(JournalError, match="another relayer has the journal"), Journal.open(path):
            pass
        refused = subprocess.run(
            [sys.executable, "-c", opening, str(path)], capture_output=True, text=True, check=False
        )
        assert "another relayer has the journal" in refused.stderr
        with Journal.reading(path) as reading:
            assert reading.known(SIG) is not None
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reading.see([OTHER], 1)
    assert subprocess.run([sys.executable, "-c", opening, str(path)], check=False).returncode == 0


def test_only_its_owner_can_read_the_journal(path: Path) -> None:
    with Journal.open(path):
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_a_journal_of_a_later_format_is_refused_untouched(path: Path) -> None:
    with Journal.open(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"format 2.*later release.*Run that release"), Journal.open(path):
        pass
    with pytest.raises(JournalError, match="format 2"), Journal.reading(path):
        pass
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_refused_untouched(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE others (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="database of another program"), Journal.open(path):
        pass
    assert path.read_bytes() == before
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(JournalError, match="cannot use the journal"), Journal.open(path):
        pass


def test_a_missing_or_empty_journal_cannot_be_read(path: Path) -> None:
    with pytest.raises(JournalError, match="no journal at"), Journal.reading(path):
        pass
    path.touch()
    with pytest.raises(JournalError, match="is empty"), Journal.reading(path):
        pass
    assert not path.with_name("relayer.db.lock").exists()
