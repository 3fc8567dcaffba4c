"""Checks that `function.wasm` is a core WebAssembly module: first our own limits, then a full validator (wasmtime).

The validator's time and memory grow with the file, but some declarations make a byte of code or of type a thousand
times more expensive than usual. So our own scan counts these before the validator starts. Sections are those of the
WebAssembly core specification 2.0, chapter 5.5; decision 0010 has the accepted proposals, the costs and the reasons for
the limits.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import InvalidWasm
from muniment.protocol.visible import visible

if TYPE_CHECKING:
    from wasmtime import Engine

# The WebAssembly JavaScript Interface, section "Implementation-defined limits", which every engine accepts.
PARAMS_MAX: Final = 1_000
RESULTS_MAX: Final = 1_000
LOCALS_MAX: Final = 50_000
BODY_BYTES_MAX: Final = 7_654_321
TABLE_ENTRIES_MAX: Final = 10_000_000
MEMORY_PAGES_MAX: Final = 65_536
SEGMENTS_MAX: Final = 100_000
GLOBALS_MAX: Final = 1_000_000
# That section allows a million of each of these; here they would cost too much time and memory.
TYPES_MAX: Final = 10_000
FUNCTIONS_MAX: Final = 100_000
IMPORTS_MAX: Final = 10_000
EXPORTS_MAX: Final = 100_000
# The validator's own limit (wasmparser, limits.rs).
TABLES_MAX: Final = 100
# Our own limits. The validator keeps about 13 bytes per value in a type; the scan reads each run of locals.
TYPE_VALUES_MAX: Final = 1_000_000
SECTIONS_MAX: Final = 1_000
LOCAL_RUNS_MAX: Final = 500_000
# A branch pops as many values as the widest type has, so this product limits the validator's time (about 4 s). 16 MiB
# of code may have types of 32 values, 512 KiB types of 1,000.
CODE_BYTES_TIMES_WIDTH_MAX: Final = 2**29
# Two bytes of code push as many values as the widest type has results, so this product limits the validator's memory
# (60 MB), as if the largest body had one result: a body of 128 KiB may use types of 64 results.
BODY_BYTES_TIMES_RESULTS_MAX: Final = 2**23

_PREAMBLE: Final = b"\0asm\1\0\0\0"
_MAGIC: Final = _PREAMBLE[:4]
# The second half of the version field is the layer: 1 is a component (component model, Binary.md).
_COMPONENT_LAYER: Final = b"\1\0"
# The tag of a function type (core specification, section 5.3.7).
_FUNCTION_TYPE: Final = 0x60
_NUMBER_TYPES: Final = bytes((0x7F, 0x7E, 0x7D, 0x7C, 0x7B, 0x70, 0x6F))
_REFERENCE_TYPES: Final = (0x70, 0x6F)
_U32_MAX: Final = 2**32 - 1
# malloc.h of glibc.
_M_MMAP_THRESHOLD: Final = -3
# Characters of the validator's message that ours quotes: it can contain names from the module.
_REASON_LENGTH: Final = 300


def check_wasm(data: bytes | bytearray | memoryview | mmap.mmap) -> None:
    """Accept a core WebAssembly module, or raise `InvalidWasm` with the fault and its position.

    It takes 0.1 s for 16 MiB of ordinary code, and a few seconds for the worst code within the limits. Run it in a
    thread: the validator lets others run. It makes one copy of `data`, two if that is a view or a mapped file.
    """
    module = data if isinstance(data, (bytes, bytearray)) else bytes(data)
    _check_preamble(module)
    _Scan(module).run()
    _validate(module)


def _check_preamble(module: bytes | bytearray) -> None:
    if not module:
        raise InvalidWasm("function.wasm is empty")
    if not module.startswith(_MAGIC):
        raise InvalidWasm(r"function.wasm is not WebAssembly: it does not begin with the four bytes \0asm")
    if module[6:8] == _COMPONENT_LAYER:
        raise InvalidWasm("function.wasm is a WebAssembly component; only core modules are accepted")
    if len(module) < len(_PREAMBLE):
        raise InvalidWasm("function.wasm ends within its first 8 bytes")
    if not module.startswith(_PREAMBLE):
        raise InvalidWasm(f"function.wasm has WebAssembly version {module[4:8].hex()}, not 01000000")


class _Scan:
    """One walk over the sections of a module: `at` is its position, `end` the end of the current section."""

    def __init__(self, module: bytes | bytearray) -> None:
        self.module = module
        self.at = len(_PREAMBLE)
        self.end = len(module)
        self.widest = 1
        self.most_results = 1
        self.local_runs = 0

    def run(self) -> None:
        """Walk all sections. The content of custom sections, segments and expressions is skipped."""
        sections: dict[int, Callable[[], object]] = {
            1: self._types, 2: self._imports, 4: self._tables, 5: self._memories, 10: self._code,
            3: lambda: self._at_most(FUNCTIONS_MAX, "functions"),
            6: lambda: self._at_most(GLOBALS_MAX, "globals"), 7: lambda: self._at_most(EXPORTS_MAX, "exports"),
            9: lambda: self._at_most(SEGMENTS_MAX, "element segments"),
            11: lambda: self._at_most(SEGMENTS_MAX, "data segments"),
        }  # fmt: skip
        seen: set[int] = set()
        for _ in range(SECTIONS_MAX):
            if self.at == len(self.module):
                return
            number, self.end = self.module[self.at], len(self.module)
            self.at += 1
            size = self._u32()
            self.end = self._within(size, f"section {number}")
            if number in seen:
                raise self._wrong(f"section {number} comes twice")
            if number:  # only custom sections, number 0, may be repeated
                seen.add(number)
            sections.get(number, lambda: None)()
            self.at = self.end
        raise InvalidWasm(f"function.wasm has more than {SECTIONS_MAX} sections")

    def _types(self) -> None:
        values = 0
        for _ in range(self._at_most(TYPES_MAX, "types")):
            if self._byte() != _FUNCTION_TYPE:
                raise self._wrong("a type is not that of a function")
            for limit, what in ((PARAMS_MAX, "parameters"), (RESULTS_MAX, "results")):
                count = self._at_most(limit, what)
                stop = self._within(count, what)
                if self.module[self.at : stop].translate(None, _NUMBER_TYPES):
                    raise self._wrong("a value type is unknown, or of an unsupported proposal")
                self.widest = max(self.widest, count)
                if what == "results":
                    self.most_results = max(self.most_results, count)
                values += count
                self.at = stop
            if values > TYPE_VALUES_MAX:
                raise self._wrong(f"types with more than {TYPE_VALUES_MAX} parameters and results in all")

    def _imports(self) -> None:
        kinds: dict[int, Callable[[], object]] = {0: self._u32, 1: self._table, 2: self._memory, 3: self._global_type}
        for _ in range(self._at_most(IMPORTS_MAX, "imports")):
            for what in ("module name", "name"):
                self.at = self._within(self._u32(), f"the {what} of an import")
            kind = self._byte()
            if kind not in kinds:
                raise self._wrong(f"an import is of the unsupported kind {kind}")
            kinds[kind]()

    def _tables(self) -> None:
        for _ in range(self._at_most(TABLES_MAX, "tables")):
            self._table()

    def _memories(self) -> None:
        for _ in range(self._at_most(1, "memories")):
            self._memory()

    def _table(self) -> None:
        if self._byte() not in _REFERENCE_TYPES:
            raise self._wrong("a table has an unsupported element type")
        self._limits(TABLE_ENTRIES_MAX, "a table of at least {} entries")

    def _memory(self) -> None:
        self._limits(MEMORY_PAGES_MAX, "a memory of at least {} pages")

    def _limits(self, maximum: int, what: str) -> None:
        flags = self._byte()
        if flags > 1:
            raise self._wrong("a table or memory is shared or has 64-bit addresses: not supported")
        least = self._u32()
        if least > maximum:
            raise self._wrong(f"{what.format(least)}; at most {maximum}")
        if flags:
            self._u32()

    def _global_type(self) -> None:
        self.at = self._within(2, "the type of a global")

    def _code(self) -> None:
        if (self.end - self.at) * self.widest > CODE_BYTES_TIMES_WIDTH_MAX:
            raise self._wrong(
                f"a type has {self.widest} parameters or results; with this much code the limit is "
                f"{CODE_BYTES_TIMES_WIDTH_MAX // (self.end - self.at)}"
            )
        for _ in range(self._at_most(FUNCTIONS_MAX, "function bodies")):
            size = self._u32()
            stop = self._within(size, "a function body")
            if size > BODY_BYTES_MAX:
                raise self._wrong(f"a function body of {size} bytes; at most {BODY_BYTES_MAX}")
            if size * self.most_results > BODY_BYTES_TIMES_RESULTS_MAX:
                raise self._wrong(f"a type has {self.most_results} results, too many for a body of {size} bytes")
            self._locals()
            self.at = stop

    def _locals(self) -> None:
        total, runs = 0, self._u32()
        self.local_runs += runs
        if self.local_runs > LOCAL_RUNS_MAX:
            raise self._wrong(f"more than {LOCAL_RUNS_MAX} declarations of locals")
        for _ in range(runs):
            total += self._u32()
            self._byte()
            if total > LOCALS_MAX:
                raise self._wrong(f"a function with more than {LOCALS_MAX} locals")

    def _at_most(self, limit: int, what: str) -> int:
        """The length of the vector that begins here, at most `limit`."""
        count = self._u32()
        if count > limit:
            raise self._wrong(f"{count} {what}; at most {limit}")
        return count

    def _within(self, size: int, what: str) -> int:
        """The end of the next `size` bytes, which must be within the section."""
        if size > self.end - self.at:
            raise self._wrong(f"{what} extends beyond its section")
        return self.at + size

    def _byte(self) -> int:
        if self.at >= self.end:
            raise self._wrong("the section ends too early")
        self.at += 1
        return self.module[self.at - 1]

    def _u32(self) -> int:
        """An unsigned LEB128 of 32 bits: at most 5 bytes, no bits above the 32nd (core specification 5.2.2)."""
        if self.at < self.end and not (value := self.module[self.at]) & 0x80:  # most have one byte
            self.at += 1
            return value
        value = 0
        for shift in range(0, 35, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:  # no byte follows
                break
        else:
            raise self._wrong("an integer has more than 5 bytes")
        if value > _U32_MAX:
            raise self._wrong("an integer has more than 32 bits")
        return value

    def _wrong(self, what: str) -> InvalidWasm:
        return InvalidWasm(f"function.wasm at byte {self.at}: {what}")


@cache
def _give_back() -> None:
    """Make glibc return freed blocks of at least a mebibyte to the system (mallopt(3)).

    By default glibc raises this threshold after the first large block, and each thread keeps some 30 MB.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # other C libraries have none
        mallopt(_M_MMAP_THRESHOLD, 1024 * 1024)


@cache
def _engine() -> Engine:
    """The validator of this process, for any number of threads; each proposal is set, independent of its version."""
    from wasmtime import Config, Engine  # noqa: PLC0415 - 30 MB that only an upload needs

    _give_back()
    config = Config()
    # WebAssembly 2.0. Sign extension, non-trapping conversions and mutable globals have no switch: always on.
    config.wasm_simd = True
    config.wasm_multi_value = True
    config.wasm_bulk_memory = True
    config.wasm_reference_types = True
    for proposal in ("threads", "tail_call", "multi_memory", "memory64", "relaxed_simd", "exceptions",
                     "function_references", "gc", "wide_arithmetic", "custom_page_sizes", "stack_switching",
                     "component_model"):  # fmt: skip
        setattr(config, f"wasm_{proposal}", False)
    config.parallel_compilation = False  # one upload, one core
    engine = Engine(config)
    atexit.register(engine.close)  # an open engine logs a warning at the end of the process
    return engine


def _validate(module: bytes | bytearray) -> None:
    from wasmtime import Module, WasmtimeError  # noqa: PLC0415 - 30 MB that only an upload needs

    try:
        Module.validate(_engine(), module)
    except WasmtimeError as error:
        raise InvalidWasm(f"function.wasm is not valid WebAssembly: {_reason(str(error))}") from error


def _reason(message: str) -> str:
    """The message of wasmtime on one line, with a bounded length."""
    words = " ".join(message.replace("Caused by:", " ").split())
    return visible(words[:_REASON_LENGTH])[:_REASON_LENGTH]
