"""Asks all witnesses of a log at the same time for cosignatures; a witness that fails is skipped for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from muniment.protocol.log.checkpoints import parse_checkpoint
from muniment.protocol.log.notes import SIGNATURES_MAX, Note
from muniment.service.resources.log.witnessing.policies import witnesses_of
from muniment.service.resources.log.witnessing.witness_client import CosignRequest, Outcome, Reply, Witness, ask

if TYPE_CHECKING:
    from muniment.outgoing import Outgoing
    from muniment.protocol.log.policy import Policy
    from muniment.service.running.metrics.recorder import Metrics

_REST_MS_MAX: Final = 300_000
_OPPOSED: Final = frozenset({Outcome.AHEAD, Outcome.FORKED})

_log = structlog.get_logger(__name__)


class Cosigned(NamedTuple):
    """A note with the cosignatures that came, and whether they are enough for the policy.

    `opposed` names the witnesses that now report another tree of this log, or a larger one. `quorum` names those whose
    last reply did, if they are a quorum; otherwise it is empty.
    """

    note: Note
    is_enough: bool
    opposed: tuple[str, ...]
    quorum: tuple[str, ...]


class _Memory(msgspec.Struct):
    """State of a witness in this process: its last outcome, its tree size, and until when it is skipped."""

    witness: Witness
    outcome: Outcome | None = None
    size: int = 0
    failures: int = 0
    due_ms: int = 0

    def opposes(self, size: int) -> bool:
        """Whether its last answer contradicts the tree of `size` leaves. A tree that has grown may have its leaves."""
        return self.outcome is Outcome.FORKED or (self.outcome is Outcome.AHEAD and self.size > size)


class Witnesses:
    """The witnesses with a URL of a policy."""

    def __init__(
        self, policy: Policy, *, outgoing: Outgoing, metrics: Metrics, now_ms: Callable[[], int], pause_ms: int
    ) -> None:
        """Ask through `outgoing`. A witness that fails is skipped for `pause_ms`, then for twice that time.

        `now_ms` is a monotonic clock.
        """
        self._policy, self._outgoing, self._metrics = policy, outgoing, metrics
        self._now_ms, self._pause_ms = now_ms, pause_ms
        self._origin: str = ""
        self._memories = list[_Memory]()
        self._is_short = False
        for witness in witnesses_of(policy):
            for outcome in Outcome:
                self._count(witness, outcome, 0)

    @property
    def is_due(self) -> bool:
        """Whether the last checkpoint lacks the quorum, and a witness that failed may be asked again."""
        now_ms = self._now_ms()
        return self._is_short and any(each.failures and each.due_ms <= now_ms for each in self._memories)

    async def cosign(self, request: CosignRequest) -> Cosigned:
        """Ask the witnesses that are due. Raises what `request.prove` raises."""
        origin = parse_checkpoint(request.note.text).origin
        if origin != self._origin:
            self._origin, self._memories = origin, [_Memory(each) for each in witnesses_of(self._policy)]
        now_ms = self._now_ms()
        due = [each for each in self._memories if each.due_ms <= now_ms]
        found = await asyncio.gather(*(self._ask(each, request) for each in due), return_exceptions=True)
        for reply in found:
            if isinstance(reply, BaseException):
                raise reply
        room = SIGNATURES_MAX - len(request.note.signatures)
        pairs = [(each.witness, reply) for each, reply in zip(due, found, strict=True) if isinstance(reply, Reply)]
        signed = [(witness, reply.signature) for witness, reply in pairs if reply.signature is not None][:room]
        note = Note(request.note.text, (*request.note.signatures, *(signature for _, signature in signed)))
        is_enough = self._policy.is_met([witness.key for witness, _ in signed])
        self._is_short = not is_enough
        opposed = tuple(witness.name for witness, reply in pairs if reply.outcome in _OPPOSED)
        return Cosigned(note, is_enough, opposed, () if is_enough else self._quorum_against(request.size))

    async def _ask(self, memory: _Memory, request: CosignRequest) -> Reply:
        old = memory.size if memory.size <= request.size else 0
        reply = await ask(self._outgoing, memory.witness, request, old)
        self._count(memory.witness, reply.outcome, 1)
        memory.outcome, memory.size = reply.outcome, memory.size if reply.size is None else reply.size
        if reply.outcome is Outcome.COSIGNED:
            memory.failures, memory.due_ms = 0, 0
            return reply
        rest_ms = min(self._pause_ms << min(memory.failures, 32), _REST_MS_MAX)
        memory.failures, memory.due_ms = memory.failures + 1, self._now_ms() + rest_ms
        _log.warning(
            "a witness has not cosigned the checkpoint", witness=memory.witness.name, outcome=reply.outcome.value,
            detail=reply.detail, rests_s=rest_ms // 1000,
        )  # fmt: skip
        return reply

    def _count(self, witness: Witness, outcome: Outcome, count: int) -> None:
        labels = {"witness": witness.name, "outcome": outcome.value}
        self._metrics.counter("tlog_witness_answers_total", **labels).add(count)

    def _quorum_against(self, size: int) -> tuple[str, ...]:
        """The witnesses that contradict the tree of `size` leaves, if they are a quorum.

        A single one of several witnesses is not enough: it may lie.
        """
        against = [each.witness for each in self._memories if each.opposes(size)]
        is_alone = len(against) == 1 and len(self._memories) > 1
        is_quorum = bool(against) and not is_alone and self._policy.is_met([each.key for each in against])
        return tuple(each.name for each in against) if is_quorum else ()
