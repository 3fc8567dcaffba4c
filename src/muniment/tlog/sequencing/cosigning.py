"""Checkpoints on their way to the witnesses, and the brake that witnesses are.

A witness that serves a checkpoint under the key of this log which its tree does not contain has proven that the
database is not the one that signed it. The log must not go on then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from muniment.outgoing import Outgoing
from muniment.tlog.keys import parse_verifier_key
from muniment.tlog.sequencing.checking import check_beginning, read_consistency
from muniment.tlog.witnessing.asking import SECONDS_MAX, Asked
from muniment.tlog.witnessing.knowing import known_checkpoints
from muniment.tlog.witnessing.policies import read_policy
from muniment.tlog.witnessing.witnesses import Witnesses

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.context import Context
    from muniment.tlog.checkpoints import Checkpoint
    from muniment.tlog.notes import Note
    from muniment.tlog.sequencing.store import Epoch
    from muniment.tlog.witnessing.asking import Known

_log = structlog.get_logger(__name__)


class Cosigning:
    """The witnesses of a process; without a policy there are none, and every checkpoint passes as it is."""

    def __init__(self, context: Context) -> None:
        """Ask the witnesses that the settings of `context` name. Raises `ValueError` for a policy of no use."""
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
        """Whether the checkpoint that was shown last lacks witnesses which may be asked again."""
        return self._witnesses is not None and self._witnesses.is_due

    async def compare(self, epoch: Epoch, names: Collection[str] | None = None) -> None:
        """Compare the tree with what witnesses have of it: all, or those with these names.

        Raises `ValueError` when one has a checkpoint under the key of the log that the tree does not contain.
        """
        if self._policy is None:
            return
        key = parse_verifier_key(epoch.vkey)
        for known in await known_checkpoints(self._policy, epoch.origin, key, names=names):
            await self._compare_one(epoch, known)

    async def _compare_one(self, epoch: Epoch, known: Known) -> None:
        if known.checkpoint is None or known.note is None:
            return
        why = await self._contradiction(epoch, known.checkpoint)
        if why is None:
            return
        _log.error("a witness contradicts the log", witness=known.witness, detail=why, note=known.note.data.decode())
        raise ValueError(f"the witness {known.witness} has a checkpoint under the key of this log: {why}")

    async def _contradiction(self, epoch: Epoch, signed: Checkpoint) -> str | None:
        if signed.size > epoch.size:
            return f"it has {signed.size} entries, and the database has {epoch.size}"
        try:
            await check_beginning(self._database, epoch, signed)
        except ValueError as error:
            return str(error)
        return None

    async def cosign(self, epoch: Epoch, note: Note, now_s: int) -> str | None:
        """The note with the cosignatures of witnesses; None: it is held back, since they are too few.

        Raises `ValueError` when witnesses have another tree of this log.
        """
        if self._witnesses is None:
            return note.data.decode()

        async def prove(old: int) -> list[bytes]:
            return await read_consistency(self._database, epoch, old)

        cosigned = await self._witnesses.cosign(Asked(note, epoch.size, now_s, prove))
        if cosigned.opposed:
            await self.compare(epoch, cosigned.opposed)
        if cosigned.quorum:
            names = ", ".join(cosigned.quorum)
            raise ValueError(f"a quorum of witnesses ({names}) has a larger or another tree of this log")
        if not cosigned.is_enough:
            what = "is held back" if self._is_required else "is shown"
            _log.warning(f"a checkpoint {what} without the quorum of the witnesses", origin=epoch.origin)
            if self._is_required:
                return None
        return cosigned.note.data.decode()
