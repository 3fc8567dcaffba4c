"""Begins epochs of the log, and finds reasons to halt it: the place of the database, and the mark of the host.

A log that finds its database elsewhere, or with fewer entries than were signed, is halted: its operator decides.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muniment import durable
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.entries import NO_EPOCH, LogFact, Reason, previous_epoch
from muniment.protocol.log.fields import HASH_BYTES
from muniment.protocol.log.notes import keys_of_log, parse_note, parse_verifier_key
from muniment.protocol.log.tiles import EMPTY, grow
from muniment.protocol.wire import iso_time
from muniment.service.resources.log import store
from muniment.service.resources.log.checking import signed_cursors
from muniment.service.resources.log.facts import SOURCES
from muniment.service.resources.log.mark import Mark, claim_place, read_mark
from muniment.service.resources.log.store import KINDS, Epoch

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.service.context import Context
    from muniment.service.running.settings import Settings


KEY_FILE: Final = "tlog-key"
NEXT_KEY_FILE: Final = "tlog-key.next"
_NAME_BYTES: Final = 8
_MAY_SEE_PLACE: Final = """SELECT coalesce(
    has_function_privilege(to_regprocedure('pg_control_system()'), 'execute')
    AND has_function_privilege(to_regprocedure('pg_walfile_name(pg_lsn)'), 'execute'), false)"""
_PLACE: Final = """SELECT
    system_identifier::text || '-' || left(pg_walfile_name(pg_current_wal_lsn()), 8) || '-' || pg_database.oid::text
    FROM pg_control_system(), pg_database WHERE datname = current_database()"""


def name_fault(settings: Settings, epoch: Epoch) -> str | None:
    """The fault of settings that do not have the name of the log in the database."""
    name = epoch.origin.rpartition("/log/")[0]
    if settings.tlog_name == name:
        return None
    return f"the database has the transparency log {name}, and the setting tlog_name is {settings.tlog_name or 'empty'}"


def secret_of(context: Context) -> bytes | None:
    """The secret from which the keys of the log are derived, or None in a process that never signs.

    On SQLite it is in a file of the data directory, which this creates. Raises `ValueError` and `OSError`.
    """
    if context.settings.tlog_key:
        return bytes.fromhex(context.settings.tlog_key)
    if context.database.is_shared:  # PostgreSQL: several hosts would each have a file of their own
        return None
    return _secret_in(context, KEY_FILE)


def next_secret_of(context: Context) -> bytes:
    """The secret of the epoch after the newest one. Raises `ValueError` if the settings lack it, and `OSError`.

    On SQLite it is in a file, which this creates; `take_next_secret` makes it the secret of this registry.
    """
    if context.settings.tlog_key_next:
        return bytes.fromhex(context.settings.tlog_key_next)
    if context.settings.tlog_key or context.database.is_shared:
        raise ValueError("give the new secret in MUNIMENT_TLOG_KEY_NEXT: `openssl rand -hex 32` makes one")
    return _secret_in(context, NEXT_KEY_FILE)


def take_next_secret(context: Context) -> None:
    """Replace the file of the secret by the file of the next secret, if that exists. Raises `OSError`."""
    path = context.settings.data_dir / NEXT_KEY_FILE
    if not context.settings.tlog_key and path.exists():
        path.replace(path.with_name(KEY_FILE))
        durable.flush_directory(path.parent)


def _secret_in(context: Context, name: str) -> bytes:
    """The secret in a file of the data directory, created if missing. Raises `ValueError` and `OSError`."""
    path = context.settings.data_dir / name
    if not path.exists():
        _make_secret(context, path)
    try:
        secret = bytes.fromhex(path.read_text("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != HASH_BYTES:
        raise ValueError(f"{name} in the data directory does not have 64 hex digits")
    return secret


def _make_secret(context: Context, path: Path) -> None:
    """Create the file of a secret, unless another process was faster. Raises `OSError`."""
    # Written under another name: a process that is killed here must not leave an empty secret.
    aside = path.with_name(f".{path.name}.{context.random_bytes(_NAME_BYTES).hex()}.part")
    try:
        durable.write_file(aside, context.random_bytes(HASH_BYTES).hex().encode())
        with suppress(FileExistsError):
            os.link(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    durable.flush_directory(path.parent)


async def place_of(context: Context, mark: Mark | None) -> str:
    """An identifier that a copy of the database does not have; empty if the server does not reveal it.

    On SQLite it is a random text in the mark. On PostgreSQL it is the cluster, the database in it, and the
    timeline, since a failover may lose commits.
    """
    if not context.database.is_shared:
        if mark and mark.place:
            return mark.place
        return claim_place(context.settings.data_dir, context.random_bytes(_NAME_BYTES).hex()).place
    ((may_see,),) = await context.database.fetch(_MAY_SEE_PLACE)
    return (await context.database.fetch(_PLACE))[0][0] if may_see else ""


async def find_halt_reason(context: Context, epoch: Epoch, mark: Mark | None, place: str) -> str | None:
    """The reason to halt `epoch`, if there is one."""
    if place != epoch.place and place and epoch.place:
        return "the database is a copy, or it was moved or restored: it is not where the log was last open"
    signed = mark.checkpoint if mark else None
    if signed is None or signed.origin != epoch.origin:
        if signed is None or await store.has_origin(context.database, signed.origin):
            return None
        if 0 < _number_of(signed.origin, epoch.origin) < epoch.epoch:  # lost, and replaced by a later epoch
            return None
        return f"this host has signed checkpoints of {signed.origin}, which the database lacks"
    if epoch.size < signed.size:
        return f"this host has signed {signed.size} entries, and the database has {epoch.size}"
    return None


async def begin_epoch(
    context: Context, before: Epoch | None, mark: Mark | None, place: str, reason: Reason, secret: bytes | None = None
) -> Epoch | None:
    """Begin the epoch after `before`, or the first one. Returns None without a key.

    It continues after the signed entries of `before`; unsigned ones come into the new tree. `secret` defaults to the
    secret of this process. Raises `Overtaken` when another process was faster, `ValueError` and `OSError`.
    """
    secret = secret or secret_of(context)
    if secret is None:
        return None
    number = _next_number(before, mark)
    keys = keys_of_log(origin_of(context, number), secret)
    key, time_key = (each.verifier for each in keys)
    # The time of checkpoints is in seconds, and not before that of entries.
    now_ms = context.clock.now_ms() // 1000 * 1000
    fact = LogFact(key.name, key.text, _previous(before, mark), reason, iso_time(now_ms), time_key.text)
    edge = grow(EMPTY, [fact.data]).edge
    old = {kind: await source.rows.last_seq(context.database) for kind, source in SOURCES.items()}
    after = await signed_cursors(context.database, before, _shown_size(before)) if before else dict.fromkeys(KINDS, 0)
    new = Epoch(
        epoch=number, origin=key.name, vkeys=f"{key.text}\n{time_key.text}",
        state="open", why=None, place=place,
        size=edge.size, root=edge.root, backfilled=None, note=None, note_size=0, opened_at_ms=now_ms,
        after=after, backfill_until=old,
    )  # fmt: skip
    await context.database.write(lambda tx: store.begin(tx, new, edge))
    return new


def _next_number(before: Epoch | None, mark: Mark | None) -> int:
    """The number after `before` and after an epoch that the database has lost: no origin has two trees."""
    if before is None:
        return 1
    lost = _number_of(mark.checkpoint.origin, before.origin) if mark and mark.checkpoint else 0
    return max(before.epoch, lost) + 1


def _number_of(origin: str, other: str) -> int:
    """The number of an epoch in its origin; 0 if the name differs from that of `other`."""
    name, _, number = origin.rpartition("/")
    return int(number) if name == other.rpartition("/")[0] and number.isdecimal() else 0


def origin_of(context: Context, number: int) -> str:
    """The origin of an epoch: the name in the settings, and its number. Raises `ValueError` without a name."""
    if not context.settings.tlog_name:
        raise ValueError("set MUNIMENT_TLOG_NAME to the name of the log, as the service has it")
    return f"{context.settings.tlog_name}/log/{number}"


async def opened(context: Context) -> tuple[Epoch, str | None] | None:
    """The newest epoch, or the first one begun now, and the reason to halt it. None without a key.

    Raises `ValueError` for a damaged file of the host and for another name in the settings, `OSError`, and `Overtaken`.
    """
    mark = read_mark(context.settings.data_dir)
    place = await place_of(context, mark)
    epoch = await store.newest(context.database)
    if epoch is None:
        epoch = await begin_epoch(context, None, mark, place, "new")
        return (epoch, None) if epoch else None
    if epoch.state not in {"open", "closing"}:
        return epoch, None
    halt = await find_halt_reason(context, epoch, mark, place)
    if halt is None and (fault := name_fault(context.settings, epoch)):
        raise ValueError(fault)
    return epoch, halt


def _previous(before: Epoch | None, mark: Mark | None) -> tuple[str, str, str]:
    """`LogFact.previous` of the next epoch: the largest signed tree that this host knows."""
    if before is None:
        return NO_EPOCH
    known = mark.checkpoint if mark else None
    if known and _number_of(known.origin, before.origin) > before.epoch:  # an epoch that the database has lost
        return previous_epoch(known.origin, known.size, known.root)
    signed = [shown] if (shown := _shown(before)) else []
    if known and known.origin == before.origin:
        signed.append(known)
    last = max(signed, key=lambda each: each.size, default=Checkpoint(before.origin, 0, EMPTY.root))
    return previous_epoch(before.origin, last.size, last.root)


def _shown(epoch: Epoch) -> Checkpoint | None:
    """The published checkpoint of an epoch; None without one, or if it is damaged."""
    try:
        return open_checkpoint(parse_note((epoch.note or "").encode()), parse_verifier_key(epoch.vkey))
    except ValueError:
        return None


def _shown_size(epoch: Epoch) -> int:
    """The number of entries that an epoch has certainly published."""
    shown = _shown(epoch)
    return min(shown.size, epoch.note_size) if shown else 0
