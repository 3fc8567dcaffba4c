"""Many triggers in SQLite: those that were registered through the API, and between them copies under other signatures.

The copies are of many signers and functions, as real ones would be: number k of n comes up in proportion to 1/k.
What is read in a measurement is among the registered ones, which are spread evenly over the whole table.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from peer import FOLDER
from samples import INPUTS

SIGNERS, FUNCTIONS = 100_000, 1_000
_DAY_MS = 86_400_000
_COLUMNS = "seq, sig, signer, digest, deactivated, created_at_ms, record"
_EVERYTHING = (
    "seq, sig, signer, digest, function_digest, protocol, deactivated, live, end_date_ms, created_at_ms, record"
)
# Of a hundred copies fifteen are deactivated, fifteen have ended, thirty will end. The record begins with the
# signature (`{"sig":"0x` and 130 digits); the fence of OFFSET 0 makes one value of each random one.
_COPIES = f"""
INSERT INTO triggers ({_EVERYTHING})
SELECT seq, sig, one_of_signers(), randomblob(32), one_of_functions(), protocol, state < 15, state >= 30,
       CASE WHEN state BETWEEN 15 AND 29 THEN created_at_ms - 1
            WHEN state BETWEEN 30 AND 59 THEN created_at_ms + ? ELSE 0 END,
       created_at_ms, '{{"sig":"0x' || lower(hex(sig)) || substr(record, 141)
FROM (SELECT registered.seq - copies.number AS seq, CAST(randomblob(64) || x'1b' AS BLOB) AS sig,
             abs(random()) % 100 AS state, protocol, created_at_ms, record
      FROM registered CROSS JOIN copies ORDER BY registered.seq, copies.number DESC LIMIT -1 OFFSET 0)
"""


def spread(database: Path, copies: int) -> None:
    """Put `copies` in front of each registered trigger. Nobody else has the database open."""
    with closing(_quick(database)) as connection:
        given = random.Random(5)
        for name, count in (("signers", SIGNERS), ("functions", FUNCTIONS)):
            connection.create_function(f"one_of_{name}", 0, _Choice(name, count, given))
        indexes = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'triggers' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        # Through negative numbers, so that no two have the same one on the way.
        connection.execute("UPDATE triggers SET seq = -seq * ?", (copies + 1,))
        connection.execute("UPDATE triggers SET seq = -seq")
        connection.execute("UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM triggers) WHERE name = 'triggers'")
        connection.execute("CREATE TEMP TABLE registered AS SELECT * FROM triggers")
        connection.execute("CREATE TEMP TABLE copies AS SELECT 0 AS number WHERE 0")
        connection.executemany("INSERT INTO copies VALUES (?)", ((number,) for number in range(1, copies + 1)))
        connection.execute(_COPIES, (_DAY_MS * 365,))
        for _, sql in indexes:
            connection.execute(sql)
        connection.commit()


class _Choice:
    """Draws 20 or 32 bytes for one of `count` signers or functions."""

    def __init__(self, name: str, count: int, given: random.Random) -> None:
        length = 20 if name == "signers" else 32
        self._drawn = [sha256(f"{name} {number}".encode()).digest()[:length] for number in range(count)]
        self._log, self._given = math.log(count), given

    def __call__(self) -> bytes:
        return self._drawn[min(int(math.exp(self._given.random() * self._log)) - 1, len(self._drawn) - 1)]


def for_peer(database: Path, cid: str, peers: list[Path]) -> None:
    """The same triggers in the peers' databases."""
    first, *others = peers
    with closing(_quick(first)) as connection:
        connection.executescript((FOLDER / "schema.sqlite.sql").read_text("utf-8"))
        connection.execute("INSERT INTO functions VALUES (?, ?)", (cid, json.dumps(INPUTS)))
        connection.commit()
        connection.execute("ATTACH ? AS theirs", (str(database),))
        connection.execute(f"INSERT INTO triggers ({_COLUMNS}) SELECT {_COLUMNS} FROM theirs.triggers ORDER BY seq")
        connection.commit()
    for other in others:
        shutil.copyfile(first, other)


def some(database: Path, count: int, few: Path) -> None:
    """Put the functions and the first `count` triggers into `few`, a migrated and empty database."""
    with closing(_quick(few)) as connection:
        connection.execute("ATTACH ? AS theirs", (str(database),))
        connection.execute("INSERT INTO functions SELECT * FROM theirs.functions")
        connection.execute(
            f"INSERT INTO triggers ({_EVERYTHING}) SELECT {_EVERYTHING} FROM theirs.triggers ORDER BY seq LIMIT ?",
            (count,),
        )
        connection.commit()


def _quick(database: Path) -> sqlite3.Connection:
    """A connection that keeps no journal and waits for no disk: what is made here can be made again."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=OFF")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-500000")
    return connection
