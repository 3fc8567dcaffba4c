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
from muniment.relayer.journal.entries import Ownership, State, event_key
from muniment.relayer.journal.files import JournalError
from muniment.relayer.journal.sqlite import Journal
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


def event(block: str, ordinal: int = 1, *, index: int = 7, sig: Signature = SIG, at_ms: int = 1_000) -> Due:
    log = EventPayload(
        1, Bytes32.parse("0x" + block * 32), index, Address.parse("0x" + "ab" * 20), (), HexString.parse("0x")
    )
    occurrence = Occurrence(log, 100, at_ms // 1_000, Bytes32.parse("0x" + "04" * 32), ordinal)
    return Due(sig, 1, event_payload(log), at_ms, at_ms + 1_000, occurrence)


def events(sig: Signature, start: int, count: int) -> list[Due]:
    """Events of a trigger, one a millisecond."""
    return [event("01", n, index=n, sig=sig, at_ms=n) for n in range(start, start + count)]


def see(journal: Journal, now_ms: int, *sigs: Signature, signer: int = 1, function: bytes = b"f") -> None:
    journal.see([Ownership(each, Address.parse(f"0x{signer:040x}"), function) for each in sigs], now_ms)


def key(due: Due) -> bytes:
    assert due.event is not None
    return event_key(due.event.log, due.event.transaction_hash.raw, due.event.ordinal)


def waiting(journal: Journal, now_ms: int = 5_000, count: int = 100, each: int = 100) -> list[tuple[Signature, int]]:
    return [(entry.sig, entry.timestamp_ms) for entry in journal.waiting_events(count, each, now_ms)]


def test_a_run_is_planned_then_ran_then_published(journal: Journal) -> None:
    see(journal, 90, SIG)
    journal.plan([tick(100)], 101)
    [planned] = journal.unfinished(State.PLANNED)
    assert (planned.sig, planned.kind, planned.payload, planned.until_ms) == (SIG, 0, time_payload(100), 160)
    assert journal.known(SIG) == (Seen(90, 0), 0, 0, None, 0)

    journal.ran(tick(100), "intents", b"bytes", HASH, 102)
    assert journal.count(State.PLANNED) == 0
    [ran] = journal.unfinished(State.RAN)
    assert (ran.body, ran.result, ran.hash) == (b"bytes", "intents", HASH)
    assert journal.known(SIG) == (Seen(90, 100, sent_ms=102), 0, 0, None, 0)

    journal.published(ran, 103)
    assert journal.count(State.RAN) == 0
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
    journal.published(next(journal.unfinished(State.RAN)), 3)
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
    see(journal, 110, SIG)
    journal.plan([tick(100)], 111)
    known = journal.known(SIG)
    assert known is not None
    assert known.seen == Seen(100, 0)


def test_a_trigger_is_seen_once(journal: Journal) -> None:
    see(journal, 110, SIG)
    see(journal, 120, SIG, OTHER)
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
    for entry in [*journal.unfinished(State.RAN)][:2]:
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
    first, moved, other = event("01"), event("02", index=3), event("01", ordinal=2, index=8)
    journal.plan([first], 1)
    journal.ran(first, "nothing", b"x", HASH, 2)
    assert [each.payload for each in journal.runs_of_event(SIG, key(moved))] == [first.payload]
    assert journal.entry(SIG, 1, moved.payload) is None
    assert journal.runs_of_event(SIG, key(other)) == []
    journal.published(next(journal.unfinished(State.RAN)), 3)
    journal.plan([moved], 4)
    assert len(journal.runs_of_event(SIG, key(moved))) == 2


def test_functions_and_then_their_signers_take_turns_whoever_has_most(journal: Journal) -> None:
    third, fourth = (Signature.parse("0x" + f"{n:02x}" * 64 + "1b") for n in (0x14, 0x15))
    see(journal, 1, SIG, signer=1)
    see(journal, 1, OTHER, signer=2)
    see(journal, 1, third, signer=2)
    see(journal, 1, fourth, signer=1, function=b"g")
    journal.plan(events(SIG, 100, 600), 200)
    journal.plan([*events(OTHER, 150, 2), *events(third, 140, 1), *events(fourth, 160, 2)], 200)
    journal.plan([tick(90, OTHER, 0)], 200)
    assert waiting(journal, now_ms=700, count=7) == [
        (SIG, 100), (fourth, 160), (third, 140), (fourth, 161), (SIG, 101), (OTHER, 150), (SIG, 102),
    ]  # fmt: skip
    of_each = [sig for sig, _ in waiting(journal, now_ms=700, each=2)]
    assert [of_each.count(sig) for sig in (SIG, OTHER, third, fourth)] == [2, 1, 1, 2]


def test_neither_600_events_of_a_trigger_that_rests_nor_600_without_a_result_are_in_the_way(journal: Journal) -> None:
    third = Signature.parse("0x" + "14" * 64 + "1b")
    see(journal, 1, SIG, OTHER)
    journal.plan(events(SIG, 100, 600), 200)
    journal.plan(events(OTHER, 100, 600), 200)
    journal.failed(SIG, 3, 2_000)
    for due in events(OTHER, 100, 600):
        journal.tried(due, "no-block", 1_500)
    see(journal, 1, third)
    journal.plan(events(third, 900, 1), 200)
    assert waiting(journal, now_ms=1_000, count=10) == [(third, 900)]
    assert waiting(journal, now_ms=1_500)[:3] == [(third, 900), (OTHER, 500), (OTHER, 501)]
    assert [(each.tries, each.answer) for each in journal.waiting_events(2, 2, 1_500)] == [(0, ""), (1, "no-block")]
    overdue = journal.overdue_events(1_000, 1_500)
    assert {each.sig for each in overdue} == {SIG, OTHER}
    assert max(each.timestamp_ms for each in overdue) < 500


@pytest.mark.parametrize("how", ["rests", "tried", "waits"])
def test_one_event_of_each_of_600_triggers_of_one_wallet_is_not_in_the_way(journal: Journal, how: str) -> None:
    sigs = [Signature.parse(f"0x{n:064x}{1:064x}1b") for n in range(1, 601)]
    dues = [event("01", n, index=n, sig=sig, at_ms=n) for n, sig in enumerate(sigs)]
    see(journal, 1, *sigs, signer=1)
    see(journal, 1, SIG, signer=2)
    journal.plan(dues, 700)
    for due in dues:
        if how == "rests":
            journal.failed(due.sig, 3, 2_000)
        elif how == "tried":
            journal.tried(due, "no-block", 2_000)
    journal.plan(events(SIG, 700, 1), 700)
    assert (SIG, 700) in waiting(journal, now_ms=900, count=2)
    assert len(waiting(journal, now_ms=900, count=500, each=8)) == (9 if how == "waits" else 1)


def test_a_rest_that_a_clock_set_far_ahead_is_none(journal: Journal) -> None:
    see(journal, 1, SIG)
    journal.plan(events(SIG, 100, 1), 200)
    journal.failed(SIG, 3, 300 + 2 * 3_600_000)
    assert waiting(journal, now_ms=300) == [(SIG, 100)]


def test_the_planned_runs_of_a_trigger_are_given_up_together(journal: Journal) -> None:
    journal.plan([*events(SIG, 100, 3), *events(OTHER, 100, 1)], 200)
    journal.ran(event("01", 100, index=100, at_ms=100), "nothing", b"x", HASH, 2)
    assert sorted(journal.planned_triggers()) == sorted([SIG, OTHER])
    journal.give_up_all(SIG)
    assert journal.planned_triggers() == [OTHER]
    assert len(journal.runs_of(SIG)) == 1


def test_logs_go_with_the_runs_of_a_trigger_that_ended_and_may_come_back(journal: Journal) -> None:
    runs = [*events(SIG, 100, 3), *events(OTHER, 100, 1)]
    journal.plan(runs, 200)
    journal.forget_events(1, 101)
    journal.give_up_all(SIG)
    assert journal.triggers_of_event(runs[0].payload) == {OTHER}
    assert journal.triggers_of_event(runs[1].payload) is None
    journal.plan(runs, 200)
    assert [each.payload for each in journal.runs_of(SIG)] == [each.payload for each in reversed(runs[:3])]


def test_the_end_of_a_trigger_is_remembered_for_ever(path: Path) -> None:
    with Journal.open(path) as journal:
        see(journal, 100, SIG, OTHER)
        journal.end(SIG, ENDING, 200)
        journal.end(SIG, OTHER, 300)
        see(journal, 400, SIG)
    with Journal.open(path) as journal:
        known = journal.known(SIG)
        assert known is not None
        assert known.ended_ms == 200
        assert journal.unended() == [OTHER]


def test_failures_and_facts_are_kept(path: Path) -> None:
    with Journal.open(path) as journal:
        see(journal, 100, SIG)
        journal.failed(SIG, 3, 5_000)
        assert journal.fact("relayer") is None
        journal.keep_fact("relayer", "0x1")
        journal.keep_fact("relayer", "0x2")
    with Journal.open(path) as journal:
        assert journal.known(SIG) == (Seen(100, 0, rests_until_ms=5_000), 3, 5_000, None, 0)
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
@pytest.mark.parametrize("name", ["folder", "file/relayer.db"])
def test_a_place_that_can_hold_no_journal_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(JournalError, match=rf"{name} cannot be opened \(.+\): `state` names its file"),
        Journal.open(tmp_path / name),
    ):
        pass


def test_one_process_writes_and_others_read(path: Path) -> None:
    opening = (
        "import sys, pathlib\nfrom muniment.relayer.journal.sqlite import Journal\n"
        "with Journal.open(pathlib.Path(sys.argv[1])): pass"
    )
    with Journal.open(path) as journal:
        see(journal, 100, SIG)
        with pytest.raises(JournalError, match="another relayer has the journal"), Journal.open(path):
            pass
        refused = subprocess.run(
            [sys.executable, "-c", opening, str(path)], capture_output=True, text=True, check=False
        )
        assert "another relayer has the journal" in refused.stderr
        with Journal.reading(path) as reading:
            assert reading.known(SIG) is not None
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                see(reading, 1, OTHER)
    assert subprocess.run([sys.executable, "-c", opening, str(path)], check=False).returncode == 0


def test_only_its_owner_can_read_the_journal(path: Path) -> None:
    with Journal.open(path):
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}, modes


def test_a_journal_of_a_later_format_is_refused_untouched(path: Path) -> None:
    with Journal.open(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"format 3.*later release.*Run that release"), Journal.open(path):
        pass
    with pytest.raises(JournalError, match="format 3"), Journal.reading(path):
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


# The tables of a journal of format 1, as earlier releases wrote them.
FORMAT_1 = """
CREATE TABLE journal_triggers (
  sig BLOB PRIMARY KEY, since_ms INTEGER NOT NULL, decided_ms INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, rests_until_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER, ended_by BLOB
) WITHOUT ROWID;
CREATE TABLE journal_runs (
  sig BLOB NOT NULL, kind INTEGER NOT NULL, key BLOB NOT NULL, payload BLOB NOT NULL, timestamp_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL, event BLOB, state INTEGER NOT NULL, result TEXT, body BLOB, hash BLOB,
  written_ms INTEGER NOT NULL, PRIMARY KEY (sig, kind, key)
) WITHOUT ROWID;
CREATE INDEX journal_runs_unfinished ON journal_runs (state, timestamp_ms) WHERE state < 2;
CREATE INDEX journal_runs_of_events ON journal_runs (sig, event) WHERE event IS NOT NULL;
CREATE TABLE journal_logged_ends (
  sig BLOB NOT NULL, signer BLOB NOT NULL, ended_by BLOB NOT NULL, PRIMARY KEY (sig, signer)
) WITHOUT ROWID;
CREATE TABLE journal_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id=1836405322;
PRAGMA user_version=1;
"""


def of_format_1(path: Path) -> None:
    """A journal of format 1 with a run of each kind and state, an end, and a trigger that the log has ended."""
    first, equal, note = event("01", index=7), event("01", index=9), event("03", index=1)
    position = (1).to_bytes(8) + b"\x04" * 32
    with sqlite3.connect(path) as connection:
        connection.executescript(FORMAT_1)
        connection.execute("INSERT INTO journal_triggers VALUES (?, 90, 100, 3, 700, NULL, NULL)", (SIG.raw,))
        connection.execute("INSERT INTO journal_triggers VALUES (?, 90, 0, 0, 0, 95, ?)", (OTHER.raw, ENDING.raw))
        connection.execute("INSERT INTO journal_logged_ends VALUES (?, ?, ?)", (OTHER.raw, b"\x01" * 20, ENDING.raw))
        connection.execute("INSERT INTO journal_facts VALUES ('relayer', '0x1')")
        connection.executemany(
            "INSERT INTO journal_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 99)",
            [
                (SIG.raw, 0, time_payload(100), time_payload(100), 100, 160, None, 2, "nothing", None, HASH),
                (SIG.raw, 0, time_payload(160), time_payload(160), 160, 220, None, 1, "intents", b"bytes", HASH),
                (SIG.raw, 0, time_payload(220), time_payload(220), 220, 280, None, 0, None, None, None),
                (SIG.raw, 2, b"", time_payload(50), 50, 60, None, 2, "nothing", None, HASH),
                (SIG.raw, 1, first.payload, first.payload, 1_000, 2_000, position + bytes(4), 0, None, None, None),
                (OTHER.raw, 1, *2 * (first.payload,), 1_000, 2_000, position + bytes(4), 2, "nothing", None, HASH),
                (SIG.raw, 1, equal.payload, equal.payload, 1_000, 2_000, position + b"\0\0\0\2", 0, None, None, None),
                (SIG.raw, 1, note.payload, note.payload, 1_000, 1_000, None, 1, "missed", b"note", HASH),
            ],
        )  # fmt: skip
    connection.close()


def test_a_journal_of_format_1_is_converted_at_its_first_start(path: Path) -> None:
    of_format_1(path)
    with pytest.raises(JournalError, match="format 1"), Journal.reading(path):
        pass
    for _ in range(2):
        with Journal.open(path) as journal:
            assert journal.known(SIG) == (Seen(90, 100, rests_until_ms=700), 3, 700, None, 0)
            assert journal.unended() == [SIG]
            assert journal.logged_end(OTHER, Address.parse("0x" + "01" * 20)) == ENDING
            assert journal.fact("relayer") == "0x1"
            found = [(each.kind, each.timestamp_ms, each.state, each.body) for each in journal.runs_of(SIG)]
            assert sorted(found) == [
                (0, 100, State.PUBLISHED, b""), (0, 160, State.RAN, b"bytes"), (0, 220, State.PLANNED, b""),
                (1, 1_000, State.PLANNED, b""), (1, 1_000, State.PLANNED, b""), (1, 1_000, State.RAN, b"note"),
                (2, 50, State.PUBLISHED, b""),
            ]  # fmt: skip
            assert journal.entry(SIG, 2, time_payload(70)) is not None  # that one is made once for ever
            assert journal.entry(SIG, 0, time_payload(160)) is not None
            # Equal logs of a transaction are counted in the order of the block, wherever they are in its receipt.
            for ordinal, index in enumerate((7, 9)):
                [run] = journal.runs_of_event(SIG, key(event("02", ordinal, index=index)))
                assert run.payload == event("01", index=index).payload
            assert len(journal.runs_of_event(OTHER, key(event("02", 0)))) == 1
            assert len(waiting(journal, now_ms=1_500)) == 2


def test_a_conversion_that_fails_leaves_the_journal_as_it_was(path: Path) -> None:
    of_format_1(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE journal_runs SET payload = x'00' WHERE kind = 1 AND event IS NULL")
    connection.close()
    with pytest.raises(ValueError, match="within the data"), Journal.open(path):
        pass
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM journal_runs").fetchone() == (8,)
    connection.close()


def test_100_triggers_and_500_logs_keep_each_log_once(path: Path) -> None:
    statements: list[str] = []
    with Journal.open(path) as journal:
        sigs = [Signature.parse(f"0x{n:064x}{1:064x}1b") for n in range(1, 101)]
        see(journal, 1, *sigs)
        dues = [due for n in range(500) for due in (event("01", n, index=n, sig=sig, at_ms=n) for sig in sigs)]
        journal._connection.set_trace_callback(statements.append)
        for start in range(0, len(dues), 200):
            journal.plan(dues[start : start + 200], 1_000)
        journal._connection.set_trace_callback(None)
        assert journal.count(State.PLANNED) == 50_000
        ((logs, payload_bytes),) = journal._connection.execute(
            "SELECT count(*), sum(length(payload)) FROM journal_events"
        )
        assert (logs, payload_bytes) == (500, 500 * len(dues[0].payload))
        assert sum(each.startswith("COMMIT") for each in statements) == 250
        assert journal.bytes() < 10_000_000
