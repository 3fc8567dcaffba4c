"""Short ids: the beginning of a signature, hash or CID, as lists show it on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from muniment.cli.client.service import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.client import Registry

# The newest records among which a short id is looked for: five pages.
LOOKED_THROUGH: Final = 500
# Six digits at least, with or without the mark of a list; fewer would often name several records.
_HEX: Final = re.compile(r"(0x[0-9a-f]{6,})…?", re.IGNORECASE)
_CID: Final = re.compile(r"(Qm[0-9A-Za-z]{6,43}|b[0-9a-z]{10,57})…?")
_SIG_LENGTH: Final = 132
_HASH_LENGTH: Final = 66


def whole_trigger(registry: Registry, given: str, flags: Mapping[str, Any]) -> str:
    """The signature that `given` begins: of a trigger of the wallet, or else of any. Raises `ValueError`.

    A stranger can make a signature that begins like another one, so those of the wallet come first.
    """
    address = place_of(flags).profile.address
    own = [_triggers(registry, signer=address)] if address else []
    return _only(given, _HEX, _SIG_LENGTH, "trigger", [*own, _triggers(registry)])


def whole_own_trigger(registry: Registry, given: str, flags: Mapping[str, Any]) -> str:
    """The signature of the active trigger of the wallet that `given` begins. Raises `ValueError`."""
    own = _triggers(registry, signer=place_of(flags).profile.address, active=True)
    return _only(given, _HEX, _SIG_LENGTH, "active trigger", [own])


def whole_intent(registry: Registry, given: str, flags: Mapping[str, Any]) -> str:
    """The hash that `given` begins: of an intent of the wallet, or else of any. Raises `ValueError`."""
    address = place_of(flags).profile.address
    own = [_intents(registry, user=address)] if address else []
    return _only(given, _HEX, _HASH_LENGTH, "intent", [*own, _intents(registry)])


def whole_run(registry: Registry, given: str) -> str:
    """The hash of the run that `given` begins. Raises `ValueError`."""
    return _only(given, _HEX, _HASH_LENGTH, "run", [(each.hash for each in registry.runs.list(newest_first=True))])


def whole_function(registry: Registry, given: str) -> str:
    """The CID of the function that `given` begins. Raises `ValueError`."""
    return _only(given, _CID, 0, "function", [(each.cid for each in registry.functions.list(newest_first=True))])


def _triggers(registry: Registry, **filters: Any) -> Iterable[str]:
    return (each.sig for each in registry.triggers.list(newest_first=True, **filters))


def _intents(registry: Registry, **filters: Any) -> Iterable[str]:
    return (each.hash for each in registry.intents.list(newest_first=True, **filters))


def _only(given: str, form: re.Pattern[str], length: int, noun: str, listings: Sequence[Iterable[str]]) -> str:
    """The only id that `given` begins, in the first listing that has one; `given` itself where it is no short id.

    A whole id has `length` characters; 0: its form tells.
    """
    match = form.fullmatch(given)
    if match is None or len(match[1]) >= (length or (46 if given.startswith("Qm") else 59)):
        return given
    start = match[1].lower() if length else match[1]
    for ids in listings:
        found = {each for each in islice(ids, LOOKED_THROUGH) if each.startswith(start)}
        if len(found) > 1:
            raise ValueError(f"{start} is the beginning of {len(found)} {noun}s: give more characters")
        if found:
            return found.pop()
    raise ValueError(f"none of the newest {LOOKED_THROUGH} {noun}s begins with {start}: give the whole value")
