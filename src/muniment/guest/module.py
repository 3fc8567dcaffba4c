"""What the bytes of a module say before it is compiled: sizes of code, and the generation that it is written for.

Sections are those of the WebAssembly core specification 2.0, chapter 5.5. The registry has validated the module; here
it is validated again, because whoever runs it need not trust the registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast, get_args

from muniment.guest.limits import BODY_BYTES_MAX, CODE_BYTES_MAX, EXPORTS_MAX, MEMORY_BYTES, MODULE_BYTES_MAX
from muniment.guest.outcomes import Stop
from muniment.guest.types import Generation
from muniment.guest.vectors import has_vectors, u32
from muniment.protocol.errors import Invalid, InvalidJson
from muniment.protocol.functions.wasm import check_wasm
from muniment.protocol.json_text import parse_json
from muniment.protocol.runs.texts import Query

_PREAMBLE_BYTES: Final = 8
_CUSTOM: Final = 0
_EXPORT: Final = 7
_CODE: Final = 10
_METADATA: Final = b"mimic-metadata"
_PAGE_BYTES: Final = 64 * 1024
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\.\d+([-+].*)?")
_GENERATIONS: Final[dict[tuple[str, str], Generation]] = {("0", "0"): "B", ("0", "1"): "C"}


class Import(NamedTuple):
    """An import: `types` is its signature, such as `(i32) -> i32`, or the type of a global: `const i32`, `mut i32`."""

    module: str
    name: str
    types: str


# The shape of every function that takes a text, and of those that return one too.
_TAKES: Final = "(i32) -> ()"
_ANSWERS: Final = "(i32) -> i32"
QUERIES: Final[tuple[Query, ...]] = get_args(Query)
# Functions that a module may import, with their types.
FUNCTIONS: Final = {
    ("env", "abort"): "(i32, i32, i32, i32) -> ()",
    ("log", "_log"): "(i32, i32) -> ()",
    ("environment", "_getContext"): "() -> i32",
    **{("environment", f"_{query}Query"): _ANSWERS for query in QUERIES},
    ("evm", "_encode"): _ANSWERS,
    ("evm", "_decode"): _ANSWERS,
    ("evm", "_keccak"): _ANSWERS,
    ("svm", "_findProgramAddress"): _ANSWERS,
    ("environment", "_transfer"): _TAKES,
    ("environment", "_swap"): _TAKES,
    ("environment", "_evmCall"): _TAKES,
    ("environment", "_sendIntent"): _TAKES,
}
INPUT_MODULE: Final = "index"
INPUT_PREFIX: Final = "input."
INPUT_TYPES: Final = ("const i32", "const i64", "mut i32")
# Imports of releases before generation B, and of chains that are no EVM.
_OLDER: Final = ("_call", "_getPrice", "_contractCall", "_getRelevantTokens")
_SENT_BY: Final[dict[str, Generation]] = {"_transfer": "B", "_swap": "B", "_evmCall": "B", "_sendIntent": "C"}
_NEW: Final = "(i32, i32) -> i32"
_MAINS: Final = ("main", "default")


def check_bytes(wasm: bytes) -> Generation | None:
    """Check sizes and validity, and return the generation that the metadata name, if they name one. Raises `Stop`."""
    if len(wasm) > MODULE_BYTES_MAX:
        raise Stop("limit-code", f"a module of {len(wasm)} bytes; {MODULE_BYTES_MAX} are taken")
    try:
        check_wasm(wasm)
    except Invalid as error:
        raise Stop("bad-module", error.detail) from error
    generation: Generation | None = None
    places: dict[int, int] = {}
    for number, start, end in _sections(wasm):
        places[number] = start
        if number == _CODE:
            _check_code(wasm, start, end)
        elif number == _EXPORT and (count := u32(wasm, start)[0]) > EXPORTS_MAX:
            raise Stop("limit-code", f"{count} exports; {EXPORTS_MAX} are taken")
        elif number == _CUSTOM:
            length, at = u32(wasm, start)
            if wasm[at : at + length] == _METADATA:
                generation = _target(wasm[at + length : end])
    if has_vectors(wasm, places):
        raise Stop("bad-module", "the type of an import, or of an exported function, has v128, which no run gives")
    return generation


def _sections(wasm: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each section of a valid module."""
    at = _PREAMBLE_BYTES
    while at < len(wasm):
        size, start = u32(wasm, at + 1)
        yield wasm[at], start, start + size
        at = start + size


def _check_code(wasm: bytes, start: int, end: int) -> None:
    if end - start > CODE_BYTES_MAX:
        raise Stop("limit-code", f"{end - start} bytes of code; {CODE_BYTES_MAX} are taken")
    count, at = u32(wasm, start)
    for number in range(count):
        size, body = u32(wasm, at)
        if size > BODY_BYTES_MAX:
            raise Stop("limit-code", f"function body {number} has {size} bytes; {BODY_BYTES_MAX} are taken")
        at = body + size


def _target(section: bytes) -> Generation | None:
    """The generation of `runnerTarget` in the JSON of the section `mimic-metadata`; None without one."""
    try:
        metadata: Any = parse_json(section)
    except InvalidJson as error:
        raise Stop("bad-module", f"the section mimic-metadata: {error.detail}") from error
    if not isinstance(metadata, dict) or "runnerTarget" not in metadata:
        return None
    target = cast("dict[str, object]", metadata)["runnerTarget"]
    release = _RELEASE.fullmatch(target) if isinstance(target, str) else None
    generation = _GENERATIONS.get((release[1], release[2])) if release else None
    if generation is None:
        raise Stop("bad-module", f"runnerTarget {str(target)[:40]!r} is not known; 0.0.1 and 0.1.0 are")
    return generation


def check_imports(imports: Sequence[Import], named: Generation | None) -> Generation:
    """Check each import, and return the generation by imports and metadata (`named`). Raises `Stop`."""
    sent: set[Generation] = set()
    for each in imports:
        if (each.module, each.name) in FUNCTIONS:
            _check_type(each, FUNCTIONS[each.module, each.name])
            if each.name in _SENT_BY:
                sent.add(_SENT_BY[each.name])
        elif each.module == INPUT_MODULE and each.name.startswith(INPUT_PREFIX):
            if each.types not in INPUT_TYPES:
                raise Stop("refused-import", f"{_shown(each)} is {each.types}, no global of an input")
        else:
            older = " is of an older generation" if each.name in _OLDER else ""
            raise Stop("refused-import", f"{_shown(each)}{older or ' is not provided here'}")
    if len(sent) > 1 or (named is not None and sent - {named}):
        target = f", and its metadata name {named}" if named else ""
        raise Stop("bad-module", f"it imports intents of the generations {' and '.join(sorted(sent))}{target}")
    return named or ("C" if "C" in sent else "B")


def _check_type(given: Import, types: str) -> None:
    if given.types != types:
        raise Stop("refused-import", f"{_shown(given)} is {given.types}, not {types}")


def _shown(given: Import) -> str:
    return f"{given.module[:100]}.{given.name[:100]}"


def check_exports(imports: Sequence[Import], exports: dict[str, str], memory_pages: int | None) -> None:
    """Check that the sandbox can use a module: `exports` are its functions and their types.

    `memory_pages` is the least size of its memory, None if it exports none. Raises `Stop`.
    """
    if not any(exports.get(name, "").startswith("()") for name in _MAINS):
        raise Stop("bad-module", "it exports no function main (or default) without parameters")
    if memory_pages is None:
        raise Stop("bad-module", "it exports no memory")
    with_inputs = any(each.types == "mut i32" for each in imports)
    if with_inputs or any(each.types.endswith("-> i32") for each in imports):
        _check_export(exports, "__new", _NEW)
    if with_inputs:
        _check_export(exports, "__pin", _ANSWERS)
    if memory_pages * _PAGE_BYTES > MEMORY_BYTES:
        raise Stop("limit-memory", f"a memory of {memory_pages} pages; {MEMORY_BYTES // _PAGE_BYTES} are given")


def _check_export(exports: dict[str, str], name: str, types: str) -> None:
    if exports.get(name) != types:
        raise Stop("bad-module", f"it exports no function {name} {types}; compile it with --exportRuntime")


def main_of(exports: dict[str, str]) -> str:
    """The name of the export that is called."""
    return next(name for name in _MAINS if exports.get(name, "").startswith("()"))
