"""The journal of a relayer: one SQLite file, in which each run is `planned`, then `ran`, then `published`.

A run's bytes are on the disk before the first request that publishes them, so a relayer that was killed publishes the
same bytes again. Only one process at a time has the journal; others can read it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, Self

from muniment import durable
from muniment.protocol.evm.signature import Signature
from muniment.protocol.triggers.typed_data import CRON, EVENT, ONCE
from muniment.relayer.schedule.due import Due, Gap, Occurrence, Seen

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.protocol.evm.address import Address
    from muniment.protocol.runs.types import TriggerType

# In the header of the file (https://sqlite.org/pragma.html#pragma_application_id): "muRJ".
_APPLICATION: Final = 0x6D75524A
_FORMAT: Final = 1
_TABLES: Final = """
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
"""
_RUN: Final[LiteralString] = (
    "sig, kind, key, payload, timestamp_ms, until_ms, event, state, result, body, hash, written_ms"
)
# Published runs of an event, which may be told again after a reorganisation, are kept for so long.
_EVENTS_KEPT_MS: Final = 30 * 86_400_000
# In place of the result of a published run whose event left the chain.
ORPHANED: Final = "orphaned"


class JournalError(ValueError):
    """The journal cannot be used: another process has it, or it has another form. The text says what to do."""


class State(IntEnum):
    """How far a run got."""

    PLANNED = 0
    RAN = 1
    PUBLISHED = 2


class Known(NamedTuple):
    """What the journal has of a trigger. `failures` are those in sequence; `ended_ms` is set once its end was seen."""

    seen: Seen
    failures: int
    rests_until_ms: int
    ended_ms: int | None


class LoggedEnd(NamedTuple):
    """A trigger that a deactivation in the transparency log names, by the signer of the deactivation."""

    sig: Signature
    signer: Address
    deactivation: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run in the journal. `body` has the bytes to publish while the run is `RAN`."""

    sig: Signature
    kind: TriggerType
    payload: bytes
    timestamp_ms: int
    until_ms: int
    state: State
    result: str
    body: bytes
    hash: bytes
    written_ms: int
    event: bytes

    @property
    def due(self) -> Due:
        """What the run is, or was, due for."""
        return Due(self.sig, self.kind, self.payload, self.timestamp_ms, self.until_ms)


def key_of(kind: TriggerType, payload: bytes) -> bytes:
    """What names a run of a trigger: its payload, or nothing for the single run."""
    return b"" if kind == ONCE else payload


def event_key(event: Occurrence) -> bytes:
    """What names an event in any block: chain, transaction, and position in its receipt."""
    return event.log.chain_id.to_bytes(8) + event.transaction_hash.raw + event.position.to_bytes(4)


class Journal:
    """The journal in the file at `path`, which is created.

    Every method that writes returns when the disk has it, but for `published`.
    Raises `JournalError` when the file cannot be used, and `OSError`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use an open file, see `open_journal` and `reading`."""
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Generator[Self]:
        """The journal for the one process that writes it."""
        with _locked(path), _connected(path) as connection:
            is_new = _is_new(connection, path)
            connection.execute("PRAGMA journal_mode=WAL")
            if is_new:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id={_APPLICATION:d};"
                    f"PRAGMA user_version={_FORMAT:d}; COMMIT;"
                )
                durable.flush_directory(path.parent)
            yield cls(connection)

    @classmethod
    @contextmanager
    def reading(cls, path: Path) -> Generator[Self]:
        """The journal to read, also while a relayer writes it. Raises `JournalError` when there is none."""
        if not path.is_file():
            raise JournalError(f"there is no journal at {path}")
        with _connected(path, mode="ro") as connection:
            if _is_new(connection, path):
                raise JournalError(f"{path} is empty: no relayer has begun to write it")
            yield cls(connection)

    @classmethod
    @contextmanager
    def in_memory(cls) -> Generator[Self]:
        """A journal that ends with the block."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.executescript(_TABLES)
            yield cls(connection)
        finally:
            connection.close()

    def see(self, sigs: Iterable[Signature], now_ms: int) -> None:
        """Remember when these triggers were seen first."""
        with self._writing():
            self._connection.executemany(
                "INSERT OR IGNORE INTO journal_triggers (sig, since_ms) VALUES (?, ?)",
                [(each.raw, now_ms) for each in sigs],
            )

    def known(self, sig: Signature) -> Known | None:
        """What is remembered of a trigger; None if it was never seen."""
        row = self._connection.execute(
            "SELECT since_ms, decided_ms, failures, rests_until_ms, ended_ms FROM journal_triggers WHERE sig = ?",
            (sig.raw,),
        ).fetchone()
        return None if row is None else Known(Seen(row[0], row[1]), row[2], row[3], row[4])

    def unended(self) -> list[Signature]:
        """The triggers whose end was never seen."""
        rows = self._connection.execute("SELECT sig FROM journal_triggers WHERE ended_ms IS NULL")
        return [_sig(each) for (each,) in rows]

    def end(self, sig: Signature, deactivation: Signature, now_ms: int) -> None:
        """Remember for ever that a trigger was ended. The first end that was seen stays."""
        with self._writing():
            self._connection.execute(
                "INSERT INTO journal_triggers (sig, since_ms, ended_ms, ended_by) VALUES (?1, ?2, ?2, ?3) "
                "ON CONFLICT (sig) DO UPDATE SET ended_ms = ?2, ended_by = ?3 WHERE ended_ms IS NULL",
                (sig.raw, now_ms, deactivation.raw),
            )

    def keep_logged_ends(self, ends: Iterable[LoggedEnd]) -> None:
        """Remember for ever what the transparency log of the registry has ended, also triggers that are not known."""
        with self._writing():
            self._connection.executemany(
                "INSERT OR IGNORE INTO journal_logged_ends VALUES (?, ?, ?)",
                [(each.sig.raw, each.signer.raw, each.deactivation.raw) for each in ends],
            )

    def logged_end(self, sig: Signature, signer: Address) -> Signature | None:
        """The deactivation by which the log has ended a trigger of this signer."""
        row = self._connection.execute(
            "SELECT ended_by FROM journal_logged_ends WHERE sig = ? AND signer = ?", (sig.raw, signer.raw)
        ).fetchone()
        return None if row is None else _sig(row[0])

    def plan(self, dues: Sequence[Due], now_ms: int) -> None:
        """Plan runs, before their questions are asked. A planned run is left unchanged.

        The trigger is seen from the time of the run on, so that a run that is never finished counts as missed.
        """
        with self._writing():
            for due in dues:
                event = None if due.event is None else event_key(due.event)
                self._insert(due.sig, due.kind, due.payload, due.timestamp_ms, due.until_ms, event, now_ms)
                self._connection.execute(
                    "INSERT INTO journal_triggers (sig, since_ms) VALUES (?1, ?2) ON CONFLICT (sig) "
                    "DO UPDATE SET since_ms = min(since_ms, ?2)",
                    (due.sig.raw, due.timestamp_ms),
                )

    def ran(self, due: Due, result: str, body: bytes, hash_: bytes, now_ms: int) -> None:
        """Keep the bytes of a run that was planned. Its tick is decided from now on."""
        with self._writing():
            self._keep(due.sig, due.kind, due.payload, (result, body, hash_, now_ms))
            self._decide(due.sig, due.timestamp_ms)

    def note(self, gap: Gap, body: bytes, hash_: bytes, now_ms: int) -> None:
        """Keep the bytes of the note of a gap, and decide all its ticks: those that were planned are given up."""
        with self._writing():
            if gap.kind == CRON:
                self._connection.execute(
                    "DELETE FROM journal_runs WHERE sig = ? AND kind = ? AND state = 0 AND timestamp_ms <= ?",
                    (gap.sig.raw, gap.kind, gap.to_ms),
                )
            self._insert(gap.sig, gap.kind, gap.payload, gap.to_ms, gap.to_ms, None, now_ms)
            self._keep(gap.sig, gap.kind, gap.payload, ("missed", body, hash_, now_ms))
            self._decide(gap.sig, gap.to_ms)

    def give_up(self, due: Due, *, is_decided: bool) -> None:
        """Forget a planned run that will not run: its trigger ended, or its event left the chain.

        With `is_decided` its tick does not count as missed either.
        """
        with self._writing():
            self._connection.execute(
                "DELETE FROM journal_runs WHERE sig = ? AND kind = ? AND key = ? AND state = 0",
                (due.sig.raw, due.kind, key_of(due.kind, due.payload)),
            )
            if is_decided:
                self._decide(due.sig, due.timestamp_ms)

    def published(self, entry: Entry, now_ms: int) -> None:
        """The registry has the run. Earlier ticks of the trigger are no longer needed, nor the bytes.

        The disk has it with the next write: after a power failure the run is published again, which changes nothing.
        """
        key = (entry.sig.raw, entry.kind)
        with self._writing(is_flushed=False):
            self._connection.execute(
                "UPDATE journal_runs SET state = 2, body = NULL, written_ms = ? WHERE sig = ? AND kind = ? AND key = ?",
                (now_ms, *key, key_of(entry.kind, entry.payload)),
            )
            self._connection.execute(
                "DELETE FROM journal_runs WHERE sig = ? AND kind = ? AND state = 2 AND "
                "CASE WHEN event IS NULL THEN timestamp_ms < ? ELSE written_ms < ? END",
                (*key, entry.timestamp_ms, now_ms - _EVENTS_KEPT_MS),
            )

    def failed(self, sig: Signature, failures: int, rests_until_ms: int) -> None:
        """Remember the failures in sequence of a trigger, and until when it rests."""
        with self._writing():
            self._connection.execute(
                "UPDATE journal_triggers SET failures = ?, rests_until_ms = ? WHERE sig = ?",
                (failures, rests_until_ms, sig.raw),
            )

    def unfinished(self, state: State) -> list[Entry]:
        """The runs that are `planned`, or those that `ran` and are to be published, the oldest first."""
        return self._entries("WHERE state = ? ORDER BY timestamp_ms, sig", int(state))

    def planned_events(self, count: int) -> list[Entry]:
        """Some planned runs of events: the oldest of each trigger, then the second of each, and so on.

        So a trigger with many events does not keep the others waiting.
        """
        rows = self._connection.execute(
            f"SELECT {_RUN} FROM (SELECT *, row_number() OVER (PARTITION BY sig ORDER BY timestamp_ms) AS n "
            "FROM journal_runs WHERE state = 0 AND kind = ?) ORDER BY n, timestamp_ms, sig LIMIT ?",
            (EVENT, count),
        )
        return [_entry(row) for row in rows]

    def published_events(self, since_ms: int) -> list[Entry]:
        """The published runs of events that are not older than this."""
        return self._entries(
            "WHERE event IS NOT NULL AND state = 2 AND kind = ? AND timestamp_ms >= ?", EVENT, since_ms
        )

    def mark(self, entry: Entry, result: str) -> None:
        """Replace the result of a run."""
        with self._writing():
            self._connection.execute(
                "UPDATE journal_runs SET result = ? WHERE sig = ? AND kind = ? AND key = ?",
                (result, entry.sig.raw, entry.kind, key_of(entry.kind, entry.payload)),
            )

    def plan_again(self, entry: Entry) -> None:
        """Plan a published run of an event once more."""
        with self._writing():
            self._connection.execute(
                "UPDATE journal_runs SET state = 0, result = NULL, hash = NULL WHERE sig = ? AND kind = ? AND key = ?",
                (entry.sig.raw, entry.kind, key_of(entry.kind, entry.payload)),
            )

    def entry(self, sig: Signature, kind: TriggerType, payload: bytes) -> Entry | None:
        """A run, if the journal has it."""
        found = self._entries("WHERE sig = ? AND kind = ? AND key = ?", sig.raw, kind, key_of(kind, payload))
        return found[0] if found else None

    def runs_of(self, sig: Signature) -> list[Entry]:
        """The runs of a trigger that the journal still has, the newest first."""
        return self._entries("WHERE sig = ? ORDER BY timestamp_ms DESC", sig.raw)

    def runs_of_event(self, sig: Signature, event: bytes) -> list[Entry]:
        """The runs for an event of a transaction, in whichever block it was; `event` is that of an entry."""
        return self._entries("WHERE sig = ? AND event = ?", sig.raw, event)

    def fact(self, name: str) -> str | None:
        """A fact that was kept under this name."""
        row = self._connection.execute("SELECT value FROM journal_facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def keep_fact(self, name: str, value: str) -> None:
        """Keep a fact, in place of the one of this name."""
        with self._writing():
            self._connection.execute("INSERT OR REPLACE INTO journal_facts VALUES (?, ?)", (name, value))

    def _insert(
        self, sig: Signature, kind: TriggerType, payload: bytes, timestamp_ms: int, until_ms: int, event: bytes | None,
        now_ms: int,
    ) -> None:  # fmt: skip
        self._connection.execute(
            f"INSERT OR IGNORE INTO journal_runs ({_RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, 0, NULL, NULL, NULL, ?)",
            (sig.raw, kind, key_of(kind, payload), payload, timestamp_ms, until_ms, event, now_ms),
        )

    def _keep(self, sig: Signature, kind: TriggerType, payload: bytes, kept: tuple[str, bytes, bytes, int]) -> None:
        changed = self._connection.execute(
            "UPDATE journal_runs SET state = 1, result = ?, body = ?, hash = ?, written_ms = ? "
            "WHERE sig = ? AND kind = ? AND key = ? AND state = 0",
            (*kept, sig.raw, kind, key_of(kind, payload)),
        ).rowcount
        assert changed == 1, "a run is planned before it has a result"  # noqa: S101 - see `plan`

    def _decide(self, sig: Signature, at_ms: int) -> None:
        self._connection.execute(
            "UPDATE journal_triggers SET decided_ms = max(decided_ms, ?) WHERE sig = ?", (max(1, at_ms), sig.raw)
        )

    def _entries(self, condition: LiteralString, *values: int | bytes) -> list[Entry]:
        rows = self._connection.execute(f"SELECT {_RUN} FROM journal_runs {condition}", values)
        return [_entry(row) for row in rows]

    @contextmanager
    def _writing(self, *, is_flushed: bool = True) -> Generator[None]:
        """One transaction, on the disk at its end, or else at the end of the next one that is flushed."""
        self._connection.execute(f"PRAGMA synchronous={'FULL' if is_flushed else 'NORMAL'}")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _entry(row: Sequence[Any]) -> Entry:
    sig, kind, _, payload, timestamp_ms, until_ms, event, state, result, body, hash_, written_ms = row
    return Entry(
        sig=_sig(sig), kind=kind, payload=payload, timestamp_ms=timestamp_ms, until_ms=until_ms, state=State(state),
        result=result or "", body=body or b"", hash=hash_ or b"", written_ms=written_ms, event=event or b"",
    )  # fmt: skip


def _sig(raw: bytes) -> Signature:
    return Signature("0x" + raw.hex())


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Keep every other process from writing. The lock has a file of its own, and ends with the process.

    Closing a second descriptor of the journal itself would end the locks of SQLite (https://sqlite.org/howtocorrupt.html
    section 2.2).
    """
    durable.make_directory(path.parent)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"another relayer has the journal {path}: stop it, or give this one another `state`"
            ) from None
        # SQLite gives the files that it adds the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _connected(path: Path, mode: str = "rwc") -> Generator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise JournalError(f"cannot open the journal {path}: {error}") from error
    try:
        yield connection
    except sqlite3.DatabaseError as error:
        raise JournalError(f"cannot use the journal {path}: {error}") from error
    finally:
        connection.close()


def _is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file is empty. Raises `JournalError` for a file of another program or of a later format."""
    ((application,),) = connection.execute("PRAGMA application_id")
    ((version,),) = connection.execute("PRAGMA user_version")
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    if not tables and not application and not version:
        return True
    if application != _APPLICATION:
        raise JournalError(f"{path} is a database of another program, no journal of a relayer: choose another `state`")
    if version > _FORMAT:
        raise JournalError(
            f"the journal {path} has format {version}, and this release knows formats up to {_FORMAT}: a later release "
            "of Muniment wrote it. Run that release; an older one would forget what is planned"
        )
    return False
