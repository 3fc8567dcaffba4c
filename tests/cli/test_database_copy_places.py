"""`muniment database copy` at odd places: a refused place stays as it was, and no part of a password is printed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from copying_world import Place, copy, new_database
from muniment.service.storage.migrate import LEDGER, migrations
from postgres import Cluster

OWNER = b"\xaa" * 20
ADD_USER = "INSERT INTO users (address, created_at_ms) VALUES (?, ?)"
ADD_TRIGGER = """INSERT INTO triggers
  (sig, signer, digest, function_digest, protocol, live, end_date_ms, created_at_ms, record)
  VALUES (?, ?, ?, ?, 'Mimic', 1, 0, ?, '{}')"""
# asyncpg takes what stands between the host and the first slash for a port, and repeats it.
BAD_URLS = (
    "postgresql://user:hidden/+word@127.0.0.1:1/x",
    "postgresql://user:hidden@127.0.0.1:99999/x",
    "postgresql://user:hidden@[::1/x",
)


def a_registry(data_dir: Path) -> Place:
    """A file with a user."""
    place = Place.at("sqlite:///old.db", data_dir)
    place.change((ADD_USER, (OWNER, 5)))
    return place


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_cannot_be_read_is_not_repeated(tmp_path: Path, url: str) -> None:
    file = a_registry(tmp_path)
    bad = Place.at(url, tmp_path)
    for source, target, name in ((bad, Place.at("sqlite:///new.db", tmp_path), "FROM"), (file, bad, "TO")):
        result = copy(source, target)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"Error: {name}: not a PostgreSQL URL")
        assert result.stderr.count("\n") == 1
        assert "hidden" not in result.stderr
    assert not (tmp_path / "new.db").exists()


def test_a_registry_of_an_older_release_is_not_migrated_to_be_refused(tmp_path: Path) -> None:
    first = migrations("sqlite")[0]
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        connection.executescript(f"{LEDGER}; {first.sql}")
        connection.execute("INSERT INTO schema_migrations VALUES (?, ?, 1)", (first.name, first.sha256))
        connection.execute(ADD_USER, (OWNER, 5))
        connection.commit()
        before = list(connection.iterdump())
    result = copy(a_registry(tmp_path), Place.at("sqlite:///new.db", tmp_path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: TO holds a registry: there are rows in users\n"
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        assert list(connection.iterdump()) == before


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    data_dir = tmp_path / os.fsdecode(b"#a ?b%41\xff")
    source, target = a_registry(data_dir), Place.at("sqlite:///new.db", data_dir)
    result = copy(source, target)
    assert result.exit_code == 0, result.output
    assert target.rows() == source.rows()


def test_a_difference_of_times_too_large_for_the_file_is_not_shown_as_none(tmp_path: Path, cluster: Cluster) -> None:
    source = asyncio.run(new_database(cluster, f"far-{tmp_path.name}", tmp_path))
    for n, at in ((1, 2**32), (2, 5)):
        source.change((ADD_TRIGGER, (bytes([n]) * 65, OWNER, bytes([n]) * 32, bytes(32), at)))
    target = Place.at("sqlite:///new.db", tmp_path)
    result = copy(source, target)
    assert result.exit_code == 0, result.output
    with closing(sqlite3.connect(tmp_path / "new.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2**31 - 1,)
