"""Functions that take as much as they can of a relayer, as bundles by name. They need nothing, and send nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from wasmtime import wat2wasm

from muniment.client import Bundle

# Compiled from tests/e2e/functions.
_KEPT: Final = Path(__file__).parents[1] / "tests" / "vectors" / "guest"
_COMPILED: Final = ("endless", "endless_start", "much_memory", "million_logs", "long_text", "unknown_import")
_EXPORTS: Final = '(memory (export "memory") 1) (func (export "__pin") (param i32) (result i32) (local.get 0))'
# Calls are dear to compile: eight of these take more than ten seconds on a quick machine.
_DEAR: Final = f"(func {'(call 1)' * 60_000})"
_TEXTS: Final = {
    "late_abort": f"""
        (module (import "env" "abort" (func (param i32 i32 i32 i32))) {_EXPORTS}
          (func (export "main") (local $left i32) (local.set $left (i32.const 200000000))
            (loop (br_if 0 (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (call 0 (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))""",
    "nonsense": f"""
        (module (import "environment" "_getContext" (func $context (result i32))) {_EXPORTS}
          (func (export "__new") (param i32 i32) (result i32) (i32.const -1))
          (func (export "main") (drop (call $context))))""",
    "bomb": f'(module {_EXPORTS} (func (export "main")) {_DEAR * 8})',
}


def bundles() -> dict[str, Bundle]:
    """The functions, by name."""
    compiled = {name: (_KEPT / f"{name}.b.wasm").read_bytes() for name in _COMPILED}
    made = {name: bytes(wat2wasm(text)) for name, text in _TEXTS.items()}
    return {name: Bundle(_manifest(name), wasm) for name, wasm in {**compiled, **made}.items()}


def _manifest(name: str) -> bytes:
    members = {"version": "1.0.0", "name": name, "description": "Takes what it can", "inputs": {}}
    return json.dumps(members).encode()
