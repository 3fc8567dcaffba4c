"""The journal of a relayer: one SQLite file, in which each run is `planned`, then `ran`, then `published`.

A run's bytes are on the disk before the first request that publishes them, so a relayer that was killed publishes the
same bytes again. Only one process at a time has the journal; others can read it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, LiteralString, Self

from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import time_payload
from muniment.protocol.triggers.typed_data import CRON, EVENT, ONCE
from muniment.relayer.journal import files
from muniment.relayer.journal.entries import REST_MS_MAX, Entry, Known, State, event_key
from muniment.relayer.journal.schema import TABLES, WAITING
from muniment.relayer.schedule.due import Due, Gap, Seen

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.protocol.evm.address import Address
    from muniment.protocol.runs.types import TriggerType
    from muniment.relayer.journal.entries import LoggedEnd, Ownership

_PLACE: Final[LiteralString] = "trigger = ? AND kind = ? AND key = ?"
_ENTRIES: Final[LiteralString] = (
    "SELECT t.sig, r.kind, e.payload, r.timestamp_ms, r.until_ms, e.event, r.state, r.tries, r.next_ms, r.answer, "
    "r.result, r.body, r.hash, r.written_ms FROM journal_runs r JOIN journal_triggers t ON t.number = r.trigger "
    "LEFT JOIN journal_events e ON r.kind = 1 AND e.number = r.key"
)
_DAY_MS: Final = 86_400_000
_NUMBERS_MAX: Final = 1_000


class Journal:
    """The journal in the file at `path`, which is created.

    Every method that writes returns when the disk has it, but for `published` and `tried`, and where it is told so.
    Raises `JournalError` when the file cannot be used, and `OSError`.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use an open file, see `open` and `reading`.

        Published runs of events, which may be told again after a reorganisation, are kept for `events_kept_ms`.
        """
        self.events_kept_ms = 2 * _DAY_MS
        self._connection = connection
        # By chain the block before which logs without a run are forgotten.
        self._forgotten: dict[int, int] = {}
        # The numbers of some logs by their payloads, as long as no log is forgotten.
        self._numbers: dict[bytes, int] = {}

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Generator[Self]:
        """The journal for the one process that writes it."""
        with files.writing(path) as connection:
            yield cls(connection)

    @classmethod
    @contextmanager
    def reading(cls, path: Path) -> Generator[Self]:
        """The journal to read, also while a relayer writes it. Raises `JournalError` when there is none."""
        with files.reading(path) as connection:
            yield cls(connection)

    @classmethod
    @contextmanager
    def in_memory(cls) -> Generator[Self]:
        """A journal that ends with the block."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.executescript(TABLES)
            yield cls(connection)
        finally:
            connection.close()

    def see(self, triggers: Iterable[Ownership], now_ms: int) -> None:
        """Remember when these triggers were seen first, and whose they are."""
        with self._writing():
            self._connection.executemany(
                "INSERT INTO journal_triggers (sig, signer, function, since_ms) VALUES (?, ?, ?, ?) ON CONFLICT (sig) "
                "DO UPDATE SET signer = excluded.signer, function = excluded.function WHERE signer = x''",
                [(each.sig.raw, each.signer.raw, each.function, now_ms) for each in triggers],
            )

    def known(self, sig: Signature) -> Known | None:
        """What is remembered of a trigger; None if it was never seen."""
        row = self._connection.execute(
            "SELECT since_ms, decided_ms, sent_ms, life_ms, rests_until_ms, failures, rests_until_ms, ended_ms, "
            "told_ms FROM journal_triggers WHERE sig = ?",
            (sig.raw,),
        ).fetchone()
        return None if row is None else Known(Seen(*row[:5]), *row[5:])

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

    def plan(self, dues: Sequence[Due], now_ms: int, *, is_flushed: bool = True) -> None:
        """Plan runs, before their questions are asked. A planned run is left unchanged.

        The trigger is seen from the time of the run on, so that a run that is never finished counts as missed. Without
        `is_flushed` the disk has it with the next write: that of the place of a lane, or what became of the run.
        """
        with self._writing(is_flushed=is_flushed):
            self._plan(dues, now_ms)

    def ran(
        self, due: Due, result: str, body: bytes, hash_: bytes, now_ms: int, *, life_ms: int | None = None,
        is_told: bool = False,
    ) -> None:  # fmt: skip
        """Keep the bytes of a run that was planned. Its tick is decided from now on.

        `life_ms` is how long after its time the intents of a run that is too late were good, 0 for one in time. With
        `is_told` it is a note that runs are skipped, which need not be planned.
        """
        with self._writing():
            if is_told:
                self._plan([due], now_ms)
            self._connection.execute(
                "UPDATE journal_triggers SET sent_ms = max(sent_ms, ?), life_ms = coalesce(?, life_ms), "
                "told_ms = max(told_ms, ?) WHERE sig = ?",
                (now_ms if result == "intents" else 0, life_ms, now_ms if is_told else 0, due.sig.raw),
            )
            self._keep(self._place(due.sig, due.kind, due.payload), (result, body, hash_, now_ms))
            self._decide(due.sig, due.timestamp_ms)

    def note(self, gap: Gap, body: bytes, hash_: bytes, now_ms: int) -> None:
        """Keep the bytes of the note of a gap, and decide all its ticks: those that were planned are given up."""
        with self._writing():
            self._plan([Due(gap.sig, gap.kind, gap.payload, gap.to_ms, gap.to_ms)], now_ms)
            place = self._place(gap.sig, gap.kind, gap.payload)
            if gap.kind == CRON:
                self._connection.execute(
                    "DELETE FROM journal_runs WHERE trigger = ? AND kind = ? AND state = 0 AND key < ?", place
                )
            self._keep(place, ("missed", body, hash_, now_ms))
            self._decide(gap.sig, gap.to_ms)

    def give_up(self, due: Due, *, is_decided: bool) -> None:
        """Forget a planned run that will not run: its trigger ended, or its event left the chain.

        With `is_decided` its tick does not count as missed either.
        """
        with self._writing():
            place = self._place(due.sig, due.kind, due.payload)
            self._connection.execute(f"DELETE FROM journal_runs WHERE {_PLACE} AND state = 0", place)
            if due.kind == EVENT:
                self._forget_unused([place[2]])
            if is_decided:
                self._decide(due.sig, due.timestamp_ms)

    def tried(self, due: Due, code: str, next_ms: int) -> None:
        """A planned run has no result yet, for this reason, and is not tried again before `next_ms`."""
        with self._writing(is_flushed=False):
            self._connection.execute(
                f"UPDATE journal_runs SET tries = tries + 1, answer = ?, next_ms = ? WHERE {_PLACE} AND state = 0",
                (code, next_ms, *self._place(due.sig, due.kind, due.payload)),
            )

    def published(self, entry: Entry, now_ms: int) -> None:
        """The registry has the run. Earlier ticks of the trigger are no longer needed, nor the bytes.

        The disk has it with the next write: after a power failure the run is published again, which changes nothing.
        """
        place = self._place(entry.sig, entry.kind, entry.payload)
        with self._writing(is_flushed=False):
            self._connection.execute(
                f"UPDATE journal_runs SET state = 2, body = NULL, written_ms = ? WHERE {_PLACE}", (now_ms, *place)
            )
            condition, limit = ("written_ms", now_ms - self.events_kept_ms) if entry.event else ("key", place[2])
            old = self._connection.execute(
                f"DELETE FROM journal_runs WHERE trigger = ? AND kind = ? AND state = 2 AND {condition} < ? "
                "RETURNING key",
                (*place[:2], limit),
            ).fetchall()
            if entry.event:
                self._forget_unused([key for (key,) in old])

    def failed(self, sig: Signature, failures: int, rests_until_ms: int) -> None:
        """Remember the failures in sequence of a trigger, and until when it rests."""
        with self._writing():
            self._connection.execute(
                "UPDATE journal_triggers SET failures = ?, rests_until_ms = ? WHERE sig = ?",
                (failures, rests_until_ms, sig.raw),
            )

    def unfinished(self, state: State) -> Iterator[Entry]:
        """The runs that are `planned`, or those that `ran` and are to be published, the oldest first.

        Each is read when it is asked for: their bytes together may be more than the memory.
        """
        places = self._connection.execute(
            "SELECT trigger, kind, key FROM journal_runs WHERE state = ? ORDER BY timestamp_ms", (int(state),)
        ).fetchall()
        for place in places:
            yield from self._entries(
                "WHERE r.trigger = ? AND r.kind = ? AND r.key = ? AND r.state = ?", *place, int(state)
            )

    def count(self, state: State) -> int:
        """How many runs are `planned`, or `ran` and are to be published."""
        ((count,),) = self._connection.execute("SELECT count(*) FROM journal_runs WHERE state = ?", (int(state),))
        return count

    def waiting_events(self, count: int, each: int, now_ms: int) -> list[Entry]:
        """Planned runs of events that may be tried now: in turn by function, then by signer, the oldest first.

        At most `each` are those of one function and signer. Neither a trigger that rests nor runs that were tried
        shortly before keep the others waiting.
        """
        rows = self._connection.execute(
            f"{WAITING} {_ENTRIES} JOIN by_function b ON r.trigger = b.trigger_ AND r.kind = 1 AND r.key = b.key_ "
            "ORDER BY b.of_function, b.next_, b.trigger_",
            {"now_ms": now_ms, "count": count, "each": each, "rest_ms": REST_MS_MAX},
        )
        return [_entry(row) for row in rows]

    def planned_triggers(self) -> list[Signature]:
        """The triggers with planned runs."""
        rows = self._connection.execute(
            "SELECT sig FROM journal_triggers WHERE number IN (SELECT trigger FROM journal_runs WHERE state = 0)"
        )
        return [_sig(each) for (each,) in rows]

    def give_up_all(self, sig: Signature) -> None:
        """Forget the planned runs of a trigger that has ended."""
        with self._writing():
            keys = self._connection.execute(
                "DELETE FROM journal_runs WHERE state = 0 AND trigger = "
                "(SELECT number FROM journal_triggers WHERE sig = ?) RETURNING iif(kind = 1, key, -1)",
                (sig.raw,),
            ).fetchall()
            self._forget_unused(key for (key,) in keys)

    def overdue_events(self, count: int, now_ms: int) -> list[Entry]:
        """Planned runs of events whose time is over, the oldest first."""
        return self._entries(
            "WHERE r.state = 0 AND r.kind = 1 AND r.until_ms < ? ORDER BY r.until_ms LIMIT ?", now_ms, count
        )

    def published_events(self, chain_id: int, first_block: int) -> list[Entry]:
        """The published runs of the events of a chain from a block on; also those that another format left no block."""
        return self._entries(
            "WHERE e.event IS NOT NULL AND r.state = 2 AND r.kind = 1 AND e.chain = ? "
            "AND (e.block >= ? OR e.block = 0)", chain_id, first_block,
        )  # fmt: skip

    def mark(self, entry: Entry, result: str) -> None:
        """Replace the result of a run."""
        with self._writing():
            self._connection.execute(
                f"UPDATE journal_runs SET result = ? WHERE {_PLACE}",
                (result, *self._place(entry.sig, entry.kind, entry.payload)),
            )

    def plan_again(self, entry: Entry) -> None:
        """Plan a published run of an event once more."""
        with self._writing():
            self._connection.execute(
                f"UPDATE journal_runs SET state = 0, result = NULL, hash = NULL, next_ms = timestamp_ms WHERE {_PLACE}",
                self._place(entry.sig, entry.kind, entry.payload),
            )

    def entry(self, sig: Signature, kind: TriggerType, payload: bytes) -> Entry | None:
        """A run, if the journal has it."""
        entries = self._entries("WHERE r.trigger = ? AND r.kind = ? AND r.key = ?", *self._place(sig, kind, payload))
        return entries[0] if entries else None

    def runs_of(self, sig: Signature) -> list[Entry]:
        """The runs of a trigger that the journal still has, the newest first."""
        return self._entries("WHERE t.sig = ? ORDER BY r.timestamp_ms DESC", sig.raw)

    def runs_of_event(self, sig: Signature, event: bytes) -> list[Entry]:
        """The runs for an event of a transaction, in whichever block it was; `event` is that of an entry."""
        return self._entries("WHERE t.sig = ? AND e.event = ?", sig.raw, event)

    def triggers_of_event(self, payload: bytes) -> set[Signature] | None:
        """The triggers with a run for a log; None for a log that the journal does not have."""
        if (number := self._event_number(payload)) < 0:
            return None
        rows = self._connection.execute(
            "SELECT t.sig FROM journal_runs r JOIN journal_triggers t ON t.number = r.trigger "
            "WHERE r.kind = 1 AND r.key = ?",
            (number,),
        )
        return {_sig(each) for (each,) in rows}

    def event_runs(self, sig: Signature, since_ms: int) -> int:
        """The runs for events of a trigger that are planned, or were written since a time."""
        ((count,),) = self._connection.execute(
            "SELECT count(*) FROM journal_runs WHERE kind = 1 AND (state = 0 OR written_ms >= ?) "
            "AND trigger = (SELECT number FROM journal_triggers WHERE sig = ?)",
            (since_ms, sig.raw),
        )
        return count

    def keep_events(self, dues: Iterable[Due]) -> None:
        """Keep logs that are not planned, so that they are not taken for new ones."""
        with self._writing(is_flushed=False):
            for due in dues:
                self._keep_event(due)

    def forget_events(self, chain_id: int, block: int) -> None:
        """Forget the logs before a block that no run has; later they are forgotten with their last run."""
        self._numbers.clear()
        with self._writing(is_flushed=False):
            self._connection.execute(
                "DELETE FROM journal_events WHERE chain = ? AND block >= ? AND block < ? "
                "AND NOT EXISTS (SELECT 1 FROM journal_runs WHERE kind = 1 AND key = number)",
                (chain_id, self._forgotten.get(chain_id, 0), block),
            )
        self._forgotten[chain_id] = block

    def fact(self, name: str) -> str | None:
        """A fact that was kept under this name."""
        row = self._connection.execute("SELECT value FROM journal_facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def forget_fact(self, name: str) -> None:
        """Forget a fact."""
        with self._writing():
            self._connection.execute("DELETE FROM journal_facts WHERE name = ?", (name,))

    def keep_fact(self, name: str, value: str) -> None:
        """Keep a fact, in place of the one of this name."""
        self.keep_facts({name: value})

    def keep_facts(self, facts: Mapping[str, str]) -> None:
        """Keep facts, in place of those of these names."""
        with self._writing():
            self._connection.executemany("INSERT OR REPLACE INTO journal_facts VALUES (?, ?)", [*facts.items()])

    def bytes(self) -> int:
        """The bytes that the rows of the journal take."""
        (pages,), (free,), (size,) = (
            self._connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _plan(self, dues: Sequence[Due], now_ms: int) -> None:
        since_ms: dict[bytes, int] = {}
        for due in dues:
            since_ms[due.sig.raw] = min(due.timestamp_ms, since_ms.get(due.sig.raw, due.timestamp_ms))
        self._connection.executemany(
            "INSERT INTO journal_triggers (sig, since_ms) VALUES (?1, ?2) ON CONFLICT (sig) "
            "DO UPDATE SET since_ms = ?2 WHERE ?2 < since_ms",
            [*since_ms.items()],
        )
        logs = {due.payload: due for due in dues if due.kind == EVENT}
        numbers = {payload: self._keep_event(due) for payload, due in logs.items()}
        keys = [numbers.get(due.payload, _time_key(due.kind, due.payload)) for due in dues]
        self._connection.executemany(
            "INSERT OR IGNORE INTO journal_runs (trigger, kind, key, timestamp_ms, until_ms, next_ms, written_ms) "
            "SELECT number, ?2, ?3, ?4, ?5, min(?4, ?6), ?6 FROM journal_triggers WHERE sig = ?1",
            [
                (due.sig.raw, due.kind, key, due.timestamp_ms, due.until_ms, now_ms)
                for due, key in zip(dues, keys, strict=True)
            ],
        )

    def bytes_of(self, signer: Address) -> int:
        """About the bytes that the runs of a signer take, with those that are published and kept."""
        ((size,),) = self._connection.execute(
            "SELECT sum(100 + ifnull(length(r.body), 0) + ifnull(length(e.payload), 0)) FROM journal_runs r "
            "JOIN journal_triggers t ON t.number = r.trigger "
            "LEFT JOIN journal_events e ON r.kind = 1 AND e.number = r.key WHERE t.signer = ?",
            (signer.raw,),
        )
        return size or 0

    def _forget_unused(self, numbers: Iterable[int]) -> None:
        """Forget these logs, if no run has them; the second cursor may still come to those that are newer."""
        places = [(number, *past) for number in numbers for past in self._forgotten.items()]
        if places:
            self._numbers.clear()
        self._connection.executemany(
            "DELETE FROM journal_events WHERE number = ? AND chain = ? AND block < ? "
            "AND NOT EXISTS (SELECT 1 FROM journal_runs WHERE kind = 1 AND key = number)",
            places,
        )

    def _keep_event(self, due: Due) -> int:
        """The number of a log, which is kept once. A gap does not know in which transaction the log was."""
        if due.payload in self._numbers:
            return self._numbers[due.payload]
        hash_, event = sha256(due.payload).digest(), due.event
        key = None if event is None else event_key(event.log, event.transaction_hash.raw, event.ordinal)
        self._connection.execute(
            "INSERT INTO journal_events (hash, payload, event, chain, block) VALUES (?, ?, ?, ?, ?) ON CONFLICT (hash) "
            "DO UPDATE SET event = excluded.event, block = excluded.block WHERE excluded.event IS NOT NULL",
            (hash_, due.payload, key, int.from_bytes(due.payload[:32]), 0 if event is None else event.block_number),
        )
        number = self._event_number(due.payload)
        if len(self._numbers) >= _NUMBERS_MAX:
            self._numbers.clear()
        return number if event is None else self._numbers.setdefault(due.payload, number)

    def _event_number(self, payload: bytes) -> int:
        row = self._connection.execute(
            "SELECT number FROM journal_events WHERE hash = ?", (sha256(payload).digest(),)
        ).fetchone()
        return -1 if row is None else row[0]

    def _place(self, sig: Signature, kind: TriggerType, payload: bytes) -> tuple[int, int, int]:
        """The primary key of a run, which may not be there."""
        row = self._connection.execute("SELECT number FROM journal_triggers WHERE sig = ?", (sig.raw,)).fetchone()
        key = self._event_number(payload) if kind == EVENT else _time_key(kind, payload)
        return -1 if row is None else row[0], kind, key

    def _keep(self, place: tuple[int, int, int], kept: tuple[str, bytes, bytes, int]) -> None:
        changed = self._connection.execute(
            f"UPDATE journal_runs SET state = 1, result = ?, body = ?, hash = ?, written_ms = ? "
            f"WHERE {_PLACE} AND state = 0",
            (*kept, *place),
        ).rowcount
        assert changed == 1, "a run is planned before it has a result"  # noqa: S101 - see `plan`

    def _decide(self, sig: Signature, at_ms: int) -> None:
        self._connection.execute(
            "UPDATE journal_triggers SET decided_ms = max(decided_ms, ?) WHERE sig = ?", (max(1, at_ms), sig.raw)
        )

    def _entries(self, condition: LiteralString, *values: int | bytes) -> list[Entry]:
        rows = self._connection.execute(f"{_ENTRIES} {condition}", values)
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
            self._numbers.clear()
            raise
        self._connection.execute("COMMIT")


def _entry(row: Sequence[Any]) -> Entry:
    sig, kind, payload, timestamp_ms, until_ms, event, state, tries, next_ms, answer, result, body, hash_, at_ms = row
    return Entry(
        sig=_sig(sig), kind=kind, payload=time_payload(timestamp_ms) if payload is None else payload,
        timestamp_ms=timestamp_ms, until_ms=until_ms, state=State(state), tries=tries, next_ms=next_ms,
        answer=answer or "", result=result or "", body=body or b"", hash=hash_ or b"", written_ms=at_ms,
        event=event or b"",
    )  # fmt: skip


def _time_key(kind: TriggerType, payload: bytes) -> int:
    """The key of a tick, or of the single run, whatever its time."""
    return 0 if kind == ONCE else int.from_bytes(payload[:32])


def _sig(raw: bytes) -> Signature:
    return Signature("0x" + raw.hex())
