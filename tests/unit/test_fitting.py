"""Tables that fit into a terminal."""

from __future__ import annotations

from each_row import each_row
from muniment.cli.fitting import cut, fitted


@each_row(
    ("widths", "cuts", "room", "expected"),
    [
        ([10, 6, 40], [False, False, True], 80, [10, 6, 40]),
        ([10, 6, 40], [False, False, True], 50, [10, 6, 30]),
        ([10, 40, 20], [False, True, True], 54, [10, 20, 20]),  # the widest is cut first
        ([10, 40, 18], [False, True, True], 48, [10, 17, 17]),
        ([10, 40, 6], [False, True, False], 35, [10, 23]),  # with the last column they would not fit
        ([10, 40, 6], [False, True, False], 38, [10, 18, 6]),
        ([50, 10], [False, True], 20, [50]),  # the first column stays, and is never cut
        ([10, 1_000_000], [False, True], 80, [10, 68]),
    ],
)
def test_columns_fit_into_the_room(widths: list[int], cuts: list[bool], room: int, expected: list[int]) -> None:
    assert fitted(widths, cuts, room) == expected


def test_a_text_that_is_too_long_ends_with_an_ellipsis() -> None:
    assert (cut("daily", 5), cut("weekly", 5)) == ("daily", "week…")
