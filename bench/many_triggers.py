"""Millions of triggers and intents in a PostgreSQL database, made by the server, spread as real ones would be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import asyncpg

from muniment.service.storage import open_database

SIGNERS: Final = 100_000
FUNCTIONS: Final = 1_000
RECORD_BYTES: Final = 1_200
# A trigger every three seconds: ten million in a year.
MS_BETWEEN: Final = 3_150
NOW_MS: Final = 1_795_000_000_000
# Ten rows in each transaction.
SEQ_BETWEEN: Final = 6_553

# Number k of n comes up in proportion to 1/k: the first signer has six of a hundred triggers, the last one a handful.
_FUNCTIONS = """
CREATE FUNCTION pg_temp.one_of(n double precision) RETURNS bigint LANGUAGE sql VOLATILE
  AS 'SELECT floor(exp(random() * ln(n + 1)))::bigint';
CREATE FUNCTION pg_temp.hash_of(what text, n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE
  AS 'SELECT sha256(convert_to(what || n, ''UTF8''))';
CREATE FUNCTION pg_temp.sig_of(n bigint) RETURNS bytea LANGUAGE sql IMMUTABLE
  AS 'SELECT sha256(convert_to(''r'' || n, ''UTF8'')) || sha256(convert_to(''s'' || n, ''UTF8'')) || ''\\x1b''';
"""
# $1, $2: the first and the last number; $3: between two sequence numbers; $4: signers; $5: functions;
# $6: milliseconds between two; $7: the time of the last one; $8: its number; $9: bytes of a record.
TRIGGERS_SQL = """
INSERT INTO triggers (seq, sig, signer, digest, function_digest, protocol, deactivated, live, end_date_ms,
                      created_at_ms, record)
SELECT n * $3::bigint, pg_temp.sig_of(n), substr(pg_temp.hash_of('signer', pg_temp.one_of($4::float8)), 1, 20),
       pg_temp.hash_of('digest', n), pg_temp.hash_of('function', pg_temp.one_of($5::float8)), 'Mimic',
       (state < 0.15)::int, (state >= 0.3)::int,
       CASE WHEN state < 0.15 OR state >= 0.6 THEN 0
            WHEN state < 0.3 THEN $7::bigint - 1 - (random() * 1e9)::bigint
            ELSE $7::bigint + 1 + (random() * 1e11)::bigint END,
       $7::bigint - ($8::bigint - n) * $6::bigint,
       rpad('{"sig":"0x' || encode(pg_temp.sig_of(n), 'hex') || '"', $9::int, '.')
FROM (SELECT n, random() AS state FROM generate_series($1::bigint, $2::bigint) n OFFSET 0) numbered
"""
INTENTS_SQL = """
INSERT INTO intents (seq, generation, hash, user_address, settler, trigger_sig, op, deadline, status, standing,
                     created_at_ms, record)
SELECT n * $3::bigint, 1, pg_temp.hash_of('intent', n),
       substr(pg_temp.hash_of('signer', pg_temp.one_of($4::float8)), 1, 20),
       substr(pg_temp.hash_of('settler', pg_temp.one_of(10)), 1, 20), pg_temp.sig_of(pg_temp.one_of($5::float8)),
       floor(random() * 3)::int,
       '\\x000000000000000000000000000000000000000000000000'::bytea
         || int8send(($7::bigint - ($8::bigint - n) * $6::bigint) / 1000 + 3600),
       status,
       CASE WHEN status IN ('created', 'enqueued', 'submitted') AND n < $8::bigint - 1000 THEN 'expired'
            ELSE status END,
       $7::bigint - ($8::bigint - n) * $6::bigint, rpad('{', $9::int, '.')
FROM (SELECT n, (ARRAY['succeeded', 'succeeded', 'succeeded', 'succeeded', 'succeeded', 'failed', 'created',
                       'enqueued', 'discarded', 'submitted'])[1 + floor(random() * 10)::int] AS status
      FROM generate_series($1::bigint, $2::bigint) n OFFSET 0) numbered
"""
_INDEXES = """
SELECT quote_ident(conname) AS name, pg_get_constraintdef(oid) AS definition, true AS is_constraint
FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'u'
UNION ALL
SELECT quote_ident(c.relname), pg_get_indexdef(c.oid), false
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = $1::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = c.oid)
ORDER BY 1
"""
_STATEMENT_ROWS: Final = 250_000


async def load(url: str, *, triggers: int, intents: int = 0) -> None:
    """Migrate the empty database at `url` and fill it."""
    await _migrate(url)
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute("SET maintenance_work_mem = '512MB'; SET work_mem = '64MB'; SET jit = off")
        await prepare(connection)
        await _fill(connection, "triggers", TRIGGERS_SQL, triggers)
        await _fill(connection, "intents", INTENTS_SQL, intents)
        await connection.execute("VACUUM (ANALYZE)")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    await _migrate(url)  # so that new rows are numbered after these


async def prepare(connection: Any) -> None:
    """Define functions for the statements. Rows get no events; random numbers are the same in each run."""
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(_FUNCTIONS)
    await connection.execute("SELECT setseed(0.5)")


async def add(connection: Any, statement: str, first: int, last: int, count: int) -> None:
    """Add the rows number `first` to `last` of `count`, with the indexes that are there."""
    for start in range(first, last + 1, _STATEMENT_ROWS):
        await connection.execute(
            statement, start, min(start + _STATEMENT_ROWS - 1, last), SEQ_BETWEEN, float(SIGNERS), float(FUNCTIONS),
            MS_BETWEEN, NOW_MS, count, RECORD_BYTES,
        )  # fmt: skip


async def _fill(connection: Any, table: str, statement: str, count: int) -> None:
    """Rows first and indexes afterwards, which takes a tenth of the time."""
    began = time.monotonic()
    indexes = await connection.fetch(_INDEXES, table) if count > _STATEMENT_ROWS else []
    for name, _, is_constraint in indexes:
        what = f"ALTER TABLE {table} DROP CONSTRAINT {name} CASCADE" if is_constraint else f"DROP INDEX {name}"
        await connection.execute(what)
    await add(connection, statement, 1, count, count)
    for name, definition, is_constraint in indexes:
        await connection.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}" if is_constraint else definition
        )
        print(f"    {name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"  {count:,} {table}: {time.monotonic() - began:.0f} s", flush=True)


async def _migrate(url: str) -> None:
    database = open_database(url, data_dir=Path())
    try:
        await database.migrate()
    finally:
        await database.close()
