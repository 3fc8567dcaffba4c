"""Reading intents among a thousand and among a million of them, in process, taking turns; and the rate of an import."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from in_process import get, micros_of, unlimited
from muniment.app import Application, build_context
from muniment.http.paging import cursor_after

# So many are imported; the million is made of the latter, copied fifty times by statements of SQL.
FEW, IMPORTED, COPIES = 1_000, 20_000, 50
MANY = IMPORTED * COPIES
ROUNDS = 9
# A user has a hundred intents in either database, so that pages are as full in one as in the other.
INTENTS_PER_USER = 100
SETTLER = "0x609d831C0068844e11eF85a273c7F356212Fd6D1"
_FAR = "4102444800"

Micros = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Imported:
    """One import by the command, whole process."""

    lines: int
    seconds: float


def measure() -> tuple[Imported, Micros]:
    """What the larger import took, and for each reading the microseconds of each round among `few` and `many`."""
    with tempfile.TemporaryDirectory() as folder:
        few_dir, many_dir = Path(folder) / "few", Path(folder) / "many"
        fill(few_dir, FEW)
        imported = fill(many_dir, IMPORTED)
        copy_all(many_dir / "muniment.db")
        return imported, asyncio.run(_compare(few_dir, many_dir))


def fill(data: Path, count: int) -> Imported:
    """Import `count` intents by the command."""
    muniment = [sys.executable, "-m", "muniment"]
    subprocess.run([*muniment, "migrate", "--data-dir", str(data)], check=True, stdout=subprocess.DEVNULL)
    started = time.perf_counter()
    command = [*muniment, "intents", "import", "-", "--json", "--data-dir", str(data)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    for line in _lines(count):
        process.stdin.write(line)
    said, _ = process.communicate(timeout=3600)
    assert process.returncode == 0
    assert json.loads(said)["stored"] == count, said
    return Imported(count, time.perf_counter() - started)


def _lines(count: int) -> Iterator[bytes]:
    """Each intent with a proposal and a log; users and deadlines are spread, and two in a hundred stay `created`."""
    for number in range(count):
        user = f"0x{number % max(count // INTENTS_PER_USER, 1) + 1:040x}"
        status = "created" if number % 50 == 0 else "discarded"
        intent = {
            "op": number % 3, "user": user, "settler": SETTLER, "nonce": f"0x{number:064x}", "deadline": _FAR,
            "data": "0x" + "ab" * 200, "maxFees": [{"token": user, "amount": "1000"}], "events": [],
            "configSig": f"0x{number // 10:0128x}1b", "minValidations": 1, "status": status,
            "proposals": [{"solver": user, "data": "0x", "deadline": _FAR, "fees": ["7"]}],
            "logs": [{"level": "info", "data": "seen", "createdAt": "2026-11-20T19:48:00.123Z"}],
        }  # fmt: skip
        yield json.dumps(intent, separators=(",", ":")).encode() + b"\n"


def copy_all(database: Path) -> None:
    """Copies of every intent, with its proposal and its log, under other hashes and of other users and triggers."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA synchronous=OFF")
    columns = "generation, op, deadline, settler, status, standing, proposal_count, log_count, created_at_ms, record"
    for copy in range(1, COPIES):
        shift = copy * IMPORTED
        mark = copy.to_bytes(4)
        connection.execute(
            f"INSERT INTO intents (seq, hash, user_address, trigger_sig, {columns}) "
            "SELECT seq + ?, randomblob(32), "
            "CAST(substr(user_address, 1, 12) || ? || substr(user_address, 17) AS BLOB), "
            f"CAST(substr(trigger_sig, 1, 12) || ? || substr(trigger_sig, 17) AS BLOB), {columns} "
            "FROM intents WHERE seq <= ? ORDER BY seq",
            (shift, mark, mark, IMPORTED),
        )
        for table, identity in (("intent_proposals", "hash"), ("intent_logs", "identity")):
            rest = "status, record" if table == "intent_proposals" else "record"
            connection.execute(
                f"INSERT INTO {table} (intent_seq, n, {identity}, {rest}) "
                f"SELECT intent_seq + ?, n, randomblob(32), {rest} FROM {table} WHERE intent_seq <= ?",
                (shift, IMPORTED),
            )
    connection.commit()
    connection.close()


async def _compare(few_dir: Path, many_dir: Path) -> Micros:
    contexts = [build_context(unlimited(each)) for each in (few_dir, many_dir)]
    few_app, many_app = (Application(context) for context in contexts)
    targets = {
        "the first page": ("/intents", "/intents"),
        "a page by cursor, in the middle": (await _middle(few_app), await _middle(many_app)),
        "a user's newest": (_of_user(FEW), _of_user(IMPORTED)),
        "the newest that are created": ("/intents?status=created", "/intents?status=created"),
        "deadlines to come": ("/intents?deadlineAfter=1795204080", "/intents?deadlineAfter=1795204080"),
        "one by its hash": (await _one(few_app), await _one(many_app)),
    }
    micros: Micros = {name: {"few": [], "many": []} for name in targets}
    for turn in range(ROUNDS + 1):
        for name, (few_target, many_target) in targets.items():
            few_time, many_time = await micros_of(few_app, few_target), await micros_of(many_app, many_target)
            if turn:  # the first round warms up
                micros[name]["few"].append(few_time)
                micros[name]["many"].append(many_time)
    for context in contexts:
        await context.database.close()
    return micros


def _of_user(count: int) -> str:
    return f"/intents?user=0x{count // INTENTS_PER_USER // 2:040x}"


async def _middle(app: Application) -> str:
    """The page behind the row in the middle of the table; a cursor made here, for an offset may not be so large."""
    rows = await app.context.database.fetch("SELECT max(seq) FROM intents")
    return f"/intents?cursor={cursor_after('intents', rows[0][0] // 2, None).decode()}"


async def _one(app: Application) -> str:
    _, body = await get(app, "/intents?limit=1")
    return f"/intents/{json.loads(body)[0]['hash']}"
