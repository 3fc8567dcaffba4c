"""Which modules are taken: generations, imports, exports, sizes."""

from __future__ import annotations

import re

import pytest
from wasmtime import wat2wasm

from each_row import each_row
from guest_modules import NEW, PIN, Texts, module
from muniment.guest import limits
from muniment.guest.engine import compile_wasm, new_engine
from muniment.guest.module import FUNCTIONS, check_bytes
from muniment.guest.outcomes import Stop

ENGINE = new_engine()
MAIN = '(memory (export "memory") 1) (func (export "main"))'


def refused(wasm: bytes | str) -> tuple[str, str]:
    with pytest.raises(Stop) as caught:
        compile_wasm(ENGINE, bytes(wat2wasm(wasm)) if isinstance(wasm, str) else wasm)
    return caught.value.reason, caught.value.text


@each_row(
    ("target", "imports", "generation"),
    [
        ("", [], "B"), ("", ["environment._transfer", "environment._swap"], "B"),
        ("", ["environment._sendIntent"], "C"), ("0.0.1", ["environment._evmCall"], "B"), ("0.0.1", [], "B"),
        ("0.0.1-rc.4", [], "B"), ("0.1.0", [], "C"),
        ("0.1.0", ["environment._sendIntent"], "C"), ("0.1.7", ["environment._sendIntent"], "C"),
    ],
)  # fmt: skip
def test_the_generation_is_in_the_metadata_and_the_imports(target: str, imports: list[str], generation: str) -> None:
    assert compile_wasm(ENGINE, module("", imports=imports, target=target))[0] == generation


@each_row(
    ("target", "imports"),
    [
        ("0.1.0", ["environment._transfer"]), ("0.0.1", ["environment._sendIntent"]), ("0.2.0", []), ("1.0.0", []),
        ("x", []), ("", ["environment._sendIntent", "environment._transfer"]),
    ],
)  # fmt: skip
def test_a_generation_that_contradicts_itself_or_is_not_known_is_refused(target: str, imports: list[str]) -> None:
    assert refused(module("", imports=imports, target=target))[0] == "bad-module"


@each_row("section", ["", "{", "[" * 100, '{"runnerTarget":1}', '{"runnerTarget":null}'])
def test_metadata_that_cannot_be_read_are_refused(section: str) -> None:
    words = section.replace('"', '\\"')
    assert refused(f'(module (@custom "mimic-metadata" "{words}") {MAIN})')[0] == "bad-module"


@each_row("section", ["{}", "[]", '"0.1.0"', '{"libVersion":"1.0.0"}'])
def test_metadata_that_name_no_generation_are_those_of_the_first(section: str) -> None:
    words = section.replace('"', '\\"')
    wasm = bytes(wat2wasm(f'(module (@custom "mimic-metadata" "{words}") {MAIN})'))
    assert compile_wasm(ENGINE, wasm)[0] == "B"


@each_row("name", ["_call", "_getPrice", "_contractCall", "_getRelevantTokens"])
def test_imports_of_older_generations_are_refused_by_name(name: str) -> None:
    reason, text = refused(f'(module (import "environment" "{name}" (func (param i32))) {MAIN})')
    assert (reason, text) == ("refused-import", f"environment.{name} is of an older generation")


@each_row(
    ("declared", "shown"),
    [
        ('"env" "seed" (func (result f64))', "env.seed"),
        ('"wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32))', "wasi_snapshot_preview1"),
        ('"wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32))', "wasi_snapshot_preview1"),
        ('"environment" "_svmCall" (func (param i32))', "environment._svmCall is not provided here"),
        ('"environment" "_sendEther" (func (param i32))', "environment._sendEther is not provided here"),
        ('"env" "memory" (memory 1)', "env.memory"),
        ('"env" "table" (table 1 funcref)', "env.table"),
        ('"index" "input.x" (global f64)', "index.input.x is const f64"),
        ('"index" "input.x" (global (mut i64))', "index.input.x is mut i64"),
        ('"index" "input.x" (func)', "index.input.x is () -> ()"),
        ('"log" "_log" (func (param i32 i32) (result i32))', "log._log is (i32, i32) -> i32, not (i32, i32) -> ()"),
        ('"evm" "_encode" (func (param i64) (result i32))', "evm._encode is (i64) -> i32"),
        ('"evm" "_encode" (global i32)', "evm._encode is const i32"),
    ],
)
def test_an_import_that_runs_do_not_have_is_refused_and_named(declared: str, shown: str) -> None:
    reason, text = refused(f'(module (import {declared}) {NEW if "memory" in declared else ""} (func (export "main")))')
    assert reason == "refused-import"
    assert shown in text


def test_every_import_that_is_listed_can_be_linked() -> None:
    for name, field in FUNCTIONS:
        if field != "_sendIntent":
            assert compile_wasm(ENGINE, module("", imports=[f"{name}.{field}"]))[0] == "B"


@each_row(
    ("text", "words"),
    [
        ('(module (memory (export "memory") 1))', "no function main"),
        ('(module (memory (export "memory") 1) (func (export "main") (param i32)))', "no function main"),
        ('(module (memory (export "memory") 1) (global (export "main") i32 (i32.const 1)))', "no function main"),
        ('(module (memory 1) (func (export "main")))', "no memory"),
        (f'(module (import "evm" "_keccak" (func (param i32) (result i32))) {MAIN})', "no function __new"),
        (f'(module (import "index" "input.x" (global (mut i32))) {MAIN} {NEW})', "no function __pin"),
        (f'(module (import "index" "input.x" (global (mut i32))) {MAIN} {PIN})', "no function __new"),
    ],
)
def test_a_module_that_lacks_what_a_run_calls_is_refused(text: str, words: str) -> None:
    reason, shown = refused(text)
    assert reason == "bad-module"
    assert words in shown


def test_the_default_export_is_main_too() -> None:
    assert compile_wasm(ENGINE, bytes(wat2wasm(MAIN.replace('"main"', '"default"').join(("(module ", ")")))))[0] == "B"


@each_row("wasm", [b"", b"x", b"\0asm\1\0\0\0\1", b"\0asm\x0d\0\1\0"])
def test_what_is_no_module_is_refused(wasm: bytes) -> None:
    assert refused(wasm)[0] == "bad-module"


def test_more_memory_than_runs_have_is_refused_before_it_is_made() -> None:
    for pages, reason in ((1_024, None), (1_025, "limit-memory"), (65_536, "limit-memory")):
        wasm = bytes(wat2wasm(f'(module (memory (export "memory") {pages}) (func (export "main")))'))
        if reason:
            assert refused(wasm)[0] == reason
        else:
            assert compile_wasm(ENGINE, wasm)[0] == "B"


def _body(size: int) -> str:
    return "nop " * (size - 2)  # a body has the number of its locals and its end besides


def test_a_body_of_a_function_has_at_most_128_kib() -> None:
    check_bytes(bytes(wat2wasm(f"(module (func {_body(limits.BODY_BYTES_MAX)}))")))
    with pytest.raises(Stop, match=re.escape(f"has {limits.BODY_BYTES_MAX + 1} bytes")) as caught:
        check_bytes(bytes(wat2wasm(f"(module (func) (func {_body(limits.BODY_BYTES_MAX + 1)}))")))
    assert caught.value.reason == "limit-code"


def test_a_module_has_at_most_one_mebibyte_of_code() -> None:
    def bodies(count: int) -> bytes:
        return bytes(wat2wasm("(module " + f"(func {_body(65_000)})" * count + ")"))

    check_bytes(bodies(16))
    with pytest.raises(Stop) as caught:
        check_bytes(bodies(17))
    assert caught.value.reason == "limit-code"


def test_data_are_no_code() -> None:
    texts = Texts()
    texts.object(b"x" * 2_000_000)
    assert compile_wasm(ENGINE, module("", texts=texts))[0] == "B"


def test_the_same_module_has_the_same_code() -> None:
    wasm = module("(loop $more (br $more))")
    assert compile_wasm(ENGINE, wasm) == compile_wasm(new_engine(), wasm)


@each_row(
    "declared",
    [
        f'{MAIN} (func (export "x") (param i32 v128))', f'{MAIN} (func (export "x") (result v128) unreachable)',
        f'(import "log" "_log" (func (param v128))) {MAIN}', f'(import "index" "input.a" (global v128)) {MAIN}',
        f'(import "a" "b" (table 1 2 funcref)) (import "a" "b" (memory 1)) (import "a" "b" (global (mut v128))) {MAIN}'
        .replace('(memory (export "memory") 1)', ""),
        '(import "a" "b" (func (result v128))) (export "y" (func 0)) (func (export "main"))',
    ],
)  # fmt: skip
def test_vectors_at_the_border_of_a_module_are_refused(declared: str) -> None:
    # Not by `refused`: where this is not found, the library ends this process.
    with pytest.raises(Stop, match="has v128"):
        check_bytes(bytes(wat2wasm(f"(module {declared})")))


def test_vectors_within_a_module_are_taken() -> None:
    within = "(func (param v128) (result v128) (local.get 0)) (global v128 (v128.const i64x2 1 2))"
    imported = '(import "log" "_log" (func (param i32 i32))) (import "index" "input.a" (global (mut i32)))'
    text = f'(module {imported} {within} (table 1 funcref) {MAIN} (export "f" (func 0)) {NEW}{PIN})'
    assert compile_wasm(ENGINE, bytes(wat2wasm(text)))[0] == "B"


def test_a_module_has_at_most_a_thousand_exports() -> None:
    def exporting(count: int) -> str:
        functions = " ".join(f'(func (export "{n}"))' for n in range(count - 2))
        return f"(module {MAIN} {functions})"

    assert compile_wasm(ENGINE, bytes(wat2wasm(exporting(limits.EXPORTS_MAX))))[0] == "B"
    words = f"{limits.EXPORTS_MAX + 1} exports; {limits.EXPORTS_MAX} are taken"
    assert refused(exporting(limits.EXPORTS_MAX + 1)) == ("limit-code", words)
