"""Status of the log for its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from muniment.protocol.log.keys import keys_of_log
from muniment.protocol.wire import Record, iso_time
from muniment.service.resources.functions import store as functions
from muniment.service.resources.log.sequencing import opening, store
from muniment.service.resources.log.sequencing.mark import read_mark
from muniment.service.resources.log.sequencing.store import DEACTIVATION, FUNCTION, TRIGGER, Epoch
from muniment.service.resources.triggers import store as triggers

if TYPE_CHECKING:
    from muniment.service.context import Context
    from muniment.service.storage.database import Reader


class EpochState(Record, frozen=True):
    """An epoch: `size` leaves, the first `signed_size` of them in the last checkpoint, which is of `signed_at`."""

    epoch: int
    origin: str
    vkeys: list[str]
    state: str
    why: str | None
    size: int
    signed_size: int
    signed_at: str | None
    opened_at: str


class LogState(Record, frozen=True):
    """The log of a registry. `waiting` counts the facts that are in no tree yet; `key` is `no key`, `ours` or `other`.

    `halt_reason` would halt the log on this host; `mark_size` is the largest signed tree that this host knows.
    """

    name: str
    epochs: list[EpochState]
    waiting: dict[str, int]
    key: str
    halt_reason: str | None
    mark_origin: str | None
    mark_size: int | None

    def __str__(self) -> str:
        if not self.epochs:
            return "the log has not begun: the service begins it when MUNIMENT_TLOG_NAME is set"
        lines = list[str]()
        for each in self.epochs:
            why = f" ({each.why})" if each.why else ""
            signed = f"{each.signed_size} signed at {each.signed_at}" if each.signed_at else "nothing signed"
            lines += [f"{each.origin}: {each.state}{why}, {each.size} entries, {signed}", *each.vkeys]
        lines.append("waiting: " + ", ".join(f"{count} {name}" for name, count in self.waiting.items()))
        known = f"{self.mark_size} entries of {self.mark_origin}" if self.mark_origin else "nothing"
        lines.append(f"signed, as this host knows: {known}")
        lines.append(f"key at hand: {self.key}")
        if self.halt_reason:
            lines.append(f"on this host it would be halted: {self.halt_reason}")
        return "\n".join(lines)


async def look(context: Context) -> LogState:
    """Read the status; changes nothing. Raises `ValueError` for a damaged file of this host, and `OSError`."""
    database = context.database
    epochs = await store.all_epochs(database)
    mark = read_mark(context.settings.data_dir)
    signed, halt, waiting = mark.checkpoint if mark else None, None, dict[str, int]()
    if epochs:
        waiting = await _waiting(database, epochs[0])
        if mark or database.is_shared:  # a status must not claim a place
            place = await opening.place_of(context, mark)
            halt = await opening.find_halt_reason(context, epochs[0], mark, place)
    return LogState(
        name=context.settings.tlog_name, epochs=list(map(_state, epochs)), waiting=waiting,
        key=_key(context, epochs), halt_reason=halt,
        mark_origin=signed.origin if signed else None, mark_size=signed.size if signed else None,
    )  # fmt: skip


async def _waiting(database: Reader, epoch: Epoch) -> dict[str, int]:
    end = 2**63 - 1
    return {
        "functions": await functions.count_joined(database, epoch.after[FUNCTION] + 1, end),
        "triggers": await triggers.count_registered(database, epoch.after[TRIGGER] + 1, end),
        "deactivations": await triggers.count_ended(database, epoch.after[DEACTIVATION] + 1, end),
    }


def _state(epoch: Epoch) -> EpochState:
    at_ms = epoch.signed_at_ms
    return EpochState(
        epoch=epoch.epoch, origin=epoch.origin, vkeys=epoch.vkeys.split("\n"), state=epoch.state, why=epoch.why,
        size=epoch.size, signed_size=epoch.note_size, signed_at=None if at_ms is None else iso_time(at_ms),
        opened_at=iso_time(epoch.opened_at_ms),
    )  # fmt: skip


def _key(context: Context, epochs: list[Epoch]) -> str:
    has_file = (context.settings.data_dir / opening.KEY_FILE).exists()
    if not context.settings.tlog_key and (context.database.is_shared or not has_file):
        return "no key"  # a status must not make the file
    secret = opening.secret_of(context)
    is_ours = bool(secret and epochs and keys_of_log(epochs[0].origin, secret)[0].verifier.text == epochs[0].vkey)
    return "ours" if is_ours else "other"


def shown(state: LogState) -> dict[str, Any]:
    """The members of a JSON object."""
    return msgspec.to_builtins(state)
