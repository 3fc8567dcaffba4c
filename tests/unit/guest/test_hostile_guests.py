"""Functions that pass nonsense, ask too much or never end: each run ends with a reason that says which."""

from __future__ import annotations

import json

import pytest

from each_row import each_row
from guest_modules import CHASE, FUEL_HERE, NEW, Texts, module, run_here
from muniment.guest import limits
from muniment.guest.engine import compile_wasm, new_engine
from muniment.guest.frames import RunJob
from muniment.guest.running import Stopwatch, run
from muniment.guest.types import Answer, Question

ASK = "environment._evmCallQuery"
CALL = '{"to":"0x%040x","chainId":1,"data":"0x"}'


def _loop(count: int, body: str, *, label: str = "more") -> str:
    """`body` so many times; `$n` counts."""
    return (
        f"(local $n i32) (loop ${label} {body} (local.set $n (i32.add (local.get $n) (i32.const 1))) "
        f"(br_if ${label} (i32.lt_u (local.get $n) (i32.const {count}))))"
    )


def test_a_loop_without_end_uses_up_the_fuel() -> None:
    done = run_here(module("(loop $more (br $more))"))
    assert (done.reason, done.fuel_used) == ("fuel", FUEL_HERE)


def test_a_loop_at_the_instantiation_uses_up_the_fuel() -> None:
    done = run_here(module("", others="(func $start (loop $more (br $more))) (start $start)"))
    assert (done.reason, done.fuel_used) == ("fuel", FUEL_HERE)


def test_a_loop_without_end_is_interrupted_when_the_computing_time_is_over() -> None:
    engine = new_engine()
    _, code = compile_wasm(engine, module("(loop $more (br $more))"))
    stopwatch = Stopwatch(engine, seconds=0.05)
    # More fuel than a day can use.
    done = run(engine, RunJob(code, "{}", {}), lambda _: Answer(success=True), stopwatch.start, fuel=2**62)
    assert (done.reason, done.fuel_used) == ("time", 0)  # it is not known


_NO_BYTE = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 0))"


@pytest.mark.timed
@each_row(
    "body",
    [
        f"(loop $more {'(drop (memory.grow (i32.const 60000)))' * 100} (br $more))",
        f"(loop $more {_NO_BYTE * 100} (br $more))",
        CHASE,
    ],
)
def test_fuel_ends_the_slowest_loops_before_their_time(body: str) -> None:
    engine = new_engine()
    _, code = compile_wasm(engine, module(body, pages=1024))
    stopwatch = Stopwatch(engine, seconds=limits.GUEST_CPU_S * FUEL_HERE / limits.FUEL)
    done = run(engine, RunJob(code, "{}", {}), lambda _: Answer(success=True), stopwatch.start, fuel=FUEL_HERE)
    assert (done.reason, done.fuel_used) == ("fuel", FUEL_HERE)


@each_row(
    ("body", "words"),
    [
        ("unreachable", "unreachable"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer divide by zero"),
        ("(drop (i32.load (i32.const -4)))", "out of bounds memory access"),
    ],
)
def test_what_webassembly_forbids_is_a_trap(body: str, words: str) -> None:
    done = run_here(module(body))
    assert done.reason == "trap"
    assert words in done.text


def test_a_recursion_without_end_uses_up_the_stack_which_is_memory() -> None:
    others = "(func $deeper (param i64 i64) (call $deeper (local.get 1) (local.get 0)) (drop (local.get 0)))"
    done = run_here(module("(call $deeper (i64.const 1) (i64.const 2))", others=others))
    assert done.reason == "memory"


def test_a_memory_does_not_grow_beyond_its_limit() -> None:
    texts = Texts()
    grown = "(i32.ne (memory.grow (i32.const 960)) (i32.const 64))"
    refused = "(i32.ne (memory.grow (i32.const 1)) (i32.const -1))"
    checks = f"(if {grown} (then unreachable)) (if {refused} (then unreachable))"
    body = f"{checks} (call $log._log (i32.const 3) {texts.at('full')})"
    done = run_here(module(body, imports=["log._log"], texts=texts))
    assert (done.reason, done.logs) == (None, ["[Info] full"])
    assert limits.MEMORY_BYTES == 1024 * 65_536


def test_a_larger_table_than_runs_have_is_refused() -> None:
    done = run_here(module("", others=f"(table {limits.TABLE_ENTRIES + 1} funcref)"))
    assert done.reason == "limit-memory"


@each_row(
    "pointer", ["(i32.const 0)", "(i32.const 7)", "(i32.const -1)", "(i32.const 4194305)", "(i32.const -2147483648)"]
)
def test_a_pointer_outside_of_the_memory_is_no_text(pointer: str) -> None:
    done = run_here(module(f"(call $log._log (i32.const 3) {pointer})", imports=["log._log"]))
    assert (done.reason, done.logs) == ("bad-text", [])


@each_row(("kind", "length"), [(1, None), (0, None), (2, 3), (2, 2**32 - 2), (2, 4 * 1024 * 1024)])
def test_an_object_that_is_no_string_or_ends_outside_of_the_memory_is_no_text(kind: int, length: int | None) -> None:
    texts = Texts()
    pointer = texts.object(b"a\0b\0", kind=kind, length=length)
    done = run_here(module(f"(call $environment._transfer {pointer})", imports=["environment._transfer"], texts=texts))
    assert done.reason == "bad-text"


def _new(result: str) -> str:
    return f'(func (export "__new") (param i32 i32) (result i32) {result})'


@each_row(
    "result",
    ["(i32.const 0)", "(i32.const 4)", "(i32.const -1)", "(i32.const 4194304)", "(i32.const 4194300)",
     "(i32.const 2048)", "(i32.const -2147483648)"],
)  # fmt: skip
def test_an_allocator_that_returns_nonsense_ends_the_run(result: str) -> None:
    wasm = module("(drop (call $environment._getContext))", imports=["environment._getContext"], runtime=_new(result))
    done = run_here(wasm)
    assert done.reason == "bad-text"
    assert "__new returned" in done.text


def test_an_allocator_that_never_ends_uses_up_the_fuel() -> None:
    wasm = module(
        "(drop (call $environment._getContext))", imports=["environment._getContext"],
        runtime=_new("(loop $more (br $more)) (i32.const 0)"),
    )  # fmt: skip
    assert run_here(wasm).reason == "fuel"


def test_an_allocator_that_calls_an_import_ends_the_run() -> None:
    again = _new("(call $environment._getContext)")
    wasm = module("(drop (call $environment._getContext))", imports=["environment._getContext"], runtime=again)
    done = run_here(wasm)
    assert (done.reason, done.text) == ("bad-text", "its __new calls an import")


def test_an_allocator_may_abort() -> None:
    aborting = _new("(call $env.abort (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)) (i32.const 0)")
    wasm = module(
        "(drop (call $environment._getContext))", imports=["env.abort", "environment._getContext"], runtime=aborting
    )
    assert run_here(wasm).reason == "abort"


def _filled(length: int, *, call: str) -> bytes:
    """Calls `call` with a text of that many letters, which the module makes itself."""
    body = (
        f"(local $at i32) (local.set $at (call $new (i32.const {2 * length}) (i32.const 2)))"
        f"(memory.fill (local.get $at) (i32.const 97) (i32.const {2 * length})) {call}"
    )
    new = NEW.replace('(func (export "__new")', '(func $new (export "__new")')
    return module(body, imports=["log._log", "environment._transfer", "evm._keccak"], runtime=new, pages=1000)


TRANSFER = "(call $environment._transfer (local.get $at))"
KECCAK = "(drop (call $evm._keccak (local.get $at)))"


@each_row("call", [TRANSFER, KECCAK])
def test_a_text_of_ten_mebibytes_is_refused_unread(call: str) -> None:
    done = run_here(_filled(5 * 1024 * 1024, call=call))
    assert done.reason == "limit-text"


def test_the_longest_text_is_read_and_a_longer_one_is_not() -> None:
    assert run_here(_filled(limits.TEXT_LENGTH_MAX, call=KECCAK)).reason is None
    assert run_here(_filled(limits.TEXT_LENGTH_MAX + 1, call=KECCAK)).reason == "limit-text"


def test_a_long_log_line_is_cut_and_later_lines_are_kept() -> None:
    call = "(call $log._log (i32.const 3) (local.get $at))"
    done = run_here(_filled(5 * 1024 * 1024, call=call + call))
    assert [len(line) for line in done.logs] == [limits.LOG_LINE_LENGTH_MAX + len("[Info] ")] * 2
    assert (done.reason, done.logs_cut) == (None, True)


def _logging(count: int, text: str) -> bytes:
    texts = Texts()
    return module(_loop(count, f"(call $log._log (i32.const 3) {texts.at(text)})"), imports=["log._log"], texts=texts)


def test_two_hundred_log_lines_are_kept_and_the_rest_is_cut() -> None:
    full = run_here(_logging(limits.LOG_LINES_MAX, "x"))
    assert (len(full.logs), full.logs_cut) == (200, False)
    more = run_here(_logging(limits.LOG_LINES_MAX + 1, "x"))
    assert (more.reason, len(more.logs), more.logs_cut) == (None, 200, True)


def test_log_lines_have_64_kib_together() -> None:
    done = run_here(_logging(30, "ä" * 2_000))
    assert sum(len(line.encode()) for line in done.logs) <= limits.LOG_BYTES_MAX
    assert (len(done.logs), done.logs_cut) == (limits.LOG_BYTES_MAX // 4_007, True)


def test_a_million_logs_end_the_run() -> None:
    assert run_here(_logging(limits.LOG_CALLS_MAX, "x")).reason is None
    assert run_here(_logging(1_000_000, "x")).reason == "limit-log-calls"


def test_logs_are_kept_when_a_run_is_stopped() -> None:
    texts = Texts()
    body = f"(call $log._log (i32.const 1) {texts.at('so far')}) unreachable"
    done = run_here(module(body, imports=["log._log"], texts=texts))
    assert (done.reason, done.logs) == ("trap", ["[Error] so far"])


def _calling(count: int) -> bytes:
    texts = Texts()
    body = _loop(count, f"(drop (call $evm._keccak {texts.at('x')}))")
    return module(body, imports=["evm._keccak"], texts=texts)


def test_a_run_may_call_imports_256_times() -> None:
    assert run_here(_calling(limits.HOST_CALLS_MAX)).reason is None
    assert run_here(_calling(limits.HOST_CALLS_MAX + 1)).reason == "limit-host-calls"


def _sending(count: int, text: str = "{}") -> bytes:
    texts = Texts()
    body = _loop(count, f"(call $environment._transfer {texts.at(text)})")
    return module(body, imports=["environment._transfer"], texts=texts)


def test_a_run_may_send_32_intents() -> None:
    assert len(run_here(_sending(limits.INTENTS_MAX)).intents) == 32
    done = run_here(_sending(limits.INTENTS_MAX + 1))
    assert (done.reason, done.intents) == ("limit-intents", [])


def test_an_intent_has_at_most_128_kib_in_utf_8() -> None:
    def intent(size: int) -> str:
        return json.dumps({"a": "ä" * ((size - 8) // 2) + "x" * (size % 2)}, ensure_ascii=False, separators=(",", ":"))

    for size, reason in ((limits.INTENT_BYTES_MAX, None), (limits.INTENT_BYTES_MAX + 1, "limit-intent-bytes")):
        text = intent(size)
        assert len(text.encode()) == size
        texts = Texts()
        call = f"(call $environment._transfer {texts.at(text)})"
        assert run_here(module(call, imports=["environment._transfer"], texts=texts)).reason == reason


def test_steps_of_decoding_are_counted_over_the_run() -> None:
    # Two levels of pointers that share what they point to: 2,000 bytes of data, and a million values.
    def shared(count: int, below: str) -> str:
        return f"{count:064x}" + f"{32 * count:064x}" * count + below

    data = f"{32:064x}" + shared(100, shared(100, f"{100:064x}" + "00" * 32 * 100))
    texts = Texts()
    argument = texts.at(json.dumps({"abiType": "uint256[][][]", "value": f"0x{data}"}))
    done = run_here(module(f"(drop (call $evm._decode {argument}))", imports=["evm._decode"], texts=texts))
    assert done.reason == "limit-abi"


def test_an_exception_of_who_answers_is_not_swallowed_as_success() -> None:
    def ask(_: Question) -> Answer:
        raise MemoryError

    texts = Texts()
    wasm = module(f"(drop (call ${ASK} {texts.at(CALL % 1)}))", imports=[ASK], texts=texts)
    assert run_here(wasm, ask=ask).reason == "memory"


def test_a_start_function_may_log_before_the_instance_exists() -> None:
    texts = Texts()
    others = f"(func $start (call $log._log (i32.const 3) {texts.at('top level')})) (start $start)"
    done = run_here(module("", imports=["log._log"], texts=texts, others=others))
    assert (done.reason, done.logs) == (None, ["[Info] top level"])
