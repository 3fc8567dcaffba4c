"""Small functions written as WebAssembly text, and their runs in this process, without a child."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from wasmtime import wat2wasm

from muniment.guest.engine import compile_wasm, new_engine
from muniment.guest.frames import Done, RunJob
from muniment.guest.module import FUNCTIONS
from muniment.guest.running import run
from muniment.guest.types import Answer, GuestInput, Question

CONTEXT: Final = '{"timestamp":1795204080000,"consensusThreshold":1}'
# An allocator that only grows, with the headers of AssemblyScript.
NEW: Final = """
(global $free (mut i32) (i32.const 65536))
(func (export "__new") (param $size i32) (param $id i32) (result i32) (local $at i32)
  (local.set $at (i32.add (global.get $free) (i32.const 8)))
  (i32.store (i32.sub (local.get $at) (i32.const 8)) (local.get $id))
  (i32.store (i32.sub (local.get $at) (i32.const 4)) (local.get $size))
  (global.set $free (i32.and (i32.add (i32.add (local.get $at) (local.get $size)) (i32.const 7)) (i32.const -8)))
  (local.get $at))
"""
PIN: Final = '(func (export "__pin") (param i32) (result i32) (local.get 0))'
# As much as takes a tenth of a second at most.
FUEL_HERE: Final = 50_000_000
# Loads of which each needs the one before, from all over the memory, so that neither caches nor page tables have it.
CHASE: Final = (
    "(local $p i32) (loop $i (i32.store (i32.shl (local.get $p) (i32.const 6)) (i32.shl (i32.and (i32.add (i32.mul "
    "(local.get $p) (i32.const 1664525)) (i32.const 1013904223)) (i32.const 1048575)) (i32.const 6))) (local.set $p "
    "(i32.add (local.get $p) (i32.const 1))) (br_if $i (i32.lt_u (local.get $p) (i32.const 1048576)))) "
    f"(loop $more (local.get $p) {'(i32.load)' * 100} (local.set $p) (br $more))"
)
_ENGINE: Final = new_engine()


class Texts:
    """Strings in the data of a module. `at` gives the pointer to one, as an instruction."""

    def __init__(self) -> None:
        self._data: list[str] = []
        self._free = 1024

    def at(self, text: str) -> str:
        """`(i32.const …)`, where the string is."""
        return self.object(text.encode("utf-16-le", "surrogatepass"))

    def object(self, content: bytes, *, kind: int = 2, length: int | None = None) -> str:
        """An object with any header."""
        size = len(content) if length is None else length
        stored = kind.to_bytes(4, "little") + size.to_bytes(4, "little") + content
        escaped = "".join(f"\\{byte:02x}" for byte in stored)
        self._data.append(f'(data (i32.const {self._free}) "{escaped}")')
        pointer, self._free = self._free + 8, self._free + 8 + (len(content) + 7) // 8 * 8
        return f"(i32.const {pointer})"

    def __str__(self) -> str:
        return "\n".join(self._data)


def imported(name: str) -> str:
    """The import of a function such as `log._log`, which is `$log._log` in the text."""
    module, _, field = name.partition(".")
    params, _, result = FUNCTIONS[module, field].partition(" -> ")
    words = params.strip("()").replace(",", "")
    results = f"(result {result})" if result != "()" else ""
    return f'(import "{module}" "{field}" (func ${name} {f"(param {words})" if words else ""} {results}))'


def module(
    body: str,
    *,
    imports: Sequence[str] = (),
    texts: Texts | None = None,
    others: str = "",
    before: str = "",
    runtime: str = NEW + PIN,
    pages: int = 64,
    target: str = "",
) -> bytes:
    """A module whose main has `body`. `imports` are names of functions; `before` is what must come first."""
    lines = [
        *(imported(name) for name in imports), before, f'(memory (export "memory") {pages})', runtime,
        str(texts or ""), others, f'(func (export "main") {body})',
    ]  # fmt: skip
    if target:
        metadata = f'{{"runnerTarget":"{target}"}}'.replace('"', '\\"')
        lines.append(f'(@custom "mimic-metadata" "{metadata}")')
    return bytes(wat2wasm(f"(module {' '.join(lines)})"))


def _not_asked(question: Question) -> Answer:
    raise AssertionError(question)


def run_here(
    wasm: bytes,
    *,
    ask: Callable[[Question], Answer] = _not_asked,
    inputs: Mapping[str, tuple[str, Any]] | None = None,
    context: str = CONTEXT,
    fuel: int = FUEL_HERE,
) -> Done:
    """What becomes of one run. Raises `Stop` where the module cannot be compiled."""
    _, code = compile_wasm(_ENGINE, wasm)
    given = {name: GuestInput(word, value) for name, (word, value) in (inputs or {}).items()}
    return run(_ENGINE, RunJob(code, context, given), ask, lambda: None, fuel=fuel)


def logged(call: str, *, imports: Sequence[str], texts: Texts, **ways: Any) -> Done:
    """A run that logs the text to which `call` evaluates."""
    return run_here(
        module(f"(call $log._log (i32.const 3) {call})", imports=["log._log", *imports], texts=texts), **ways
    )
