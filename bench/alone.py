"""The durable insert of a trigger measured alone: what a create cannot do without beside the recovery."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from muniment.storage.sqlite.connection import connect
from samples import SIGNERS
from scale import Scale
from server import CONNECTIONS

_INSERT = """
INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_GROUPS = 60


def inserts(database: Path, scale: Scale) -> list[float]:
    """CPU microseconds of an insert with its share of a commit, by round: as many to a commit as there are connections.

    The rows, the table and its indexes are the service's own, and so is the connection (WAL, synchronous=FULL).
    """
    with closing(connect(database)) as connection:
        # Of many signers, as those that come by HTTP are.
        like = connection.execute(
            "SELECT signer, function_digest, protocol, end_date_ms, created_at_ms, record FROM triggers "
            "ORDER BY seq DESC LIMIT ?",
            (len(SIGNERS),),
        ).fetchall()
        found: list[float] = []
        for number in range(scale.rounds + 1):
            micros = _round(connection, like)
            if number:
                found.append(micros)
    return found


def _round(connection: sqlite3.Connection, like: list[tuple[Any, ...]]) -> float:
    rows = [
        (os.urandom(65), signer, os.urandom(32), *rest) for signer, *rest in islice(cycle(like), _GROUPS * CONNECTIONS)
    ]
    started = time.process_time_ns()
    for first in range(0, len(rows), CONNECTIONS):
        connection.execute("BEGIN IMMEDIATE")
        for row in rows[first : first + CONNECTIONS]:
            connection.execute(_INSERT, row)
        connection.execute("COMMIT")
    return (time.process_time_ns() - started) / 1_000 / len(rows)
