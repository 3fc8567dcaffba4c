"""The times of a form."""

from __future__ import annotations

from each_row import each_row
from muniment.service.console.reading import milliseconds_of


@each_row(
    ("text", "moment_ms"),
    [
        ("1970-01-01T00:01", 60_000), ("1970-01-01T00:00:01.005", 1_005), ("2026-11-20T19:48:00", 1_795_204_080_000),
        ("2026-11-20", None), ("1795204080000", None), ("2026-11-20T19:48+01:00", None), ("T" * 23, None), ("", None),
        ("2026-11-20T19:48:00.123456", None),
    ],
)  # fmt: skip
def test_a_time_of_a_form_is_in_utc(text: str, moment_ms: int | None) -> None:
    assert milliseconds_of(text) == moment_ms
