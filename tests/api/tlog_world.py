"""What the tests of the transparency log share: its entries and its checkpoint, read as a verifier reads them."""

from __future__ import annotations

from typing import Any, LiteralString, NamedTuple

from conftest import Clock
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.notes import keys_of_log, parse_note, parse_verifier_key, verified
from muniment.protocol.log.tiles import split_entries, unpacked
from muniment.protocol.log.tree import complete_hash, leaf_hash, root_hash
from muniment.protocol.wire import iso_time
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.checking import check
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.opening import secret_of
from muniment.service.resources.log.store import Epoch
from muniment.service.storage.database import Transaction
from muniment.service.storage.sql import placeholders

KEY = "11" * 32
COLUMNS = "(sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)"
TABLES: tuple[LiteralString, ...] = ("tlog_epochs", "tlog_cursors", "tlog_tail", "tlog_tiles", "tlog_runs")


class Shown(NamedTuple):
    """A checkpoint whose both signatures were verified, and the time of the second."""

    checkpoint: Checkpoint
    at_s: int


async def epoch_of(context: Context) -> Epoch:
    found = await store.newest(context.database)
    assert found
    return found


async def turn(context: Context, clock: Clock) -> Epoch:
    """The epoch after a turn of an integrator that has just started, a second after all that was stored."""
    clock.advance(seconds=1)
    await Integrator(context).turn()
    return await epoch_of(context)


async def unsigned(context: Context, clock: Clock) -> Epoch:
    """Bring what waits into the log, as a process does that ends before it signs."""
    clock.advance(seconds=1)
    epoch = await epoch_of(context)
    return await Integrator(context)._grow(await check(context, epoch, since=0))


async def entries_of(context: Context) -> list[bytes]:
    """All entries of the newest epoch, from its bundles and its tail."""
    epoch = await epoch_of(context)
    bundles = await context.database.fetch(
        "SELECT data FROM tlog_tiles WHERE epoch = ? AND level = -1 ORDER BY n", (epoch.epoch,)
    )
    tail = await context.database.fetch(
        "SELECT entry FROM tlog_tail WHERE epoch = ? ORDER BY leaf_index", (epoch.epoch,)
    )
    return [entry for (bundle,) in bundles for entry in split_entries(unpacked(bundle))] + [entry for (entry,) in tail]


async def shown(context: Context) -> Shown:
    """What the log shows."""
    epoch = await epoch_of(context)
    assert epoch.note
    secret = secret_of(context)
    assert secret
    note, (key, time_key) = parse_note(epoch.note.encode()), keys_of_log(epoch.origin, secret)
    assert epoch.vkey == key.verifier.text
    times = verified(note, [key.verifier, time_key.verifier])
    assert set(times) == {key.verifier, time_key.verifier}
    return Shown(open_checkpoint(note, parse_verifier_key(epoch.vkey)), times[time_key.verifier])


def naive(entries: list[bytes]) -> bytes:
    """The root over entries, from nothing else."""
    hashes = [leaf_hash(each) for each in entries]
    return root_hash(len(hashes), lambda node: complete_hash(hashes[node.n << node.level : (node.n + 1) << node.level]))


def kinds(entries: list[bytes]) -> list[str]:
    return [entry.split(b"\n", 1)[0].decode().split("/")[1] for entry in entries]


_TOGETHER = 50


async def insert_rows(tx: Transaction, into: LiteralString, rows: list[tuple[Any, ...]]) -> None:
    """Insert `rows` by few statements; `into` is a table, and the columns if they are not all."""
    for begin in range(0, len(rows), _TOGETHER):
        some = rows[begin : begin + _TOGETHER]
        places = f"({placeholders(len(some[0]))})"
        values = ", ".join([places] * len(some))
        sql: LiteralString = f"INSERT INTO {into} VALUES {values}"  # pyright: ignore[reportAssignmentType] - see places
        await tx.execute(sql, [value for row in some for value in row])


async def add_triggers(context: Context, count: int, first: int = 1) -> None:
    """Rows of triggers in one transaction, as a process stores them; their records have what entries take from them."""
    now_ms = context.clock.now_ms()
    record = f'{{"functionCid":"Qm","description":"d","createdAt":"{iso_time(now_ms)}"}}'

    async def insert(tx: Transaction) -> None:
        rows = [
            (n.to_bytes(32) * 2 + b"\x1b", bytes(20), n.to_bytes(32), bytes(32), "Mimic", 0, now_ms, record)
            for n in range(first, first + count)
        ]
        await insert_rows(tx, f"triggers {COLUMNS}", rows)

    await context.database.write(insert)


class Kept:
    """The log as it was, in the database and in the files of the host."""

    def __init__(self, context: Context, rows: dict[LiteralString, list[tuple[Any, ...]]]) -> None:
        self._context, self._rows = context, rows
        self._files = {path: path.read_bytes() for path in context.settings.data_dir.glob("tlog-*")}

    @classmethod
    async def of(cls, context: Context) -> Kept:
        rows = dict[LiteralString, list[tuple[Any, ...]]]()
        for table in TABLES:
            found = await context.database.fetch(f"SELECT * FROM {table} ORDER BY 1, 2, 3")
            rows[table] = list(map(tuple, found))
        return cls(context, rows)

    async def put_back(self) -> None:
        async def work(transaction: Any) -> None:
            for table, rows in self._rows.items():
                await transaction.execute(f"DELETE FROM {table}")
                await insert_rows(transaction, table, rows)

        await self._context.database.write(work)
        for path in self._context.settings.data_dir.glob("*tlog-*"):
            path.unlink()
        for path, data in self._files.items():
            path.write_bytes(data)
            path.chmod(0o600)
