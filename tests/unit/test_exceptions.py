"""Every exception crosses processes whole: pools of processes, and queues of jobs, pickle what a task raises."""

from __future__ import annotations

import copy
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import muniment
from each_row import each_row
from muniment.client import Reply
from muniment.client.flows.log.checkpoints import Signed
from muniment.protocol.errors import Fault, Refusal, StatusConflict
from muniment.protocol.log.checkpoints import Checkpoint
from muniment.protocol.log.notes import Note

# A value for each type that a parameter of an exception has: an exception with another one needs a row here.
VALUES: Final[dict[str, Any]] = {
    "str": "a text",
    "float": 1.5,
    "bool": True,
    "int | None": 7,
    "StopReason": "bad-argument",
    "Literal['no-block', 'no-answer', 'nodes-differ']": "no-block",
    "BaseException": OSError(5, "a cause"),
    "Signed": Signed(Note("log.example\n", ()), Checkpoint("log.example", 5, bytes(32))),
    "str | None": "/a/b",
    "Iterable[Fault]": (Fault("wrong", "/a"),),
    "Mapping[str, Any] | None": {"limit": 5},
}


def exceptions() -> list[type[BaseException]]:
    """Every exception that a module of the package defines."""
    names = [each.name for each in pkgutil.walk_packages(muniment.__path__, "muniment.") if "__main__" not in each.name]
    members = [member for name in names for member in vars(import_module(name)).values() if isinstance(member, type)]
    ours = {each for each in members if issubclass(each, BaseException) and each.__module__.startswith("muniment.")}
    return sorted(ours, key=lambda each: (each.__module__, each.__qualname__))


def made(kind: type[BaseException]) -> BaseException:
    """An exception of this class with a value for each parameter, and what a program may add."""
    if kind.__init__ in {Exception.__init__, BaseException.__init__, ValueError.__init__}:
        error = kind("a text")
    else:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for each in inspect.signature(kind).parameters.values():
            value = VALUES["str" if each.name == "message" else str(each.annotation)]
            if each.kind is each.KEYWORD_ONLY:
                named[each.name] = value
            else:
                positional.append(value)
        error = kind(*positional, **named)
    error.add_note("a note")
    return error


def unpickled(error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - what it reads was made here


def whole(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), repr(error), repr(error.args), repr(vars(error))


@each_row("again", [copy.copy, copy.deepcopy, unpickled])
def test_every_exception_survives_a_copy_and_a_pickle(again: Callable[[Any], Any]) -> None:
    lost: list[str] = []
    for kind in exceptions():
        error = made(kind)
        try:
            if whole(again(error)) != whole(error):
                lost.append(f"{kind.__module__}.{kind.__qualname__}: {whole(again(error))} is not {whole(error)}")
        except TypeError as fault:
            lost.append(f"{kind.__module__}.{kind.__qualname__}: {fault}")
    assert lost == []


def test_exceptions_of_every_room_are_tried() -> None:
    rooms = {each.__module__.split(".")[1] for each in exceptions()}
    assert rooms >= {"client", "protocol", "outgoing", "chains", "guest", "relayer", "service", "cli"}


def test_a_refusal_keeps_what_the_service_answered() -> None:
    error = StatusConflict("it has moved", pointer="/status", facts={"status": "failed"})
    error.answer = Reply(409, {"x-request-id": "abc"}, b"{}")
    again = unpickled(error)
    assert isinstance(again, Refusal)
    assert (again.code, again.faults, again.facts, again.answer) == (
        "status-conflict", error.faults, error.facts, error.answer,
    )  # fmt: skip
