"""Mark tests that break something which a check of `muniment doctor` must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def breaks(*_checks: str) -> Callable[[Test], Test]:
    """Mark a test with the names of the checks that it breaks; tests/unit/doctor/test_every_check.py compares them."""
    return lambda test: test
