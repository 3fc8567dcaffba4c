"""The witnesses of a log: all are asked at the same time, and one that fails is left alone for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from muniment.tlog.checkpoints import parse_checkpoint
from muniment.tlog.notes import SIGNATURES_MAX, Note
from muniment.tlog.witnessing.asking import Asked, Heard, Outcome, Witness, ask
from muniment.tlog.witnessing.policies import witnesses_of

if TYPE_CHECKING:
    from muniment.metrics.recorder import Metrics
    from muniment.outgoing import Outgoing
    from muniment.tlog.policy import Policy

_REST_MS_MAX: Final = 300_000
_OPPOSED: Final = frozenset({Outcome.AHEAD, Outcome.FORKED})

_log = structlog.get_logger(__name__)


class Cosigned(NamedTuple):
    """A note with the cosignatures that came, and whether they are enough for the policy.

    `opposed` has the names of the witnesses that were asked and have another tree of this log, or a larger one, as they
    say. `quorum` has those that said so when they were asked last, if they are a quorum; it is empty otherwise.
    """

    note: Note
    is_enough: bool
    opposed: tuple[str, ...]
    quorum: tuple[str, ...]


class _Memory(msgspec.Struct):
    """What a process remembers of a witness: its last answer, the size that it has, how long it is left alone."""

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
        """Ask through `outgoing`. A witness that fails is left alone for `pause_ms`, then for twice as long.

        `now_ms` is a clock that only goes forward.
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

    async def cosign(self, asked: Asked) -> Cosigned:
        """Ask the witnesses that are not left alone. Raises what `asked.prove` raises."""
        origin = parse_checkpoint(asked.note.text).origin
        if origin != self._origin:
            self._origin, self._memories = origin, [_Memory(each) for each in witnesses_of(self._policy)]
        now_ms = self._now_ms()
        due = [each for each in self._memories if each.due_ms <= now_ms]
        found = await asyncio.gather(*(self._ask(each, asked) for each in due), return_exceptions=True)
        for heard in found:
            if isinstance(heard, BaseException):
                raise heard
        room = SIGNATURES_MAX - len(asked.note.signatures)
        pairs = [(each.witness, heard) for each, heard in zip(due, found, strict=True) if isinstance(heard, Heard)]
        signed = [(witness, heard.signature) for witness, heard in pairs if heard.signature is not None][:room]
        note = Note(asked.note.text, (*asked.note.signatures, *(signature for _, signature in signed)))
        is_enough = self._policy.is_met([witness.key for witness, _ in signed])
        self._is_short = not is_enough
        opposed = tuple(witness.name for witness, heard in pairs if heard.outcome in _OPPOSED)
        return Cosigned(note, is_enough, opposed, () if is_enough else self._quorum_against(asked.size))

    async def _ask(self, memory: _Memory, asked: Asked) -> Heard:
        old = memory.size if memory.size <= asked.size else 0
        heard = await ask(self._outgoing, memory.witness, asked, old)
        self._count(memory.witness, heard.outcome, 1)
        memory.outcome, memory.size = heard.outcome, memory.size if heard.size is None else heard.size
        if heard.outcome is Outcome.COSIGNED:
            memory.failures, memory.due_ms = 0, 0
            return heard
        rest_ms = min(self._pause_ms << min(memory.failures, 32), _REST_MS_MAX)
        memory.failures, memory.due_ms = memory.failures + 1, self._now_ms() + rest_ms
        _log.warning(
            "a witness has not cosigned the checkpoint", witness=memory.witness.name, outcome=heard.outcome.value,
            detail=heard.detail, rests_s=rest_ms // 1000,
        )  # fmt: skip
        return heard

    def _count(self, witness: Witness, outcome: Outcome, count: int) -> None:
        labels = {"witness": witness.name, "outcome": outcome.value}
        self._metrics.counter("tlog_witness_answers_total", **labels).add(count)

    def _quorum_against(self, size: int) -> tuple[str, ...]:
        """The witnesses that contradict the tree of `size` leaves, if they are to be believed without a proof.

        One of several is not: it may lie.
        """
        against = [each.witness for each in self._memories if each.opposes(size)]
        is_alone = len(against) == 1 and len(self._memories) > 1
        is_quorum = bool(against) and not is_alone and self._policy.is_met([each.key for each in against])
        return tuple(each.name for each in against) if is_quorum else ()
