"""The inputs of a trigger as a module reads them."""

from __future__ import annotations

from typing import Any

from each_row import each_row
from guest_modules import NEW, module, run_here
from muniment.guest.inputs import constant_of, text_of
from muniment.guest.types import GuestInput, inputs_of

TOKEN = {"address": "0x" + "AB" * 20, "chainId": "8453"}
# As the mantissa would lose digits of it, if it were a floating-point number.
LARGE = 2**64 - 1


def _text(word: str, value: Any) -> tuple[str | None, list[str]]:
    before = '(import "index" "input.x" (global $x (mut i32)))'
    wasm = module("(call $log._log (i32.const 3) (global.get $x))", imports=["log._log"], before=before)
    done = run_here(wasm, inputs={"x": (word, value)})
    return done.reason, [line.removeprefix("[Info] ") for line in done.logs]


@each_row(
    ("word", "value", "text"),
    [
        ("uint256", 5, "5"), ("uint256", str(2**256 - 1), str(2**256 - 1)), ("int128", "-7", "-7"),
        ("uint", "0x10", "16"), ("uint8", 7, "7"), ("string", "Ünï 🐍", "Ünï 🐍"), ("string", "", ""),
        ("bool", True, "true"),
        ("bool", False, "false"), ("address", "0x" + "AB" * 20, "0x" + "ab" * 20), ("bytes", "0xAB", "0xab"),
        ("bytes32", "0x" + "0F" * 32, "0x" + "0f" * 32),
        ("Token", TOKEN, f'{{"address":"0x{"ab" * 20}","chainId":8453}}'),
        ("TokenAmount", {"token": TOKEN, "amount": "1.50"},
         f'{{"token":{{"address":"0x{"ab" * 20}","chainId":8453}},"amount":"1.50"}}'),
    ],
)  # fmt: skip
def test_an_input_of_text_is_what_the_function_parses(word: str, value: Any, text: str) -> None:
    assert _text(word, value) == (None, [text])


@each_row(
    ("word", "value"),
    [
        ("uint256", "x"), ("uint256", 1.5), ("uint256", None), ("uint256", True), ("bool", "true"), ("bool", 1),
        ("string", 5), ("address", None), ("Token", "x"), ("Token", {"address": "0x"}),
        ("TokenAmount", {"token": TOKEN}), ("TokenAmount", {"amount": "1"}),
    ],
)  # fmt: skip
def test_a_value_that_is_none_of_its_type_stops_the_run(word: str, value: Any) -> None:
    assert _text(word, value) == ("bad-input", [])


def _equal(word: str, value: Any, kind: str, expected: int) -> str | None:
    """The reason of a run that traps unless its constant is `expected`."""
    before = f'(import "index" "input.x" (global $x {kind}))'
    wasm = module(f"(if ({kind}.ne (global.get $x) ({kind}.const {expected})) (then unreachable))", before=before)
    return run_here(wasm, inputs={"x": (word, value)}).reason


@each_row(
    ("word", "value", "kind", "expected"),
    [
        ("uint8", 255, "i32", 255), ("uint32", 2**32 - 1, "i32", 2**32 - 1), ("int32", -5, "i32", -5),
        ("int8", "-128", "i32", -128), ("uint64", str(LARGE), "i64", LARGE), ("int64", -1, "i64", -1),
        ("uint32", 7, "i64", 7), ("bool", True, "i32", 1), ("bool", False, "i32", 0),
    ],
)  # fmt: skip
def test_a_small_integer_is_a_constant(word: str, value: Any, kind: str, expected: int) -> None:
    assert _equal(word, value, kind, expected) is None
    assert _equal(word, value, kind, expected - 1) == "trap"


def test_constants_are_signed_as_the_engine_has_them() -> None:
    assert constant_of("x", GuestInput("uint32", 2**32 - 1), "const i32") == -1
    assert constant_of("x", GuestInput("uint64", LARGE), "const i64") == -1


@each_row(
    ("word", "value", "kind"),
    [
        ("uint64", 5, "i32"), ("uint256", 5, "i64"), ("uint", 5, "i32"), ("string", "5", "i32"),
        ("address", "0x", "i32"), ("uint32", 2**32, "i32"), ("int32", -(2**31) - 1, "i32"),
        ("uint64", 2**64, "i64"), ("uint32", "x", "i32"),
        ("bool", 1, "i32"),
    ],
)  # fmt: skip
def test_a_value_that_no_constant_can_have_stops_the_run(word: str, value: Any, kind: str) -> None:
    assert _equal(word, value, kind, 5) == "bad-input"


def test_an_input_that_the_trigger_does_not_have_stops_the_run() -> None:
    for kind in ("i32", "(mut i32)"):
        before = f'(import "index" "input.absent" (global $x {kind}))'
        done = run_here(module("", before=before), inputs={"x": ("uint8", 1)})
        assert (done.reason, "absent" in done.text) == ("bad-input", True)


def test_inputs_that_a_function_does_not_import_are_ignored() -> None:
    assert run_here(module(""), inputs={"x": ("string", "x")}).reason is None


def test_text_inputs_are_null_while_top_level_code_runs() -> None:
    before = '(import "index" "input.x" (global $x (mut i32)))'
    others = "(func $start (if (global.get $x) (then unreachable))) (start $start)"
    wasm = module("(if (i32.eqz (global.get $x)) (then unreachable))", before=before, others=others)
    assert run_here(wasm, inputs={"x": ("string", "x")}).reason is None


def test_text_inputs_are_pinned() -> None:
    before = '(import "index" "input.x" (global $x (mut i32)))'
    others = "(global $pinned (mut i32) (i32.const 0))"
    pin = '(func (export "__pin") (param i32) (result i32) (global.set $pinned (local.get 0)) (local.get 0))'
    body = "(if (i32.ne (global.get $pinned) (global.get $x)) (then unreachable))"
    wasm = module(body, before=before, others=others, runtime=NEW + pin)
    assert run_here(wasm, inputs={"x": ("string", "x")}).reason is None


def test_inputs_are_named_by_the_manifest_and_valued_by_the_trigger() -> None:
    given = inputs_of({"a": "uint8", "b": "string"}, {"b": "x", "a": 1})
    assert given == {"a": GuestInput("uint8", 1), "b": GuestInput("string", "x")}
    assert [text_of(name, each) for name, each in given.items()] == ["1", "x"]
