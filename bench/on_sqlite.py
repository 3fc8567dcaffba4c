"""The hot operations on SQLite, with a table of a million triggers.

A few thousand triggers are registered through the API. Copies under other signatures are put between them by SQL, of
many signers and functions, as real ones would be: number k of n in proportion to 1/k. Requests read registered ones.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import httpx2

import growth
from samples import INPUTS, forged, signed_triggers
from server import CURVES, PEER, check_answers, deploy, has_peer, muniment, register, start_peer, wait_for_log
from traffic import Loads, Scale, Traffic, take_turns

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


@dataclass
class Measured:
    """The loads of each operation, and its cost by the size of the table."""

    loads: Loads = field(default_factory=dict)
    growth: growth.Micros = field(default_factory=dict)


def measure(scale: Scale) -> Measured:
    """Seed, then measure."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        folders = {growth.FEW: home / "few", growth.SOME: home / "some", growth.ALL: home / "data"}
        data = home / "data"
        peers = {name: home / f"{at}.db" for at, name in enumerate(CURVES)} if has_peer() else {}
        with muniment(data, has_log=False) as service, httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
            seeded = signed_triggers(range(scale.registered), cid)
            register(service, seeded)
        _seed(scale, cid, folders, list(peers.values()))
        found = Measured(_loads(scale, data, peers, cid, seeded))
        found.growth = growth.measure(scale, folders, cid)
        return found


def _seed(scale: Scale, cid: str, folders: Mapping[str, Path], peers: list[Path]) -> None:
    data = folders[growth.ALL]
    _copy_some(data, 1_000, folders[growth.FEW])
    _spread(data / "muniment.db", scale.copies)
    _copy_some(data, scale.some_triggers, folders[growth.SOME])
    if peers:
        _for_peer(data / "muniment.db", cid, peers)


def _copy_some(data: Path, count: int, to: Path) -> None:
    """A registry with the same secrets, blocks and functions, and the first `count` triggers."""
    subprocess.run(
        [sys.executable, "-m", "muniment", "migrate", "--data-dir", str(to)], check=True, stdout=subprocess.DEVNULL
    )
    shutil.copytree(data, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db*"))
    _some(data / "muniment.db", count, to / "muniment.db")


def _loads(scale: Scale, data: Path, peers: Mapping[str, Path], cid: str, seeded: list[bytes]) -> Loads:
    new, wrong = signed_triggers([len(seeded)], cid)[0], forged(cid)
    with ExitStack() as stack:
        servers = {"muniment": stack.enter_context(muniment(data))}
        with httpx2.Client(base_url=servers["muniment"].url) as client:
            wait_for_log(client, scale.triggers)
            given = check_answers(client, seeded, new, wrong)
        for name, database in peers.items():
            servers[name] = stack.enter_context(start_peer(name, database))
            check_peer(servers[name].url, given, seeded, new, wrong)
        return take_turns(servers, Traffic(scale, cid, seeded), scale)


def check_peer(url: str, given: Mapping[str, httpx2.Response], seeded: list[bytes], new: bytes, wrong: bytes) -> None:
    """The peer reads the same bytes, refuses what is forged, and says the same but for the time of a creation."""
    with httpx2.Client(base_url=url) as client:
        for operation, same in check_answers(client, seeded, new, wrong).items():
            answer = given[operation]
            if operation.startswith("GET"):
                assert same.content == answer.content, operation
                assert [same.headers.get(name) for name in ("etag", "link")] == [
                    answer.headers.get(name) for name in ("etag", "link")
                ], operation
            else:
                assert {**same.json(), "createdAt": ""} == {**answer.json(), "createdAt": ""}


def _spread(database: Path, copies: int) -> None:
    """Put `copies` in front of each registered trigger. No other process has the database open."""
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


def _for_peer(database: Path, cid: str, peers: list[Path]) -> None:
    """The same triggers in the peers' databases."""
    first, *others = peers
    with closing(_quick(first)) as connection:
        connection.executescript((PEER / "schema.sqlite.sql").read_text("utf-8"))
        connection.execute("INSERT INTO functions VALUES (?, ?)", (cid, json.dumps(INPUTS)))
        connection.commit()
        connection.execute("ATTACH ? AS theirs", (str(database),))
        connection.execute(f"INSERT INTO triggers ({_COLUMNS}) SELECT {_COLUMNS} FROM theirs.triggers ORDER BY seq")
        connection.commit()
    for other in others:
        shutil.copyfile(first, other)


def _some(database: Path, count: int, few: Path) -> None:
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
