"""`make soak`: SOAK_ROUNDS kills (a hundred) under load on each engine, with what was lost and how long it took."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from crashing import kill_again_and_again, on_postgres, on_sqlite

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "100"))


def test_on_postgres_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with on_postgres(tmp_path) as site:
        course = asyncio.run(kill_again_and_again(site, ROUNDS))
    assert len(course.of_server) + len(course.of_services) == ROUNDS


def test_on_sqlite_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with on_sqlite(tmp_path) as site:
        course = asyncio.run(kill_again_and_again(site, ROUNDS))
    assert len(course.of_services) == ROUNDS
