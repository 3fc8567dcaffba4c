"""The name of what makes runs here, for their records."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from muniment.protocol.runs.texts import Engine

# The number of the rules by which a run is made. It rises with every change of what a run may give: what is decoded,
# answered, refused or logged, and its limits. docs/use/runs.md says what each changed. Records before 2 name none.
RULES: Final = 2


def this_engine() -> Engine:
    """This program and its WebAssembly engine, with their versions, and the number of the rules."""
    return Engine.parse(f"muniment {version('muniment')}, wasmtime {version('wasmtime')}, rules {RULES}")
