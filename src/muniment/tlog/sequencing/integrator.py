"""The integrator: every two seconds it brings the facts that wait into the log, and signs a checkpoint.

Each process has one, and needs no lock: the one that stores a batch first wins, and the others have stored nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from muniment.tlog.checkpoints import Checkpoint, parse_checkpoint
from muniment.tlog.entries import TakenOverFact
from muniment.tlog.growth import Edge, grow
from muniment.tlog.keys import COSIGNATURE, SigningKey, keys_of_log
from muniment.tlog.notes import parse_note, sign_note, verified
from muniment.tlog.sequencing import opening, store
from muniment.tlog.sequencing.checking import check_beginning, check_stored, read_whole_edge
from muniment.tlog.sequencing.cosigning import Cosigning
from muniment.tlog.sequencing.cursors import check_cursors
from muniment.tlog.sequencing.facts import Waiting, read_waiting
from muniment.tlog.sequencing.mark import raise_mark, read_mark
from muniment.tlog.sequencing.runs import Run
from muniment.tlog.sequencing.store import DEACTIVATION, FUNCTION, TRIGGER, Epoch, Overtaken
from muniment.tlog.sequencing.times import signed_at_ms
from muniment.wire import iso_time

if TYPE_CHECKING:
    from muniment.context import Context

# A checkpoint that did not grow is signed again for its time.
_FRESH_S: Final = 60
# Between two batches, whose time says nothing where the process was stopped on the way.
_REST_S_MAX: Final = 0.1
# A fact that waits for longer is worth a warning; the log promises ten minutes.
_LATE_MS: Final = 300_000

# A log that closes has its last entry, and is signed as long as that is not signed.
_SIGNED: Final = frozenset({"open", "closing"})

_log = structlog.get_logger(__name__)


class Integrator:
    """Brings facts into the log of a registry until it is cancelled."""

    def __init__(self, context: Context) -> None:
        """Work with the database and the data directory of `context`."""
        self._context = context
        self._cosigning = Cosigning(context)
        self._is_compared = False

    async def close(self) -> None:
        """Close the connections to witnesses."""
        await self._cosigning.close()

    async def run(self) -> None:
        """Take turns until cancelled. The pause differs, so that processes do not meet."""
        try:
            await self._take_turns()
        finally:
            await self.close()

    async def _take_turns(self) -> None:
        while True:
            chance = int.from_bytes(self._context.random_bytes(4)) / 2**32
            await asyncio.sleep(self._context.settings.tlog_interval_s * (0.5 + chance))
            try:
                await self.turn()
                await self._show()
            except Overtaken:
                continue
            except Exception as error:  # noqa: BLE001 - the next turn may succeed; this task must not end
                _log.warning("the transparency log waits", error=type(error).__name__, detail=str(error))

    async def turn(self) -> None:
        """Bring in the facts that wait, and sign what has grown. Nothing is dated while the time is in doubt."""
        if self._context.clock.doubt() is not None:
            return
        found = await opening.opened(self._context)
        if found is None:
            return
        epoch, brake = found
        if brake:
            await self._halt(epoch, brake.why)
        elif epoch.state in _SIGNED:
            try:
                await self._work(epoch)
            except ValueError as error:
                await self._judge(epoch, error)

    async def _show(self) -> None:
        """Set the gauges of the log."""
        epoch, metrics = await store.newest(self._context.database), self._context.metrics
        if epoch is None:
            return
        metrics.gauge("tlog_entries").set(epoch.size)
        metrics.gauge("tlog_signed_entries").set(epoch.note_size)
        metrics.gauge("tlog_halted").set(epoch.state not in _SIGNED)
        if (at_ms := signed_at_ms(epoch)) is not None:
            metrics.gauge("tlog_checkpoint_timestamp_seconds").set(at_ms // 1000)

    async def _work(self, epoch: Epoch) -> None:
        if not self._is_compared:
            await self._compare(epoch)
        if epoch.note is not None:
            await asyncio.to_thread(raise_mark, self._context.settings.data_dir, epoch.note)
        edge: Edge | None = None
        if epoch.state == "open":
            await check_cursors(self._context.database, epoch)
            edge = await read_whole_edge(self._context.database, epoch)
        while edge is not None:
            begun_ms = self._context.clock.monotonic_ms()
            epoch, edge = await self._integrate(epoch, edge)
            # Where a million records wait, as when a log begins, requests still get half of the process.
            await asyncio.sleep(min((self._context.clock.monotonic_ms() - begun_ms) / 1000, _REST_S_MAX))
        if epoch.taken_over is not None:
            try:
                await self._publish(epoch)
            except ValueError as error:  # judged by the size that the epoch has now
                await self._judge(epoch, error)

    async def _compare(self, epoch: Epoch) -> None:
        """Once in the life of a process, compare the tree with what was signed, as this host and witnesses know.

        Raises `ValueError`.
        """
        mark = read_mark(self._context.settings.data_dir)
        signed = mark.checkpoint if mark else None
        if signed is not None and signed.origin == epoch.origin:
            await check_beginning(self._context.database, epoch, signed)
        await self._cosigning.compare(epoch)
        self._is_compared = True

    async def _judge(self, epoch: Epoch, error: ValueError) -> None:
        """Halt the log for what is wrong in it, unless another process has changed it meanwhile.

        Then the next turn begins with a comparison, before it signs anything.
        """
        now = await store.newest(self._context.database)
        self._is_compared = False
        if now is not None and (now.epoch, now.size, now.note_size) == (epoch.epoch, epoch.size, epoch.note_size):
            await self._halt(now, str(error))

    async def _halt(self, epoch: Epoch, why: str) -> None:
        _log.error("the transparency log is halted; the registry serves on", origin=epoch.origin, detail=why)
        await self._context.database.write(lambda tx: store.halt(tx, epoch, why))

    async def _integrate(self, epoch: Epoch, edge: Edge) -> tuple[Epoch, Edge | None]:
        """Store one batch, at most up to the end of a bundle; the tree then, without an edge when nothing was due."""
        # The time of the log is in whole seconds, and is never before that of an entry.
        database, now_ms = self._context.database, self._context.now_ms() // 1000 * 1000
        settled = await store.settled_before(database)
        ends = dict.fromkeys(epoch.after, settled)
        if epoch.taken_over is None:
            ends = {kind: min(settled, last + 1) for kind, last in epoch.old.items()}
        waiting = await read_waiting(database, epoch.after, ends, now_ms, edge.room)
        entries, taken_over = [each.data for each in waiting], epoch.taken_over
        after = {**epoch.after, **{each.kind: each.seq for each in waiting}}
        has_all_old = all(after[kind] >= last for kind, last in epoch.old.items())
        if taken_over is None and has_all_old and len(entries) < edge.room:
            taken_over = epoch.size + len(entries)
            entries.append(TakenOverFact(iso_time(now_ms)).data)
        if not entries:
            return epoch, None
        self._warn_late(epoch, waiting, now_ms)
        grown = await asyncio.to_thread(grow, edge, entries)
        new = _moved(epoch, grown.edge.size, grown.edge.root, after, taken_over)
        runs = _runs(epoch.size, waiting)
        await database.write(lambda tx: store.append(tx, epoch, grown, new, runs))
        return new, grown.edge

    def _warn_late(self, epoch: Epoch, waiting: list[Waiting], now_ms: int) -> None:
        late_ms = max((now_ms - each.since_ms for each in waiting), default=0)
        if epoch.taken_over is not None and late_ms > _LATE_MS:
            _log.warning("facts came late into the transparency log", seconds=late_ms // 1000)

    async def _publish(self, epoch: Epoch) -> None:
        """Check the stored tree, sign it, and show the checkpoint, if it has grown or its time is old."""
        keys = self._keys(epoch)
        if keys is None:
            return
        published, signed_s = _published(epoch, keys)
        now_s = max(self._context.now_ms() // 1000, signed_s)
        is_fresh = published and published.size == epoch.size and now_s - signed_s < _FRESH_S
        if is_fresh and not self._cosigning.is_due:
            return
        database = self._context.database
        await check_stored(database, epoch, published.size if published else 0)
        if published:
            await check_beginning(database, epoch, published)
        text = Checkpoint(epoch.origin, epoch.size, epoch.root).text
        signed = sign_note(text, keys, now_s)
        await asyncio.to_thread(raise_mark, self._context.settings.data_dir, signed.data.decode())
        note = await self._cosigning.cosign(epoch, signed, now_s)
        if note is not None:
            await database.write(lambda tx: store.publish(tx, epoch, note, epoch.size))

    def _keys(self, epoch: Epoch) -> tuple[SigningKey, SigningKey] | None:
        """The keys of the epoch; None: this process has none."""
        try:
            secret = opening.secret_of(self._context)
        except ValueError as error:  # of this host, and nothing is wrong in the log
            _log.error("the transparency log is not signed", detail=str(error))
            return None
        keys = keys_of_log(epoch.origin, secret) if secret else None
        if keys and "\n".join(each.verifier.text for each in keys) != epoch.vkeys:
            _log.error("the transparency log is not signed: it has other keys than this process", key=epoch.vkey)
            return None
        return keys


def _published(epoch: Epoch, keys: tuple[SigningKey, SigningKey]) -> tuple[Checkpoint | None, int]:
    """The checkpoint that is shown, and its time in seconds since 1970. Raises `ValueError` for a damaged one."""
    if epoch.note is None:
        return None, 0
    note = parse_note(epoch.note.encode())
    times = verified(note, [key.verifier for key in keys])
    if len(times) != len(keys):
        raise ValueError("the stored checkpoint has no signature by the keys of the log")
    at_s = max((at_s for key, at_s in times.items() if key.kind == COSIGNATURE), default=0)
    checkpoint = parse_checkpoint(note.text)
    if checkpoint.size != epoch.note_size:
        raise ValueError(f"the stored checkpoint has {checkpoint.size} entries, and not {epoch.note_size}")
    return checkpoint, at_s


def _moved(epoch: Epoch, size: int, root: bytes, after: dict[int, int], taken_over: int | None) -> Epoch:
    return msgspec.structs.replace(
        epoch, size=size, root=root, taken_over=taken_over,
        after_function=after[FUNCTION], after_trigger=after[TRIGGER], after_deactivation=after[DEACTIVATION],
    )  # fmt: skip


def _runs(first_index: int, waiting: list[Waiting]) -> list[Run]:
    """The runs of a batch whose first leaf is `first_index`: one for each kind."""
    runs = dict[int, Run]()
    for index, each in enumerate(waiting, first_index):
        run = runs.get(each.kind) or Run(each.kind, each.seq, index, 0)
        runs[each.kind] = msgspec.structs.replace(run, count=run.count + 1)
    return list(runs.values())
