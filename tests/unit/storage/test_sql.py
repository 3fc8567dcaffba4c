"""The parts that SQL text is put together from."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from each_row import each_row
from muniment.service.storage import open_database
from muniment.service.storage.sql import Condition, Where, placeholders


def test_without_conditions_there_is_no_where_clause() -> None:
    assert Where().sql == ""
    assert Where().parameters == []


def test_conditions_are_joined_with_and_in_their_order() -> None:
    where = Where()
    where.add("a = ?", 1)
    where.add("b BETWEEN ? AND ?", 2, 3)
    assert where.sql == " WHERE a = ? AND b BETWEEN ? AND ?"
    assert where.parameters == [1, 2, 3]


def test_conditions_keep_their_order_and_their_values() -> None:
    where = Where.all_of(Condition("a = ?", (1,)), Condition("b"), Condition("c IN (?, ?)", (2, 3)))
    assert where.sql == " WHERE a = ? AND b AND c IN (?, ?)"
    assert where.parameters == [1, 2, 3]


@each_row("count", [1, 2, 100])
def test_there_is_a_placeholder_for_each_parameter(count: int) -> None:
    connection = sqlite3.connect(":memory:")
    rows = connection.execute(f"SELECT 1 WHERE 7 IN ({placeholders(count)})", [7] * count).fetchall()
    connection.close()
    assert rows == [(1,)]


@pytest.mark.parametrize("url", ["mysql://x", "sqlite:/x", "", "postgresql:x"])
def test_a_url_without_an_engine_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no database engine"):
        open_database(url, data_dir=tmp_path)
