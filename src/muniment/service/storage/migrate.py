"""The numbered migrations: each SQL file is applied once, in order, and recorded with its hash.

The `migrate` module of each engine applies them. From release 1.0 on a migration only adds to the schema, because
processes of the previous release still serve: new tables, new columns that are NULL or have a default, new indexes. An
unused table or column is removed one release later at the earliest. Newer code waits for its migrations; older code
ignores unknown ones. Until then `0001_initial.sql` may change, and a database with another one is refused.

The hash covers the whole file, comments included.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from muniment.protocol.errors import AnotherRevision, NotReady

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
        """The hash of the file's text, which shows a changed file."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(engine: str) -> list[Migration]:
    """All migrations of `engine`, in the order in which they apply."""
    folder = files("muniment.service.storage") / "migrations" / engine
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [Migration(name, (folder / name).read_text("utf-8")) for name in names]


def missing(known: list[Migration], applied: dict[str, str]) -> list[Migration]:
    """The migrations of `known` that are not in `applied` (name to hash).

    Raises `AnotherRevision` when one of `known` was applied with other contents. Unknown applied migrations are from a
    newer release, which only adds to the schema; they are ignored.
    """
    for migration in known:
        if applied.get(migration.name, migration.sha256) != migration.sha256:
            raise AnotherRevision(
                f"another revision of muniment made this database ({migration.name} differs), and this one does not "
                "upgrade it; nothing was changed. Keep that revision to read what the database holds. Begin a new "
                "registry with this one, and post functions, triggers and deactivations again; intents stay with the "
                "old registry"
            )
    return [migration for migration in known if migration.name not in applied]


def require_all(engine: str, applied: dict[str, str]) -> None:
    """Raise `NotReady` unless `applied` (name to hash) has every migration of `engine`."""
    if absent := missing(migrations(engine), applied):
        raise NotReady(f"the database lacks migrations: {', '.join(each.name for each in absent)}")
