"""The tables of a journal in SQLite, which events wait in them, and the conversion of those of earlier formats."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Final, LiteralString

from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.journal.entries import event_key

if TYPE_CHECKING:
    import sqlite3

FORMAT: Final = 2
# A log is kept once, in `journal_events`, however many triggers wait for it: `hash` is that of its payload, which names
# it in its block, and `event` names it in any block. The key of a run is the number of its event, or the time of its
# tick, or 0 for a single run; so the payload of a tick is not kept. A planned run is tried from `next_ms` on; `answer`
# is the code of the last try. Of a trigger, `sent_ms` is when the newest run with intents ended, `life_ms` how long
# those of the newest run that was too late were good, and `told_ms` when it was last noted that runs are skipped.
TABLES: Final[LiteralString] = """
CREATE TABLE journal_triggers (
  number INTEGER PRIMARY KEY, sig BLOB NOT NULL UNIQUE, signer BLOB NOT NULL DEFAULT x'',
  function BLOB NOT NULL DEFAULT x'', since_ms INTEGER NOT NULL, decided_ms INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, rests_until_ms INTEGER NOT NULL DEFAULT 0, ended_ms INTEGER, ended_by BLOB,
  sent_ms INTEGER NOT NULL DEFAULT 0, life_ms INTEGER NOT NULL DEFAULT 0, told_ms INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE journal_events (
  number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, payload BLOB NOT NULL, event BLOB, chain INTEGER NOT NULL,
  block INTEGER NOT NULL
);
CREATE INDEX journal_events_anywhere ON journal_events (event) WHERE event IS NOT NULL;
CREATE INDEX journal_events_by_block ON journal_events (chain, block);
CREATE TABLE journal_runs (
  trigger INTEGER NOT NULL, kind INTEGER NOT NULL, key INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL,
  until_ms INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,
  next_ms INTEGER NOT NULL, answer TEXT, result TEXT, body BLOB, hash BLOB, written_ms INTEGER NOT NULL,
  PRIMARY KEY (trigger, kind, key)
) WITHOUT ROWID;
CREATE INDEX journal_runs_unfinished ON journal_runs (state, timestamp_ms) WHERE state < 2;
CREATE INDEX journal_runs_waiting ON journal_runs (trigger, next_ms) WHERE state = 0 AND kind = 1;
CREATE INDEX journal_runs_overdue ON journal_runs (until_ms) WHERE state = 0 AND kind = 1;
CREATE INDEX journal_runs_of_events ON journal_runs (key) WHERE kind = 1;
CREATE INDEX journal_runs_of_day ON journal_runs (trigger, written_ms) WHERE kind = 1;
CREATE TABLE journal_logged_ends (
  sig BLOB NOT NULL, signer BLOB NOT NULL, ended_by BLOB NOT NULL, PRIMARY KEY (sig, signer)
) WITHOUT ROWID;
CREATE TABLE journal_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
# Of each trigger that does not rest, the oldest runs that may be tried; of those, in turn by function and by signer.
WAITING: Final[LiteralString] = """
WITH RECURSIVE planned(trigger) AS (
  SELECT min(trigger) FROM journal_runs WHERE state = 0 AND kind = 1
  UNION ALL
  SELECT (SELECT min(trigger) FROM journal_runs WHERE state = 0 AND kind = 1 AND trigger > planned.trigger)
  FROM planned WHERE planned.trigger IS NOT NULL
), ready AS (
  SELECT t.function, t.signer, r.trigger AS trigger_, r.key AS key_, r.next_ms AS next_
  FROM planned JOIN journal_triggers t ON t.number = planned.trigger
  JOIN journal_runs r ON r.trigger = t.number AND r.kind = 1 AND r.key IN (
    SELECT key FROM journal_runs WHERE trigger = t.number AND state = 0 AND kind = 1 AND next_ms <= :now_ms
      AND until_ms >= :now_ms
    ORDER BY next_ms LIMIT :each
  )
  WHERE t.rests_until_ms <= :now_ms OR t.rests_until_ms > :now_ms + :rest_ms
), by_signer AS (
  SELECT *, row_number() OVER (PARTITION BY function, signer ORDER BY next_, trigger_, key_) AS of_signer FROM ready
), by_function AS (
  SELECT *, row_number() OVER (PARTITION BY function ORDER BY of_signer, next_, trigger_) AS of_function FROM by_signer
  WHERE of_signer <= :each ORDER BY of_function, next_, trigger_ LIMIT :count
)
"""
_OLD: Final = ("journal_triggers", "journal_runs", "journal_logged_ends", "journal_facts")
# Ticks and single runs have their time in place of a payload.
_COPIES: Final[LiteralString] = """
INSERT INTO journal_triggers (sig, since_ms, decided_ms, failures, rests_until_ms, ended_ms, ended_by)
SELECT sig, since_ms, decided_ms, failures, rests_until_ms, ended_ms, ended_by FROM old_journal_triggers;
INSERT OR IGNORE INTO journal_triggers (sig, since_ms) SELECT sig, min(timestamp_ms) FROM old_journal_runs GROUP BY sig;
INSERT INTO journal_logged_ends SELECT * FROM old_journal_logged_ends;
INSERT INTO journal_facts SELECT * FROM old_journal_facts;
INSERT INTO journal_runs (trigger, kind, key, timestamp_ms, until_ms, state, next_ms, result, body, hash, written_ms)
SELECT t.number, r.kind, coalesce(e.number, iif(r.kind = 2, 0, r.timestamp_ms)), r.timestamp_ms, r.until_ms, r.state,
  r.timestamp_ms, r.result, r.body, r.hash, r.written_ms
FROM old_journal_runs r JOIN journal_triggers t USING (sig)
LEFT JOIN journal_events e ON r.kind = 1 AND e.payload = r.payload;
"""


def convert(connection: sqlite3.Connection, format_: int) -> None:
    """Bring the tables of an earlier format to this one, in one transaction."""
    assert format_ == 1  # noqa: S101 - there is no other earlier one
    connection.execute("BEGIN IMMEDIATE")
    try:
        for name in ("journal_runs_unfinished", "journal_runs_of_events"):
            connection.execute(f"DROP INDEX {name}")
        for name in _OLD:
            connection.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
        _execute_all(connection, TABLES)
        _convert_events(connection)
        _execute_all(connection, _COPIES)
        for name in _OLD:
            connection.execute(f"DROP TABLE old_{name}")
        connection.execute(f"PRAGMA user_version={FORMAT:d}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _convert_events(connection: sqlite3.Connection) -> None:
    """Keep each log once. Format 1 names an event by chain, transaction and place in the receipt, in 8, 32 and 4 bytes.

    Equal logs of one transaction have their ordinal from their order in the block.
    """
    rows = connection.execute("SELECT DISTINCT payload, event FROM old_journal_runs WHERE kind = 1")
    logs = [(log, payload, event) for payload, event in rows if (log := _log(payload)) is not None]
    equal = Counter[tuple[bytes, bytes]]()
    for log, payload, event in sorted(logs, key=lambda each: (each[0].index, each[2] is None)):
        key = None
        if event is not None:
            name = event_key(log, event[8:40], 0)
            key = event_key(log, event[8:40], equal[log.block_hash.raw, name])
            equal[log.block_hash.raw, name] += 1
        connection.execute(
            "INSERT OR IGNORE INTO journal_events (hash, payload, event, chain, block) VALUES (?, ?, ?, ?, 0)",
            (sha256(payload).digest(), payload, key, log.chain_id),
        )


def _log(payload: bytes) -> EventPayload | None:
    log = read_payload(EVENT, payload)
    return log if isinstance(log, EventPayload) else None


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    """Each statement alone: `executescript` would commit first."""
    for statement in statements.split(";"):
        connection.execute(statement)
