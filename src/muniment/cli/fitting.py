"""Tables that fit into a terminal."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final

_GAP: Final = 2
# A column that may be cut keeps so many characters, if it has them.
_CUT_MIN: Final = 16


def terminal_width() -> int | None:
    """The width of the terminal, or of `COLUMNS`; None if it is unknown."""
    return shutil.get_terminal_size((0, 0)).columns or None


def fitted(widths: Sequence[int], cuts: Sequence[bool], room: int) -> list[int]:
    """The widths of the columns in a table that is at most `room` wide.

    Columns that may be cut become narrower, the widest first; if that is not enough, the last columns are left out.
    """
    least = [min(width, _CUT_MIN) if may_be_cut else width for width, may_be_cut in zip(widths, cuts, strict=True)]
    count = len(widths)
    while count > 1 and _total(least[:count]) > room:
        count -= 1
    fitting = [min(width, max(room, smallest)) for width, smallest in zip(widths[:count], least[:count], strict=True)]
    while _total(fitting) > room:
        widest = max(range(count), key=lambda at: fitting[at] - least[at] and fitting[at])
        if fitting[widest] == least[widest]:
            break
        fitting[widest] -= 1
    return fitting


def cut(text: str, width: int) -> str:
    """`text`, or its beginning and an ellipsis, in `width` characters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
