"""The `Accept` header field: media types with their weights (RFC 9110 section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

# Elements between commas, parameters between semicolons; either may be quoted. An unclosed quote takes the rest without
# backtracking: the time is linear.
_ELEMENT: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+', re.DOTALL)
_PART: Final = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+', re.DOTALL)
# Characters of the fields that are read: browsers send some 150, and each element takes microseconds on the event loop.
_LENGTH_READ: Final = 2_048
_QUALITY: Final = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")


class MediaRange(NamedTuple):
    """An element of `Accept`."""

    kind: str
    parameters: dict[str, str]
    quality: float


def media_ranges(accept: Iterable[str]) -> list[MediaRange]:
    """The elements of the `Accept` fields, refused ones (`q=0`) too; best first, wildcards last among equals.

    A malformed weight counts as 1. Characters after the first `_LENGTH_READ` are ignored.
    """
    found: list[MediaRange] = []
    for element in _ELEMENT.findall(",".join(accept)[:_LENGTH_READ]):
        kind, *rest = (part.strip() for part in _PART.findall(element) or [""])
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"').lower() for name, _, value in pairs}
        quality = parameters.pop("q", "1")
        found.append(MediaRange(kind.lower(), parameters, float(quality) if _QUALITY.fullmatch(quality) else 1.0))
    return sorted((each for each in found if each.kind), key=lambda each: (-each.quality, each.kind.endswith("*")))


def named_quality(ranges: Iterable[MediaRange], kind: str) -> float:
    """The weight of a media type that is named in full; 0 if it is not named, or refused."""
    return max((each.quality for each in ranges if each.kind == kind), default=0.0)


def quality(ranges: Iterable[MediaRange], kind: str) -> float:
    """The weight of a media type, from the most specific matching element; 0 without a match."""
    known = {each.kind: each.quality for each in reversed(list(ranges))}
    family = kind.partition("/")[0] + "/*"
    return next((known[name] for name in (kind, family, "*/*") if name in known), 0.0)
