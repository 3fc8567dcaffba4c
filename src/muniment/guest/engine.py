"""The WebAssembly engine of a child: how it is set up, how it compiles, what its errors mean.

wasmtime is imported here and nowhere else in this room, so that the parent, which never needs it, has 30 MB less.
"""

from __future__ import annotations

from typing import Final

from wasmtime import Config, Engine, FuncType, GlobalType, MemoryType, Module, Store, Trap, TrapCode, WasmtimeError

from muniment.guest.configuration import CONFIGURATION
from muniment.guest.limits import MEMORY_BYTES, STACK_BYTES, TABLE_ENTRIES
from muniment.guest.module import Import, check_bytes, check_exports, check_imports
from muniment.guest.outcomes import Stop
from muniment.guest.types import Generation

# Characters of the engine's words that a message quotes: they can contain names from the module.
_REASON_LENGTH: Final = 300


def new_engine() -> Engine:
    """An engine in which a module has neither clock nor chance, and whose memories fit a limit of address space."""
    config = Config()
    for name, value in CONFIGURATION.items():
        setattr(config, name, value)
    return Engine(config)


def compile_wasm(engine: Engine, wasm: bytes) -> tuple[Generation, bytes]:
    """The generation of a module and its code for this machine. Nothing of it is executed. Raises `Stop`."""
    named = check_bytes(wasm)
    try:
        module = Module(engine, wasm)
    except WasmtimeError as error:
        raise Stop("bad-module", _words(error)) from error
    imports = imports_of(module)
    generation = check_imports(imports, named)
    exports = {each.name: types_of(each.type) for each in module.exports if isinstance(each.type, FuncType)}
    memories = [each.type for each in module.exports if isinstance(each.type, MemoryType) and each.name == "memory"]
    check_exports(imports, exports, memories[0].limits.min if memories else None)
    return generation, bytes(module.serialize())


def imports_of(module: Module) -> list[Import]:
    """The imports of a module, in their order."""
    return [Import(each.module, each.name or "", types_of(each.type)) for each in module.imports]


def types_of(kind: object) -> str:
    """The type of an import or export as text, such as `(i32) -> i32` or `mut i32`."""
    if isinstance(kind, GlobalType):
        return f"{'mut' if kind.mutable else 'const'} {kind.content}"
    if not isinstance(kind, FuncType):
        return "a memory" if isinstance(kind, MemoryType) else "a table"
    results = ", ".join(map(str, kind.results))
    one = len(kind.results) == 1
    return f"({', '.join(map(str, kind.params))}) -> {results if one else f'({results})'}"


def new_store(engine: Engine, fuel: int) -> Store:
    """A store for one instance, with so much fuel, that the next epoch interrupts."""
    store = Store(engine)
    store.set_limits(memory_size=MEMORY_BYTES, table_elements=TABLE_ENTRIES, instances=1, memories=1)
    store.set_fuel(fuel)
    store.set_epoch_deadline(1)
    return store


def stop_of(error: WasmtimeError | Trap) -> Stop:
    """What an error of the engine means for a run."""
    if not isinstance(error, Trap):
        # Before its first instruction: a memory or table is larger than the store may have.
        return Stop("limit-memory", _words(error))
    code = error.trap_code
    if code is TrapCode.OUT_OF_FUEL:
        return Stop("fuel", "the fuel is used up")
    if code is TrapCode.INTERRUPT:
        return Stop("time", "the module used up its seconds of computing time; how much fuel it used is not known")
    if code is TrapCode.STACK_OVERFLOW:
        return Stop("memory", f"the stack of {STACK_BYTES // 1024} KiB is used up")
    return Stop("trap", _words(error).rpartition("wasm trap: ")[2])


def _words(error: object) -> str:
    """The engine's own words, on one line, with a bounded length."""
    words = str(getattr(error, "message", error)).replace("\n\nCaused by:\n", " ").replace("\n", " ").strip()
    return "".join(letter if letter.isprintable() else "?" for letter in words[-_REASON_LENGTH:])
