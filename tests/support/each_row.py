"""A table of cases as one test.

`pytest.mark.parametrize` makes a test of each row. Each process of a run collects it, and it is set up, called, torn
down and reported: for a pure function that takes longer than the row itself, five seconds of a core for a thousand.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 100
_SKIPPED = pytest.skip.Exception


class _Tried:
    """What failed of the rows that were tried."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    @contextmanager
    def row(self, name: str) -> Generator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception, _SKIPPED) as error:  # noqa: BLE001 - it is raised after the last row
            # To skip a row would skip the rows after it, and hide what failed before.
            failure = AssertionError(f"skipped: {error}") if isinstance(error, _SKIPPED) else error
            failure.add_note(f"row: {name}")
            self.failures.append(failure)

    def end(self, rows: int) -> None:
        if len(self.failures) == 1:
            raise self.failures[0]
        if self.failures:
            message = f"{len(self.failures)} of {rows} rows"
            raise BaseExceptionGroup(message, self.failures)


def each_row(
    names: str | Sequence[str], table: Iterable[Any], *, ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test for each row, as `pytest.mark.parametrize` does, in one test, which names the rows that fail.

    All rows are tried. They share the fixtures of the test: for rows that change one, use `parametrize`.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = _rows(parameters, table, ids)

    def over_rows(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def one_test(**fixtures: Any) -> None:
            tried = _Tried()
            for name, row in rows:
                with tried.row(name):
                    test(**fixtures, **row)
            tried.end(len(rows))

        @functools.wraps(test)
        async def one_async_test(**fixtures: Any) -> None:
            tried = _Tried()
            for name, row in rows:
                with tried.row(name):
                    await cast("Coroutine[Any, Any, None]", test(**fixtures, **row))
            tried.end(len(rows))

        made = one_async_test if inspect.iscoroutinefunction(test) else one_test
        signature = inspect.signature(test)
        assert set(parameters) <= set(signature.parameters), f"{test.__name__} lacks some of {parameters}"
        fixtures = [value for name, value in signature.parameters.items() if name not in parameters]
        setattr(made, "__signature__", signature.replace(parameters=fixtures))  # noqa: B010 - no attribute for pyright
        return made

    return over_rows


def _rows(
    parameters: list[str], table: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None
) -> list[tuple[str, dict[str, Any]]]:
    names = iter(ids) if ids is not None and not callable(ids) else None
    rows: list[tuple[str, dict[str, Any]]] = []
    for given in table:
        values: Any = given
        name: object = None
        if isinstance(given, type(pytest.param())):
            assert not given.marks, "a row with marks needs a test of its own"
            values, name = (given.values[0] if len(parameters) == 1 else given.values), given.id
        row = [values] if len(parameters) == 1 else list(values)
        if names is not None:
            name = next(names)
        elif callable(ids):
            name = ids(values) if len(parameters) == 1 else [ids(value) for value in row]
        rows.append((str(name or ", ".join(map(_SHORT.repr, row))), dict(zip(parameters, row, strict=True))))
    assert rows, "a table without rows shows nothing"
    return rows
