"""A test with a table tries every row of it, and names those that fail (`tests/support/each_row.py`)."""

from __future__ import annotations

import inspect

import pytest

from each_row import each_row


def test_every_row_is_tried_and_the_failing_ones_are_named() -> None:
    tried: list[int] = []

    @each_row("number", [1, 2, 3, 4])
    def odd(number: int) -> None:
        tried.append(number)
        assert number % 2 == 1

    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as raised:
        odd()
    assert tried == [1, 2, 3, 4]
    assert [failure.__notes__ for failure in raised.value.exceptions] == [["row: 2"], ["row: 4"]]


async def test_an_asynchronous_test_is_awaited_for_each_row() -> None:
    @each_row("given, expected", [pytest.param(1, 1, id="right"), pytest.param(1, 2, id="wrong")])
    async def same(given: int, expected: int) -> None:
        assert given == expected

    with pytest.raises(AssertionError) as raised:
        await same()
    assert raised.value.__notes__ == ["row: wrong"]


def test_tables_are_combined_and_fixtures_stay_parameters() -> None:
    tried: list[tuple[str, int, int]] = []

    @each_row("left", [1, 2])
    @each_row("right", [3, 4], ids=["three", "four"])
    def both(fixture: str, left: int, right: int) -> None:
        tried.append((fixture, left, right))

    assert list(inspect.signature(both).parameters) == ["fixture"]
    both(fixture="given")
    assert tried == [("given", 1, 3), ("given", 1, 4), ("given", 2, 3), ("given", 2, 4)]


def _skip() -> None:
    pytest.skip("not here")


def _expect_an_error() -> None:
    with pytest.raises(ValueError, match="never"):
        pass


@pytest.mark.parametrize(("ends", "says"), [(_skip, "skipped: not here"), (_expect_an_error, "DID NOT RAISE")])
def test_a_row_that_is_skipped_or_raises_nothing_fails(ends: object, says: str) -> None:
    @each_row("row", [ends])
    def tried(row: object) -> None:
        assert callable(row)
        row()

    with pytest.raises((AssertionError, pytest.fail.Exception), match=says):
        tried()


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(AssertionError, match="shows nothing"):
        each_row("row", [])
