"""Times in words on the command line."""

from __future__ import annotations

from each_row import each_row
from muniment.cli.output import relative


@each_row(
    ("seconds", "words"),
    [
        (0.5, "now"), (-0.5, "now"), (1, "in 1 s"), (-119, "119 s ago"), (120, "in 2 minutes"),
        (7_199, "in 119 minutes"), (-7_200, "2 hours ago"), (36 * 3_600, "in 36 hours"), (-172_800, "2 days ago"),
        (45 * 86_400, "in 45 days"), (-400 * 86_400, "13 months ago"), (730 * 86_400, "in 2 years"),
    ],
)  # fmt: skip
def test_a_distance_in_time_is_at_most_a_third_off(seconds: float, words: str) -> None:
    assert relative(seconds) == words
