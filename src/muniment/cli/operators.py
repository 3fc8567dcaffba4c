"""`muniment operators`: who may write intents, and what they wrote."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, TypeVar

from muniment.auth import operators
from muniment.evm.hex import Bytes32
from muniment.storage import open_database
from muniment.wire import encode, iso_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.settings import Settings
    from muniment.storage.database import Database

T = TypeVar("T")


def add(settings: Settings, name: str, *, as_json: bool) -> str:
    """The key that an operator gets, which is shown this once. Raises `ValueError` for no name, or one with a key."""
    key, now_ms = operators.new_key(secrets.token_bytes), _now_ms()
    _run(settings, lambda database: database.write(lambda tx: operators.add(tx, name, key, now_ms)))
    return _json({"name": name, "key": key}) if as_json else key


def revoke(settings: Settings, name: str) -> str:
    """Take an operator's key back. Raises `ValueError` if there is none."""
    now_ms = _now_ms()
    _run(settings, lambda database: database.write(lambda tx: operators.revoke(tx, name, now_ms)))
    return f"{name} has no key any more"


def show(settings: Settings, *, as_json: bool) -> str:
    """Every operator that ever was: name, since when the key is good, and when it was revoked."""
    found = _run(settings, operators.fetch_all)
    if as_json:
        return _json(
            [
                {"name": each.name, "createdAt": iso_time(each.created_at_ms), "revokedAt": _time(each.revoked_at_ms)}
                for each in found
            ]
        )
    return "\n".join(
        f"{each.name} since {iso_time(each.created_at_ms)}"
        + (f", revoked {_time(each.revoked_at_ms)}" if each.revoked_at_ms is not None else "")
        for each in found
    )


def audit(settings: Settings, *, operator: str | None, intent: str | None, limit: int, as_json: bool) -> str:
    """What was written, newest first. Raises `InvalidHex` for a hash that is none."""
    intent_hash = None if intent is None else Bytes32.parse(intent).raw
    found = _run(
        settings, lambda database: operators.audited(database, operator=operator, intent_hash=intent_hash, limit=limit)
    )
    rows = [
        {
            "at": iso_time(each.at_ms), "operator": each.operator, "action": each.action,
            "intent": Bytes32.from_raw(each.intent_hash),
        }
        for each in found
    ]  # fmt: skip
    return _json(rows) if as_json else "\n".join("  ".join(row.values()) for row in rows)


def _json(value: object) -> str:
    return encode(value).decode()


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_time(time_ms)


def _run(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    async def opened() -> T:
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            await database.check()
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(opened())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
