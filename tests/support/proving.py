"""The console's proofs in JavaScript, run by Node.js."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from node_program import NodeProgram

HERE = Path(__file__).parents[1] / "e2e"
ASSETS = HERE.parents[1] / "src" / "muniment" / "service" / "console" / "assets"
_PROGRAM = NodeProgram(HERE / "proofs" / "prove.mjs")


class Failed(str):
    """The message of an error."""

    __slots__ = ()


def prove(*asked: tuple[Any, ...]) -> list[Any]:
    """The answers to calls of proofs, each `(function, *arguments)`; an error is a `Failed`."""
    return [answer.get("is") if "error" not in answer else Failed(answer["error"]) for answer in _PROGRAM.ask(asked)]
