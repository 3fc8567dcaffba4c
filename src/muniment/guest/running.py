"""One run in a child: links a compiled module with its imports, instantiates it, calls main, says what became of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from wasmtime import Engine, Func, Global, Instance, Module, Store, Trap, Val, WasmtimeError

from muniment.guest.engine import imports_of, new_store, stop_of, types_of
from muniment.guest.frames import Done, RunJob
from muniment.guest.host import Host
from muniment.guest.inputs import constant_of, text_of
from muniment.guest.limits import COMPILER_CPU_S, FUEL, GUEST_CPU_S
from muniment.guest.module import INPUT_MODULE, INPUT_PREFIX, Import, main_of
from muniment.guest.outcomes import Stop
from muniment.guest.types import Answer, GuestInput, Question

# How exactly the guest's time is measured. It is not part of a verdict.
_TICK_S: Final = 0.05


class Stopwatch:
    """A thread that interrupts the engine when this process has used `seconds` of CPU time from `start` on.

    CPU time, not time: a machine that is busy with other things, and waiting for answers, cost a guest nothing. The
    thread is made before system calls are filtered; it cannot be made after.
    """

    def __init__(self, engine: Engine, seconds: float = GUEST_CPU_S) -> None:
        self._interrupt: Callable[[], None] = engine.increment_epoch
        self._seconds = seconds
        self._end: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def start(self) -> None:
        """The guest begins now."""
        self._end = time.process_time() + self._seconds

    def start_compiler(self, seconds: float = COMPILER_CPU_S) -> None:
        """The compiler begins now. Nothing interrupts it, so the process ends as if by its limit of CPU time."""
        self._interrupt = _end_process
        self._end = time.process_time() + seconds

    def _watch(self) -> None:
        while self._end is None or time.process_time() < self._end:
            time.sleep(_TICK_S)
        self._interrupt()


def _end_process() -> None:
    signal.raise_signal(signal.SIGXCPU)


class _Running:
    """The memory of a module, which exists from its instantiation on, also while its start function runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._exports: Mapping[str, Any] | None = None
        self._caller: Any = None

    def called_by(self, caller: Any) -> None:
        """An import is called: what it may use of the module is the caller's."""
        self._caller = caller

    def instantiated(self, exports: Mapping[str, Any]) -> None:
        """The start function has returned."""
        self._exports = exports

    def _export(self, name: str) -> Any:
        return self._exports[name] if self._exports is not None else self._caller[name]

    def size(self) -> int:
        return int(self._export("memory").data_len(self._store))

    def read(self, start: int, end: int) -> bytes:
        return bytes(self._export("memory").read(self._store, start, end))

    def write(self, start: int, data: bytes) -> None:
        if data:  # an empty text may be at the very end
            self._export("memory").write(self._store, data, start)

    def allocate(self, size: int, kind: int) -> int:
        return cast("int", self._export("__new")(self._store, size, kind))


def run(
    engine: Engine, job: RunJob, ask: Callable[[Question], Answer], started: Callable[[], None], *, fuel: int = FUEL
) -> Done:
    """What becomes of a run. `started` is called before the first instruction of the module. Never raises."""
    store = new_store(engine, fuel)
    memory = _Running(store)
    host = Host(memory, job.context, ask)
    stop: Stop | None = None
    try:
        started()
        _execute(engine, store, memory, host, job)
    except Stop as reason:
        stop = reason
    except (Trap, WasmtimeError) as error:
        stop = stop_of(error)
    except MemoryError:
        stop = Stop("memory", "the process has no more memory")
    except Exception as error:  # noqa: BLE001 - the child ends after this, and a run has an outcome
        stop = Stop("crash", f"the sandbox failed: {type(error).__name__}")
    # The engine counts in a register, which an interruption does not write back.
    fuel_used = 0 if stop and stop.reason == "time" else fuel - store.get_fuel()
    return Done(
        reason=stop.reason if stop else None, text=stop.text if stop else "", fuel_used=fuel_used,
        logs=host.logs, logs_cut=host.logs_cut, intents=[] if stop else host.intents,
    )  # fmt: skip


def _execute(engine: Engine, store: Store, memory: _Running, host: Host, job: RunJob) -> None:
    module = Module.deserialize(engine, job.code)
    texts: list[tuple[Global, str, str]] = []
    linked: list[Func | Global] = []
    for each, imported in zip(module.imports, imports_of(module), strict=True):
        if imported.module == INPUT_MODULE and imported.name.startswith(INPUT_PREFIX):
            made = _input(store, each.type, imported, job.inputs)
            if imported.types == "mut i32":
                name = imported.name.removeprefix(INPUT_PREFIX)
                texts.append((made, name, text_of(name, job.inputs.get(name))))
            linked.append(made)
        else:
            function = _noting_caller(memory, host.function(imported.module, imported.name))
            linked.append(Func(store, cast("Any", each.type), function, access_caller=True))
    instance = Instance(store, module, linked)
    exports = instance.exports(store)
    memory.instantiated(exports)
    for held, name, text in texts:
        pointer = host.give_text(text, f"the input {name}")
        cast("Func", exports["__pin"])(store, pointer)
        held.set_value(store, Val.i32(pointer))
    functions = {name: types_of(each.type(store)) for name, each in exports.items() if isinstance(each, Func)}
    cast("Func", exports[main_of(functions)])(store)


def _input(store: Store, kind: Any, imported: Import, inputs: Mapping[str, GuestInput]) -> Global:
    name = imported.name.removeprefix(INPUT_PREFIX)
    if imported.types == "mut i32":
        return Global(store, kind, Val.i32(0))
    number = constant_of(name, inputs.get(name), imported.types)
    return Global(store, kind, Val.i64(number) if imported.types == "const i64" else Val.i32(number))


def _noting_caller(memory: _Running, function: Callable[..., int | None]) -> Callable[..., int | None]:
    def called(caller: Any, *params: int) -> int | None:
        memory.called_by(caller)
        return function(*params)

    return called
