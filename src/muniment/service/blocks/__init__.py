"""The block store: the blocks of bundles by their sha2-256 digests.

`store` is the protocol of all stores; `files` keeps blocks as files in the data directory, `table` in the database,
and `s3` in a bucket.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import asyncio

    from muniment.service.blocks.store import BlockStore
    from muniment.service.storage.database import Database

# The database of either engine, so that the setting stays correct when the service moves to the other engine.
IN_DATABASE: Final = "database:"


def open_blocks(
    url: str, *, data_dir: Path, database: Database, database_url: str, loop: asyncio.AbstractEventLoop | None
) -> BlockStore:
    """The store at `url`: `file:`, `file:///path`, `s3://bucket/prefix` or `database:`.

    `postgresql:` and `sqlite:` mean `database:` with that engine.

    An empty `url` means files with SQLite, and the table with PostgreSQL. `loop` is the event loop of `database`.
    Raises `ValueError` for any other `url`, and `StorageUnavailable` when the store cannot be opened.
    """
    url = place_of_blocks(url, database_url)
    if (directory := block_directory(url, data_dir)) is not None:
        from muniment.service.blocks.files import FileBlockStore  # noqa: PLC0415 - a store is loaded only when it is used

        return FileBlockStore(directory)
    if is_in_s3(url):
        return open_s3(url, spools=data_dir / "spools")
    from muniment.service.blocks.table import TableBlockStore  # noqa: PLC0415 - a store is loaded only when it is used

    return TableBlockStore(database, loop, spools=data_dir / "spools")


def place_of_blocks(url: str, database_url: str) -> str:
    """The URL itself, or the default of the engine if it is empty. Raises `ValueError` for another place."""
    engine = "sqlite:" if database_url.startswith("sqlite:") else "postgresql:"
    if not url:
        return "file:" if engine == "sqlite:" else IN_DATABASE
    if url not in {IN_DATABASE, engine} and not url.startswith("file:") and not is_in_s3(url):
        raise ValueError(
            f"blocks are kept in file:, file:///path, s3://bucket/prefix, {IN_DATABASE} or {engine} (the database of "
            f"this service), not in another {url.partition(':')[0]!r} place"
        )
    return url


def is_in_s3(url: str) -> bool:
    """Whether `url` means a bucket."""
    return url.startswith("s3:")


def open_s3(url: str, *, spools: Path) -> BlockStore:
    """The store in the bucket of `url`, whose uploads wait in `spools`.

    Raises `ValueError`, also without the library of the extra `s3`, and `StorageUnavailable`.
    """
    try:
        from muniment.service.blocks.s3 import S3BlockStore  # noqa: PLC0415 - only the extra `s3` has its library
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "obstore":
            raise
        raise ValueError("blocks in S3 need the library obstore. Type: pip install 'muniment[s3]'") from error
    return S3BlockStore(url, spools=spools)


def block_directory(url: str, data_dir: Path) -> Path | None:
    """The directory of a `file:` URL (RFC 8089); without a path, inside the data directory. None for other URLs.

    Raises `ValueError` for another host, and for a relative path.
    """
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in {"", "localhost"} or parts.query or parts.fragment:
        raise ValueError("a file: URL of blocks has an absolute path only, like file:///srv/blocks")
    if not parts.path:
        return data_dir / "blocks"
    if not parts.path.startswith("/"):
        raise ValueError("a file: URL of blocks has an absolute path, like file:///srv/blocks")
    return Path(unquote(parts.path))
