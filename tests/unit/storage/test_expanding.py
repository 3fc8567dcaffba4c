"""From release 1.0 on a migration only adds, and locks no table for long: the release before goes on serving."""

from __future__ import annotations

import re

from each_row import each_row
from muniment.service.storage.migrate import migrations

_NEW_TABLE = re.compile(r"CREATE TABLE (\w+)")
# https://www.postgresql.org/docs/current/sql-altertable.html: a column that may be NULL or has a constant for a default
# is added without touching a row, and an INSERT that does not name it goes on working.
_COLUMN = re.compile(r"ALTER TABLE \w+ ADD COLUMN (?!.*\b(?:UNIQUE|PRIMARY KEY|REFERENCES|CHECK)\b)(?P<rest>.+)")
_INDEX = re.compile(r"CREATE (?P<unique>UNIQUE )?INDEX (?P<beside>CONCURRENTLY )?\w+ ON (?P<table>\w+)")
_FILLING = re.compile(r"INSERT INTO (\w+)")
# Triggers that store events, and on PostgreSQL number them. They touch no row of another table but those that are new
# (decision 0044). On PostgreSQL CREATE TRIGGER waits for writers, and writers wait for it, as for a new column.
_EVENT = {
    "sqlite": re.compile(r"CREATE TRIGGER \w+_event AFTER [^;]*? BEGIN\s+(?:INSERT INTO|UPDATE) events\b[^;]*;\s+END;"),
    "postgres": re.compile(r"CREATE TRIGGER \w+_(?:event|number) (?:AFTER|BEFORE) [^;]*;"),
}
_BODY = re.compile(r"AS \$\$.*?\$\$", re.DOTALL)
_OTHER = re.compile(r"CREATE (?:SEQUENCE|FUNCTION)\b|ALTER TABLE (?P<table>\w+) ALTER COLUMN \w+ SET STORAGE\b")


def statements(sql: str) -> list[str]:
    """The statements of a migration, each on one line, without comments."""
    plain = _BODY.sub("", re.sub(r"--.*", "", sql))
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
        return match[1] in made
    if match := _INDEX.match(statement):
        if match["table"] in made:
            return not match["beside"]
        return not match["unique"] and (bool(match["beside"]) if engine == "postgres" else not match["beside"])
    match = _OTHER.match(statement)
    return bool(match) and (match["table"] is None or match["table"] in made)


@each_row("engine", ["sqlite", "postgres"])
def test_a_later_migration_only_expands(engine: str) -> None:
    assert {each.name: faults(engine, each.sql) for each in migrations(engine)[1:] if faults(engine, each.sql)} == {}


def test_both_engines_are_at_the_same_level() -> None:
    assert [each.name for each in migrations("sqlite")] == [each.name for each in migrations("postgres")]


@each_row(
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


@each_row(
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
