"""Members of TOML files that people write: what is wrong with one, in a sentence that says what to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

# How msgspec ends its texts, and names members (https://jcristharif.com/msgspec/, "Validation").
_PLACE: Final = re.compile(r" - at `(?:key in )?\$([^`]*)`\Z")
_MEMBER: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`\Z", re.DOTALL)
# How its texts about types and bounds begin.
_GENERIC: Final = ("Expected `", "Invalid enum value", "Invalid value")


def wrong_member(error: msgspec.ValidationError, samples: Mapping[str, str], where: str = "") -> str:
    """The sentence about a member that is wrong, unknown or missing.

    `samples` has what may be written for each member, by its path without numbers and keys (`relayer.chains`). `where`
    is the path of what was read. No value of the file is quoted: it may be a secret.
    """
    text = str(error)
    place = _PLACE.search(text)
    path = f"{where}{place[1] if place else ''}".removeprefix(".").replace("[...]", "")
    detail = _PLACE.sub("", text)
    field = _MEMBER.search(detail)
    if field is None and not detail.startswith(_GENERIC):
        return f"{path}: {detail}"  # a sentence of our own decoders
    if field is None:
        return f"{path or 'the file'} is wrong: write {sample_of(path, samples)}"
    member = f"{path}.{field[2]}".removeprefix(".")
    if field[1] == "missing required":
        return f"{member} is missing: write {sample_of(member, samples)}"
    return unknown_member(member, samples)


def unknown_member(member: str, samples: Mapping[str, str]) -> str:
    """The sentence about a member that nothing reads."""
    from difflib import get_close_matches  # noqa: PLC0415 - a service with a good file needs none of it

    table, _, name = member.rpartition(".")
    names = [known.rpartition(".")[2] for known in samples if known.rpartition(".")[0] == _plain(table)]
    if near := get_close_matches(name, names, 1):
        return f"{member} is unknown: write {sample_of(f'{table}.{near[0]}'.removeprefix('.'), samples)}"
    return f"{member} is unknown; known are {', '.join(names)}"


def sample_of(path: str, samples: Mapping[str, str]) -> str:
    """What may be written for a member."""
    known = _plain(path)
    while known not in samples and "." in known:
        known = known.rpartition(".")[0]
    return samples.get(known, "another value")


def _plain(path: str) -> str:
    return re.sub(r"\[[^\]]*\]", "", path)
