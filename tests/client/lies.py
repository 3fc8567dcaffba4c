"""Every lie about a record: the record with one of its facts changed, removed or repeated, in its right form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from typing import Any

from builders import Wallet
from middle import Answered, Asked, Behaviour, Forward
from muniment.protocol.evm.address import Address

_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")
_SIGNATURE = re.compile("0x[0-9a-f]{130}")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
Path = tuple[str | int, ...]


def other(value: Any) -> Any:
    """Another value of the same form."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str() if _ADDRESS.fullmatch(value):
            return str(Address.parse(value[:-1].lower() + ("1" if value[-1] == "0" else "0")))
        case str() if _SIGNATURE.fullmatch(value):
            return Wallet(5).sign_text(value)
        case str() if value.isdigit():
            return str(int(value) + 1)
        case str() if _VERSION.fullmatch(value):
            return f"{value[:-1]}{int(value[-1]) + 1}"
        case str() if value == "0x":
            return "0xff"
        case str() if value.startswith("0x"):
            return value[:-1] + ("1" if value[-1] == "0" else "0")
        case str():
            return f"{value}x"
        case _:
            return "0x" + "cd" * 32


def lies(record: Any, but: Collection[str] = (), path: Path = ()) -> Iterator[tuple[str, Any]]:
    """The name of each lie, and the record with it. `but` are paths, with `*` for an index, which are left out."""
    for name, value in record.items() if isinstance(record, dict) else enumerate(record):
        here: Path = (*path, name)
        shown = ".".join("*" if isinstance(part, int) else part for part in here)
        if shown in but:
            continue
        if isinstance(value, dict | list) and value:
            for inner, changed in lies(value, but, here):
                yield inner, _with(record, name, changed)
        elif value in ({}, []):
            yield f"{shown} filled", _with(record, name, {"more": 1} if value == {} else [1])
        else:
            yield f"{shown} changed", _with(record, name, other(value))
        yield f"{shown} removed", _without(record, name)
    if isinstance(record, list):
        yield f"{'.'.join(map(str, path))} repeated", [*record, deepcopy(record[-1])]


def _with(record: Any, name: Any, value: Any) -> Any:
    changed = deepcopy(record)
    changed[name] = value
    return changed


def _without(record: Any, name: Any) -> Any:
    changed = deepcopy(record)
    del changed[name]
    return changed


def telling(change: Callable[[Any], Any], method: str = "", path: str = "") -> Behaviour:
    """A proxy that changes the JSON of answers, to requests of a method and a path that begin so."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        is_meant = asked.method.startswith(method) and asked.target.startswith(path)
        if not is_meant or "json" not in answer.headers.get("content-type", ""):
            return answer
        return answer._replace(content=json.dumps(change(json.loads(answer.content))).encode())

    return behave


def in_place_of(index: int, lie: Any) -> Callable[[Any], Any]:
    """Put `lie` in the place of the record of an answer, or of one record of a list."""

    def change(answer: Any) -> Any:
        return [*answer[:index], lie, *answer[index + 1 :]] if isinstance(answer, list) else lie

    return change
