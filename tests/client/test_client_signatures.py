"""The two facades of the client look alike."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from muniment.client import AsyncRegistry, Registry


def _operations(kind: type[Any]) -> dict[str, list[tuple[str, Any, Any]]]:
    """The operations of a part with their parameters: name, kind, default."""
    found: dict[str, list[tuple[str, Any, Any]]] = {}
    for name, member in inspect.getmembers(kind, callable):
        if not name.startswith("_"):
            parameters = inspect.signature(member).parameters.values()
            found[name] = [(each.name, each.kind, each.default) for each in parameters]
    return found


def test_both_facades_have_the_same_names_parameters_and_defaults() -> None:
    blocking, awaiting = Registry("http://127.0.0.1"), AsyncRegistry("http://127.0.0.1")
    parts = {name for name in vars(blocking) if not name.startswith("_")}
    assert parts == {name for name in vars(awaiting) if not name.startswith("_")}
    assert parts == {"functions", "triggers", "intents", "runs", "account", "events", "log"}
    for name in parts:
        mine, theirs = type(getattr(blocking, name)), type(getattr(awaiting, name))
        assert theirs.__name__ == f"Async{mine.__name__}"
        assert _operations(mine) == _operations(theirs)
        assert _operations(mine)
    mine, theirs = _operations(Registry), _operations(AsyncRegistry)
    # A blocking program has no writer: its writes are not side by side.
    assert {*theirs} - {*mine} == {"aclose", "writer"}
    assert mine["from_profile"] == theirs["from_profile"]
    begins = [inspect.signature(kind).parameters.values() for kind in (Registry, AsyncRegistry)]
    assert [(each.name, each.kind, each.default) for each in begins[0]] == [
        (each.name, each.kind, each.default) for each in begins[1]
    ]
    blocking.close()
    asyncio.run(awaiting.aclose())
