"""What there is to know about a log, for the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from muniment.functions import store as functions
from muniment.tlog.keys import keys_of_log
from muniment.tlog.sequencing import opening, store
from muniment.tlog.sequencing.mark import read_mark
from muniment.tlog.sequencing.store import DEACTIVATION, FUNCTION, TRIGGER, Epoch
from muniment.tlog.sequencing.times import signed_at_ms
from muniment.triggers import order as triggers
from muniment.wire import Record, iso_time

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.storage.database import Reader


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

    `brake` is what would halt the log on this host; `mark_size` is the size of the tree that this host knows signed.
    """

    setting: str
    epochs: list[EpochState]
    waiting: dict[str, int]
    key: str
    brake: str | None
    mark_origin: str | None
    mark_size: int | None

    def __str__(self) -> str:
        if not self.epochs:
            return "the log has not begun"
        lines = list[str]()
        for each in self.epochs:
            why = f" ({each.why})" if each.why else ""
            signed = f"{each.signed_size} signed at {each.signed_at}" if each.signed_at else "nothing signed"
            lines += [f"{each.origin}: {each.state}{why}, {each.size} entries, {signed}", *each.vkeys]
        lines.append("waiting: " + ", ".join(f"{count} {name}" for name, count in self.waiting.items()))
        known = f"{self.mark_size} entries of {self.mark_origin}" if self.mark_origin else "nothing"
        lines.append(f"this host knows to be signed: {known}")
        lines.append(f"key at hand: {self.key}")
        if self.brake:
            lines.append(f"on this host it would be halted: {self.brake}")
        return "\n".join(lines)


async def look(context: Context) -> LogState:
    """Look at the log; nothing is changed. Raises `ValueError` for a damaged file of this host, and `OSError`."""
    database = context.database
    epochs = await store.all_epochs(database)
    mark = read_mark(context.settings.data_dir)
    signed, brake, waiting = mark.checkpoint if mark else None, None, dict[str, int]()
    if epochs:
        waiting = await _waiting(database, epochs[0])
        if mark or database.visible_before:  # to look is not to claim a place
            place = await opening.place_of(context, mark)
            brake = await opening.find_brake(context, epochs[0], mark, place)
    return LogState(
        setting=context.settings.tlog, epochs=list(map(_state, epochs)), waiting=waiting,
        key=_key(context, epochs), brake=brake.why if brake else None,
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
    at_ms = signed_at_ms(epoch)
    return EpochState(
        epoch=epoch.epoch, origin=epoch.origin, vkeys=epoch.vkeys.split("\n"), state=epoch.state, why=epoch.why,
        size=epoch.size, signed_size=epoch.note_size, signed_at=None if at_ms is None else iso_time(at_ms),
        opened_at=iso_time(epoch.opened_at_ms),
    )  # fmt: skip


def _key(context: Context, epochs: list[Epoch]) -> str:
    has_file = (context.settings.data_dir / opening.KEY_FILE).exists()
    if not context.settings.tlog_key and (context.database.visible_before or not has_file):
        return "no key"  # to look is not to make one
    secret = opening.secret_of(context)
    is_ours = bool(secret and epochs and keys_of_log(epochs[0].origin, secret)[0].verifier.text == epochs[0].vkey)
    return "ours" if is_ours else "other"


def shown(state: LogState) -> dict[str, Any]:
    """The members of a JSON object."""
    return msgspec.to_builtins(state)
