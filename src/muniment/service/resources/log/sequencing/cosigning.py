"""Cosignatures of witnesses, and the check against their checkpoints.

A witness that serves a checkpoint under the key of this log, which its tree does not contain, proves that another
database signed it. Then the log halts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from muniment.outgoing import Outgoing
from muniment.protocol.log.keys import parse_verifier_key
from muniment.service.resources.log.sequencing.checking import check_beginning, read_consistency
from muniment.service.resources.log.witnessing.policies import read_policy
from muniment.service.resources.log.witnessing.witness_client import SECONDS_MAX, CosignRequest, known_checkpoints
from muniment.service.resources.log.witnessing.witnesses import Witnesses

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.protocol.log.notes import Note
    from muniment.service.context import Context
    from muniment.service.resources.log.sequencing.store import Epoch
    from muniment.service.resources.log.witnessing.witness_client import KnownCheckpoint

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
