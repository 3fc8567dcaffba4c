"""Texts of strangers, for people: characters that show nothing, or move others, are written out. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final
from unicodedata import combining

# Default_Ignorable_Code_Point, which Python's `unicodedata` lacks (4,174 code points in DerivedCoreProperties.txt of
# Unicode 17.0), and others that fonts leave empty: U+2800, U+FFFC, U+16FE4 and U+1D159.
_EMPTY: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\ufffc\U00016fe4\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def _escaped(character: str) -> str:
    return "\\u0020" if character == " " else json.dumps(character)[1:-1]


def visible(text: str, *, keeps: str = "", written: Callable[[str], str] = _escaped) -> str:
    r"""`text` with JSON escapes, such as `\u202e`, in place of what is not seen; `written` gives another form.

    That is what `str.isprintable` refuses (controls, formats such as marks of writing direction, separators, spaces
    other than U+0020, characters that are private or unassigned), and what is empty by its nature. The characters in
    `keeps` stay. Of a text of spaces alone, each is written out,
    and so is a combining mark at the beginning.
    """
    if text and combining(text[0]):  # it would join what stands before it
        return written(text[0]) + text[1:].translate(_Forms(keeps, written))
    if not text.strip():
        return text.translate({ord(each): written(each) for each in set(text)})
    if text.isprintable() and (text.isascii() or not _EMPTY.search(text)):
        return text
    return text.translate(_Forms(keeps, written))


class _Forms(dict[int, str]):
    """The form in which each character of a text is shown: made once, however often the text has it."""

    def __init__(self, keeps: str, written: Callable[[str], str]) -> None:
        self._keeps, self._written = keeps, written

    def __missing__(self, point: int) -> str:
        character = chr(point)
        is_seen = character in self._keeps or (character.isprintable() and not _EMPTY.match(character))
        self[point] = character if is_seen else self._written(character)
        return self[point]
