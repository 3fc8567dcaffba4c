"""The integrator: every two seconds it adds waiting facts to the log, and signs a checkpoint, which witnesses cosign.

Each process has one, without locks: the first to store a batch wins, and the others store nothing.
A witness that serves a checkpoint under the key of this log, which its tree does not contain, proves that another
database signed it. Then the log halts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from muniment.outgoing import Outgoing
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.entries import BackfilledFact
from muniment.protocol.log.notes import (
    COSIGNATURE,
    SigningKey,
    keys_of_log,
    parse_note,
    parse_verifier_key,
    sign_note,
    verified,
)
from muniment.protocol.log.tiles import grow
from muniment.protocol.wire import iso_time
from muniment.service.resources.log import opening, store
from muniment.service.resources.log.checking import check, check_beginning, read_consistency
from muniment.service.resources.log.facts import Waiting, read_waiting
from muniment.service.resources.log.mark import raise_mark
from muniment.service.resources.log.store import KINDS, Batch, Checked, Epoch, Overtaken, Run
from muniment.service.resources.log.witnesses import (
    SECONDS_MAX,
    CosignRequest,
    Witnesses,
    known_checkpoints,
    read_policy,
)
from muniment.service.storage.epoch import settled_seq

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.protocol.log.notes import Note
    from muniment.service.context import Context
    from muniment.service.resources.log.store import Epoch
    from muniment.service.resources.log.witnesses import KnownCheckpoint


_log = structlog.get_logger(__name__)


class Cosigning:
    """The witnesses of a process. Without a policy, checkpoints are not cosigned."""

    def __init__(self, context: Context) -> None:
        """Ask the witnesses that the settings of `context` name. Raises `ValueError` for an unusable policy."""
        settings = context.settings
        self._database = context.database
        self._is_required = settings.tlog_witness_required
        self._policy = read_policy(settings)
        # The operator has named the witnesses, so they may be at private addresses.
        self._outgoing = Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX)
        self._witnesses = self._policy and Witnesses(
            self._policy, outgoing=self._outgoing, metrics=context.metrics,
            now_ms=context.clock.monotonic_ms, pause_ms=settings.tlog_interval_s * 1000,
        )  # fmt: skip

    async def close(self) -> None:
        """Close the connections to the witnesses."""
        await self._outgoing.close()

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint lacks witnesses that may be asked again now."""
        return self._witnesses is not None and self._witnesses.is_due

    async def compare(self, epoch: Epoch, names: Collection[str] | None = None) -> None:
        """Compare the tree with the checkpoints of all witnesses, or of those with these names.

        Raises `ValueError` when one has a checkpoint under the key of the log that the tree does not contain.
        """
        if self._policy is None:
            return
        key = parse_verifier_key(epoch.vkey)
        for known in await known_checkpoints(self._policy, epoch.origin, key, names=names):
            await self._compare_one(epoch, known)

    async def _compare_one(self, epoch: Epoch, known: KnownCheckpoint) -> None:
        if known.checkpoint is None or known.note is None:
            return
        try:
            await check_beginning(self._database, epoch, known.checkpoint)
        except ValueError as error:
            note = known.note.data.decode()
            _log.error("a witness contradicts the log", witness=known.witness, detail=str(error), note=note)
            text = f"the witness {known.witness} has a checkpoint under the key of this log: {error}"
            raise ValueError(text) from None

    async def cosign(self, epoch: Epoch, note: Note, now_s: int) -> str | None:
        """The note with the cosignatures of witnesses, or None if the quorum is required and missing.

        Raises `ValueError` when witnesses have another tree of this log.
        """
        if self._witnesses is None:
            return note.data.decode()

        async def prove(old: int) -> list[bytes]:
            return await read_consistency(self._database, epoch, old)

        cosigned = await self._witnesses.cosign(CosignRequest(note, epoch.size, now_s, prove))
        if cosigned.opposed:
            await self.compare(epoch, cosigned.opposed)
        if cosigned.quorum:
            names = ", ".join(cosigned.quorum)
            raise ValueError(f"a quorum of witnesses ({names}) has a larger or another tree of this log")
        if not cosigned.is_enough:
            what = "is held back" if self._is_required else "is published"
            _log.warning(f"a checkpoint {what} without the quorum of the witnesses", origin=epoch.origin)
            if self._is_required:
                return None
        return cosigned.note.data.decode()


# After this time a checkpoint is signed again, even if the log did not grow.
_FRESH_S: Final = 60
# The longest pause between two batches, also if the process was suspended during the first.
_REST_S_MAX: Final = 0.1
# Warn of facts that waited for longer; the log promises ten minutes.
_LATE_MS: Final = 300_000

# A closing log has its last entry, and is signed until that is signed.
_SIGNED: Final = frozenset({"open", "closing"})


class Integrator:
    """Adds facts to the log of a registry until it is cancelled."""

    def __init__(self, context: Context) -> None:
        """Work with the database and the data directory of `context`."""
        self._context = context
        self._cosigning = Cosigning(context)
        self._is_compared = False

    async def close(self) -> None:
        """Close the connections to witnesses."""
        await self._cosigning.close()

    async def run(self) -> None:
        """Take turns until cancelled. Random pauses keep the processes apart."""
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
                _log.warning(
                    "transparency log: batch failed, will retry", error=type(error).__name__, detail=str(error)
                )

    async def turn(self) -> None:
        """Add waiting facts and sign the result. Does nothing while the clock is in doubt."""
        if self._context.clock.doubt() is not None:
            return
        found = await opening.opened(self._context)
        if found is None:
            return
        epoch, why = found
        if why:
            await self._halt(epoch, why)
        elif epoch.state in _SIGNED:
            async with self._judged(epoch):
                checked = await self._check(epoch)
                if epoch.state == "open":
                    epoch = await self._grow(checked)
                else:
                    epoch = checked.epoch
                if epoch.backfilled is not None:
                    async with self._judged(epoch):  # the epoch as it is now counts
                        await self._sign(epoch)

    async def _show(self) -> None:
        """Set the gauges of the log."""
        epoch, metrics = await store.newest(self._context.database), self._context.metrics
        if epoch is None:
            return
        metrics.gauge("tlog_entries").set(epoch.size)
        metrics.gauge("tlog_signed_entries").set(epoch.note_size)
        metrics.gauge("tlog_halted").set(epoch.state not in _SIGNED)
        if (at_ms := epoch.signed_at_ms) is not None:
            metrics.gauge("tlog_checkpoint_timestamp_seconds").set(at_ms // 1000)

    async def _check(self, epoch: Epoch) -> Checked:
        """Prove the epoch before it grows; once in a process, witnesses are asked too. Raises `ValueError`."""
        checked = await check(self._context, epoch, since=epoch.size)
        if not self._is_compared:
            await self._cosigning.compare(epoch)
            self._is_compared = True
        if epoch.note is not None:
            await asyncio.to_thread(raise_mark, self._context.settings.data_dir, epoch.note)
        return checked

    @asynccontextmanager
    async def _judged(self, epoch: Epoch) -> AsyncGenerator[None]:
        """Halt the log for a `ValueError`, unless another process has changed it. The next turn compares first."""
        try:
            yield
        except ValueError as error:
            now = await store.newest(self._context.database)
            self._is_compared = False
            if now is not None and (now.epoch, now.size, now.note_size) == (epoch.epoch, epoch.size, epoch.note_size):
                await self._halt(now, str(error))

    async def _halt(self, epoch: Epoch, why: str) -> None:
        _log.error("the transparency log is halted; the registry keeps serving", origin=epoch.origin, detail=why)
        await self._context.database.write(lambda tx: store.halt(tx, epoch, why))

    async def _grow(self, checked: Checked) -> Epoch:
        """Store batches until no fact is due."""
        clock = self._context.clock
        begun_ms = clock.monotonic_ms()
        while (grown := await self._integrate(checked)) is not None:
            checked = grown
            # During a long backfill, requests get half of the process.
            await asyncio.sleep(min((clock.monotonic_ms() - begun_ms) / 1000, _REST_S_MAX))
            begun_ms = clock.monotonic_ms()
        return checked.epoch

    async def _integrate(self, checked: Checked) -> Checked | None:
        """Store a batch, at most up to the end of a bundle. None if no fact was due."""
        # The log's time is in whole seconds, and never earlier than that of an entry.
        database, now_ms = self._context.database, self._context.clock.now_ms() // 1000 * 1000
        (epoch, edge), settled = checked, await settled_seq(database)
        ends = dict.fromkeys(KINDS, settled)
        if epoch.backfilled is None:
            ends = {kind: min(settled, last + 1) for kind, last in epoch.backfill_until.items()}
        waiting = await read_waiting(database, epoch.after, ends, now_ms, edge.room)
        entries, backfilled = [each.data for each in waiting], epoch.backfilled
        after = {**epoch.after, **{each.kind: each.seq for each in waiting}}
        has_all_old = all(after[kind] >= last for kind, last in epoch.backfill_until.items())
        if backfilled is None and has_all_old and len(entries) < edge.room:
            backfilled = epoch.size + len(entries)
            entries.append(BackfilledFact(iso_time(now_ms)).data)
        if not entries:
            return None
        self._warn_late(epoch, waiting, now_ms)
        grown = await asyncio.to_thread(grow, edge, entries)
        batch = Batch(grown, after, backfilled, _runs(epoch.size, waiting))
        return await database.write(lambda tx: store.append(tx, checked, batch))

    def _warn_late(self, epoch: Epoch, waiting: list[Waiting], now_ms: int) -> None:
        late_ms = max((now_ms - each.since_ms for each in waiting), default=0)
        if epoch.backfilled is not None and late_ms > _LATE_MS:
            _log.warning("facts came late into the transparency log", seconds=late_ms // 1000)

    async def _sign(self, epoch: Epoch) -> None:
        """Prove the stored tree, sign and publish it, if it has grown or the last signature is old."""
        keys = self._keys(epoch)
        if keys is None:
            return
        signed_s = _signed_s(epoch, keys)
        now_s = max(self._context.clock.now_ms() // 1000, signed_s)
        is_fresh = epoch.note_size == epoch.size and now_s - signed_s < _FRESH_S
        if is_fresh and not self._cosigning.is_due:
            return
        checked = await check(self._context, epoch, since=epoch.note_size)
        text = Checkpoint(epoch.origin, epoch.size, epoch.root).text
        signed = sign_note(text, keys, now_s)
        await asyncio.to_thread(raise_mark, self._context.settings.data_dir, signed.data.decode())
        note = await self._cosigning.cosign(epoch, signed, now_s)
        if note is not None:
            await self._context.database.write(lambda tx: store.publish(tx, checked, note))

    def _keys(self, epoch: Epoch) -> tuple[SigningKey, SigningKey] | None:
        """The keys of the epoch, if this process has them."""
        try:
            secret = opening.secret_of(self._context)
        except ValueError as error:  # a fault of this host, not of the log
            _log.error("the transparency log is not signed", detail=str(error))
            return None
        keys = keys_of_log(epoch.origin, secret) if secret else None
        if keys and "\n".join(each.verifier.text for each in keys) != epoch.vkeys:
            _log.error("the transparency log is not signed: it has other keys than this process", key=epoch.vkey)
            return None
        return keys


def _signed_s(epoch: Epoch, keys: tuple[SigningKey, SigningKey]) -> int:
    """The time of the published checkpoint, in seconds since 1970; 0 without one. Raises `ValueError`."""
    if epoch.note is None:
        return 0
    times = verified(parse_note(epoch.note.encode()), [key.verifier for key in keys])
    if len(times) != len(keys):
        raise ValueError("the stored checkpoint has no signature by the keys of the log")
    return max(at_s for key, at_s in times.items() if key.kind == COSIGNATURE)


def _runs(first_index: int, waiting: list[Waiting]) -> list[Run]:
    """The runs of a batch whose first leaf is `first_index`: at most one for each kind."""
    runs = dict[int, Run]()
    for index, each in enumerate(waiting, first_index):
        run = runs.get(each.kind) or Run(each.kind, each.seq, index, 0)
        runs[each.kind] = msgspec.structs.replace(run, count=run.count + 1)
    return list(runs.values())
