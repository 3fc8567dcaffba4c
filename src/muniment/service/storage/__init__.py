"""The database: one protocol, an engine per file, numbered migrations. Independent of resources and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.service.storage.database import DATABASE_LIMITS, DatabaseLimits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from muniment.protocol.errors import DatabaseUnavailable
    from muniment.service.running.metrics.recorder import DatabaseMetrics
    from muniment.service.storage.database import Database
    from muniment.service.storage.registry_copy import Source, Target
    from muniment.service.storage.replication.replicated import ReplicatedDatabase


def open_database(
    url: str, *, data_dir: Path, limits: DatabaseLimits = DATABASE_LIMITS, metrics: DatabaseMetrics | None = None
) -> Database:
    """The database at `url`; `sqlite:///relative.db` is inside `data_dir`, `sqlite:////absolute.db` is not.

    Raises `ValueError` for a URL that no engine knows.
    """
    if _engine(url) == "sqlite":
        from muniment.service.storage.sqlite.engine import SqliteDatabase  # noqa: PLC0415 - a driver is loaded only when it is used

        return SqliteDatabase(_path(url, data_dir), limits, metrics=metrics)
    from muniment.service.storage.postgres.engine import PostgresDatabase  # noqa: PLC0415 - a driver is loaded only when it is used

    return PostgresDatabase(url, limits, metrics=metrics)


def open_replicated(
    url: str,
    read_urls: Sequence[str],
    *,
    lag_s_max: float,
    limits: DatabaseLimits = DATABASE_LIMITS,
    metrics: DatabaseMetrics | None = None,
) -> ReplicatedDatabase:
    """The PostgreSQL database at `url` with replicas at `read_urls`, each of them one server.

    Reads from a replica are at most `lag_s_max` seconds old.
    """
    from muniment.service.storage.replication.replicated import ReplicatedDatabase  # noqa: PLC0415 - a driver is loaded only when it is used

    return ReplicatedDatabase(url, read_urls, lag_s_max=lag_s_max, limits=limits, metrics=metrics)


def open_source(url: str, *, data_dir: Path, name: str = "FROM") -> AbstractAsyncContextManager[Source]:
    """A snapshot of the database at `url`, to copy; errors call it `name`.

    Raises `ValueError` for a URL that no engine knows.
    """
    if _engine(url) == "sqlite":
        from muniment.service.storage.sqlite.copying import source  # noqa: PLC0415 - a driver is loaded only when it is used

        return source(_path(url, data_dir), name)
    from muniment.service.storage.postgres.admin.copying import source  # noqa: PLC0415 - a driver is loaded only when it is used

    return source(url, name)


def open_target(url: str, *, data_dir: Path) -> AbstractAsyncContextManager[Target]:
    """A transaction that fills the migrated database at `url`. Raises `ValueError` likewise."""
    if _engine(url) == "sqlite":
        from muniment.service.storage.sqlite.copying import target  # noqa: PLC0415 - a driver is loaded only when it is used

        return target(_path(url, data_dir))
    from muniment.service.storage.postgres.admin.copying import target  # noqa: PLC0415 - a driver is loaded only when it is used

    return target(url)


def sqlite_file(url: str, *, data_dir: Path) -> Path | None:
    """The file of the SQLite database at `url`; None for a database on a server. Raises `ValueError` likewise."""
    return _path(url, data_dir) if _engine(url) == "sqlite" else None


def is_away(url: str, error: DatabaseUnavailable) -> bool:
    """Whether the server at `url` may come back by itself after `error`. A file does not."""
    if _engine(url) == "sqlite":
        return False
    from muniment.service.storage.postgres.driver_errors import is_away  # noqa: PLC0415 - a driver is loaded only when it is used

    return error.__cause__ is not None and is_away(error.__cause__)


def _engine(url: str) -> str:
    """The engine of a database's URL. Raises `ValueError`."""
    if url.startswith("sqlite:///"):
        return "sqlite"
    if url.startswith(("postgresql://", "postgres://")):
        return "postgres"
    raise ValueError(f"no database engine for {url.partition(':')[0]!r} URLs; sqlite:///… and postgresql://… are known")


def _path(url: str, data_dir: Path) -> Path:
    return data_dir / url.removeprefix("sqlite:///")
