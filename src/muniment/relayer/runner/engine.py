"""The name of what makes runs here, for their records."""

from __future__ import annotations

from importlib.metadata import version

from muniment.protocol.runs.texts import Engine


def this_engine() -> Engine:
    """This program and its WebAssembly engine, with their versions."""
    return Engine.parse(f"muniment {version('muniment')}, wasmtime {version('wasmtime')}")
