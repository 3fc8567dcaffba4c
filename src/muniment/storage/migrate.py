"""Numbered migrations: each SQL file is applied once, in order, and remembered with its hash.

Each only expands what is there, because processes of the release before go on serving beside it: new tables, new
columns that are NULL or have a default, new indexes. What nobody uses any more is removed a release later at the
earliest. Code of a newer level waits for its migrations; code of an older one does not mind those that it lacks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

# The one table that exists before the first migration; both engines understand the statement.
LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
  name TEXT NOT NULL PRIMARY KEY,
  sha256 TEXT NOT NULL,
  applied_at_ms BIGINT NOT NULL
)"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file `NNNN_what.sql`."""

    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The hash of the file's text, by which a changed file is noticed."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(engine: str) -> list[Migration]:
    """All migrations of `engine`, in the order in which they apply."""
    folder = files("muniment.storage") / "migrations" / engine
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(name, (folder / name).read_text("utf-8")) for name in names]


def missing(known: list[Migration], applied: dict[str, str]) -> list[Migration]:
    """Those of `known` not among `applied` (name to hash).

    Raises `ValueError` when an applied file has changed since. Applied ones that are not known belong to a newer
    release, which only expands the schema; they are left alone.
    """
    for migration in known:
        if applied.get(migration.name, migration.sha256) != migration.sha256:
            raise ValueError(f"migration {migration.name} was applied with other contents")
    return [migration for migration in known if migration.name not in applied]
