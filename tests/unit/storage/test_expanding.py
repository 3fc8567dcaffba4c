"""Every migration after the first leaves the release before it serving: it only adds, and locks no table for long."""

from __future__ import annotations

import re

import pytest

from muniment.storage.migrate import Migration, migrations

_NEW_TABLE = re.compile(r"CREATE TABLE (\w+)")
# https://www.postgresql.org/docs/current/sql-altertable.html: a column that may be NULL or has a constant for a default
# is added without touching a row, and an INSERT that does not name it goes on working.
_COLUMN = re.compile(r"ALTER TABLE \w+ ADD COLUMN (?!.*\b(?:UNIQUE|PRIMARY KEY|REFERENCES|CHECK)\b)(?P<rest>.+)")
_INDEX = re.compile(r"CREATE (?P<unique>UNIQUE )?INDEX (?P<beside>CONCURRENTLY )?\w+ ON (?P<table>\w+)")
_FILLING = re.compile(r"INSERT INTO (\w+)")
# SQLite's own table of the last numbers, and triggers that change nothing else: rows of the release before keep theirs.
_LAST_NUMBERS = "sqlite_sequence"
_NUMBERING = re.compile(r"CREATE TRIGGER \w+ AFTER INSERT ON \w+ BEGIN\s+UPDATE sqlite_sequence SET seq [^;]*;\s+END;")
# Triggers that store events, and on PostgreSQL number them. They touch no row of another table but those that are new
# (decision 0044). On PostgreSQL CREATE TRIGGER waits for writers, and writers wait for it, as for a new column.
_EVENT = {
    "sqlite": re.compile(r"CREATE TRIGGER \w+_event AFTER [^;]*? BEGIN\s+(?:INSERT INTO|UPDATE) events\b[^;]*;\s+END;"),
    "postgres": re.compile(r"CREATE TRIGGER \w+_(?:event|number) (?:AFTER|BEFORE) [^;]*;"),
}
_BODY = re.compile(r"AS \$\$.*?\$\$", re.DOTALL)
# These functions are replaced by others that give processes of the release before what they need. It locks no table
# (https://www.postgresql.org/docs/current/sql-createfunction.html).
_REPLACED = r"CREATE OR REPLACE FUNCTION (?:next_seq|settled_seq)\(\) RETURNS bigint\b"
_OTHER = re.compile(
    rf"{_REPLACED}|CREATE (?:SEQUENCE|FUNCTION)\b|ALTER TABLE (?P<table>\w+) ALTER COLUMN \w+ SET STORAGE\b"
)
# What is allowed in one file, with what tests/unit/storage/test_deactivation_numbers.py shows of it.
_EXCEPTIONS = {
    # The table is made again within the one transaction that writes. Other processes name the columns that they use.
    ("sqlite", "0013_deactivation_numbers.sql"): (
        r"ALTER TABLE deactivations RENAME TO deactivations_before|DROP TABLE deactivations_before"
    ),
    # It touches no row, and a row of the release before gets a number too.
    ("postgres", "0013_deactivation_numbers.sql"): (
        r"ALTER TABLE deactivations ALTER COLUMN seq SET DEFAULT next_seq\(\)"
    ),
    # A thousand rows in a transaction, which nobody else changes.
    ("postgres", "0015_deactivations_numbered.sql"): r"UPDATE deactivations SET seq = .* LIMIT 1000\) .*",
    # Nobody but the default and 0015 fills the column, with numbers that do not repeat.
    ("postgres", "0016_deactivations_by_seq.sql"): r"CREATE UNIQUE INDEX CONCURRENTLY .*",
    # Only 0015 used it.
    ("postgres", "0017_tlog.sql"): r"DROP INDEX deactivations_unnumbered",
}


def statements(sql: str) -> list[str]:
    """The statements of a migration, each on one line, without comments."""
    plain = _BODY.sub("", _NUMBERING.sub("", re.sub(r"--.*", "", sql)))
    for event in _EVENT.values():
        plain = event.sub("", plain)
    return [" ".join(each.split()) for each in plain.split(";") if each.strip()]


def faults(engine: str, sql: str) -> list[str]:
    """What in a migration would disturb those who serve meanwhile."""
    parts = statements(sql)
    made = {match[1] for each in parts if (match := _NEW_TABLE.match(each))}
    found = [each for each in parts if not _expands(engine, each, made)]
    if len(parts) > 1:  # it runs outside of a transaction, so it must be all there is
        found += [each for each in parts if "CONCURRENTLY" in each]
    return found


def _expands(engine: str, statement: str, made: set[str]) -> bool:
    if _NEW_TABLE.match(statement):
        return True
    if match := _COLUMN.match(statement):
        return "NOT NULL" not in match["rest"] or "DEFAULT" in match["rest"]
    if match := _FILLING.match(statement):
        return match[1] in {*made, _LAST_NUMBERS}
    if match := _INDEX.match(statement):
        if match["table"] in made:
            return not match["beside"]
        return not match["unique"] and (bool(match["beside"]) if engine == "postgres" else not match["beside"])
    match = _OTHER.match(statement)
    return bool(match) and (match["table"] is None or match["table"] in made)


LATER = [(engine, each) for engine in ("sqlite", "postgres") for each in migrations(engine)[1:]]


@pytest.mark.parametrize(("engine", "migration"), LATER, ids=[f"{engine}-{each.name}" for engine, each in LATER])
def test_a_later_migration_only_expands(engine: str, migration: Migration) -> None:
    found = faults(engine, migration.sql)
    allowed = _EXCEPTIONS.get((engine, migration.name))
    assert bool(found) == bool(allowed)
    assert [each for each in found if not re.fullmatch(allowed or "", each)] == []


def test_both_engines_are_at_the_same_level() -> None:
    assert [each.name for each in migrations("sqlite")] == [each.name for each in migrations("postgres")]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE triggers", "ALTER TABLE triggers DROP COLUMN live", "ALTER TABLE triggers RENAME TO t",
        "ALTER TABLE triggers RENAME COLUMN live TO alive", "UPDATE triggers SET live = 1", "DELETE FROM triggers",
        "ALTER TABLE triggers ADD COLUMN a text NOT NULL", "ALTER TABLE triggers ADD COLUMN a text UNIQUE",
        "ALTER TABLE triggers ALTER COLUMN live SET NOT NULL", "CREATE INDEX a ON triggers (live)",
        "CREATE OR REPLACE FUNCTION seq_base() RETURNS bigint LANGUAGE sql RETURN 1",
        "CREATE UNIQUE INDEX CONCURRENTLY a ON triggers (live)", "ALTER TABLE triggers ADD CHECK (live = 1)",
        "ALTER TABLE triggers ALTER COLUMN record SET STORAGE EXTERNAL",
        "CREATE INDEX CONCURRENTLY a ON triggers (live); CREATE TABLE b (c text)",
        "INSERT INTO leases VALUES ('a', 'b', 1)",
        "CREATE TRIGGER a AFTER INSERT ON intents BEGIN UPDATE intents SET status = 'failed'; END;",
        "CREATE TRIGGER a_event AFTER INSERT ON intents BEGIN UPDATE intents SET status = 'failed'; END;",
        "CREATE TRIGGER a AFTER INSERT ON intents FOR EACH ROW EXECUTE FUNCTION b();",
    ],
)  # fmt: skip
def test_migrations_that_contract_or_lock_are_noticed(sql: str) -> None:
    assert faults("postgres", sql)


@pytest.mark.parametrize(
    ("engine", "sql"),
    [
        ("postgres", "CREATE TABLE a (b text); CREATE UNIQUE INDEX c ON a (b);"),
        ("postgres", "CREATE TABLE a (b text); INSERT INTO a VALUES ('c');"),
        ("postgres", "-- DROP TABLE a;\nCREATE INDEX CONCURRENTLY a ON triggers (live);"),
        ("sqlite", "CREATE INDEX a ON triggers (live);"),
        ("sqlite", "ALTER TABLE triggers ADD COLUMN a TEXT; ALTER TABLE users ADD COLUMN b TEXT NOT NULL DEFAULT ''"),
    ],
)  # fmt: skip
def test_migrations_that_expand_pass(engine: str, sql: str) -> None:
    assert faults(engine, sql) == []
