"""What is taken as function.wasm, and that refusing costs little."""

import mmap
import re
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from counted_calls import calls_within
from cpu_time import cpu_within
from each_row import each_row
from muniment.protocol.errors import InvalidWasm
from muniment.protocol.functions import wasm
from muniment.protocol.functions.wasm import check_wasm

BUNDLES = Path(__file__).parents[2] / "vectors" / "bundles"
SAMPLES = {path.parent.name: path.read_bytes() for path in sorted(BUNDLES.glob("*/function.wasm"))}
EMPTY = b"\0asm\1\0\0\0"
I32, V128, FUNCREF = b"\x7f", b"\x7b", b"\x70"
END = b"\x0b"


def leb(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + leb(rest) if rest else bytes([low])


def vector(*items: bytes) -> bytes:
    return leb(len(items)) + b"".join(items)


def sized(content: bytes) -> bytes:
    return leb(len(content)) + content


def module(**sections: bytes) -> bytes:
    """A module of the given sections, named `s1` for section 1, in the order given."""
    return EMPTY + b"".join(bytes([int(name[1:])]) + sized(content) for name, content in sections.items())


def type_of(params: bytes = b"", results: bytes = b"") -> bytes:
    return b"\x60" + sized(params) + sized(results)


def function(
    code: bytes, *, results: bytes = b"", runs: bytes = b"\0", before: dict[str, bytes] | None = None
) -> bytes:
    """A module of one function without parameters; `before` are sections between functions and code."""
    sections = {"s1": vector(type_of(results=results)), "s3": vector(b"\0"), **(before or {})}
    return module(**sections, s10=vector(sized(runs + code + END)))


def refused(data: bytes) -> str:
    with pytest.raises(InvalidWasm) as caught:
        check_wasm(data)
    return caught.value.detail


@each_row("name", ["own-big", "own-hello", "own-threshold"])
def test_takes_the_sample_bundles(name: str) -> None:
    check_wasm(SAMPLES[name])
    check_wasm(memoryview(SAMPLES[name]))


def test_takes_the_empty_module_and_a_mapped_file(tmp_path: Path) -> None:
    check_wasm(EMPTY)
    check_wasm(EMPTY + b"\0\2\1x")  # a custom section
    path = tmp_path / "function.wasm"
    path.write_bytes(SAMPLES["own-big"])
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        check_wasm(mapped)


MEMORY = {"s5": vector(b"\0\1")}
TAKEN = {
    "sign extension": function(b"\x41\0\xc0\x1a"),
    "non-trapping conversions": function(b"\x43\0\0\0\0\xfc\0\x1a"),
    "multiple values": function(b"\x41\0\x41\0", results=I32 * 2),
    "bulk memory": function(b"\x41\0\x41\0\x41\0\xfc\x0b\0", before=MEMORY),
    "reference types": function(b"\xd0\x6f\x1a", before={"s4": vector(FUNCREF + b"\0\1", b"\x6f\0\1")}),
    "simd": function(b"\xfd\x0c" + b"\0" * 16 + b"\x1a"),
    "mutable globals": module(s6=vector(I32 + b"\1\x41\0" + END), s7=vector(b"\1g\3\0")),
    "extended constants": module(s6=vector(I32 + b"\0\x41\1\x41\2\x6a" + END)),
}
NOT_TAKEN = {
    "shared memory": module(s5=vector(b"\3\1\1")),
    "atomics": function(b"\x41\0\xfe\x10\2\0\x1a", before=MEMORY),
    "tail calls": function(b"\x12\0"),
    "two memories": module(s5=vector(b"\0\1", b"\0\1")),
    "two memories, one imported": module(s2=vector(b"\1a\1b\2\0\1"), s5=vector(b"\0\1")),
    "64-bit memory": module(s5=vector(b"\4\1")),
    "64-bit table": module(s4=vector(FUNCREF + b"\4\1")),
    "custom page sizes": module(s5=vector(b"\x08\1\0")),
    "relaxed simd": function((b"\xfd\x0c" + b"\0" * 16) * 2 + b"\xfd\x80\2\x1a"),
    "exceptions": module(s1=vector(type_of()), s13=vector(b"\0\0")),
    "imported tag": module(s1=vector(type_of()), s2=vector(b"\1a\1b\4\0\0")),
    "exception types": module(s1=vector(type_of(b"\x69"))),
    "try_table": function(b"\x1f\x40\0" + END),
    "typed function references": function(b"\xd0\0\x14\0"),
    "typed references": module(s1=vector(type_of(), type_of(b"\x63\0"))),
    "gc structs": module(s1=vector(b"\x5f\0")),
    "gc types": module(s1=vector(type_of(b"\x6e"))),
    "wide arithmetic": function(b"\x42\0\x42\0\x42\0\x42\0\xfc\x13\x1a\x1a"),
}


@each_row("proposal", TAKEN)
def test_takes_the_proposals_of_webassembly_2(proposal: str) -> None:
    check_wasm(TAKEN[proposal])


@each_row("proposal", NOT_TAKEN)
def test_refuses_other_proposals(proposal: str) -> None:
    why = (
        r"unsupported|not supported|not enabled|references required|2 memories|multiple memories|not that of a function"
    )
    assert re.search(why, refused(NOT_TAKEN[proposal]))


HTML = b"<!DOCTYPE html><html></html>"
LOCALS = b"a function with more than 50000 locals"
WRONG = {
    "nothing": (b"", "is empty"),
    "html": (HTML, "not WebAssembly"),
    "text format": (b"(module)", "not WebAssembly"),
    "magic in capitals": (b"\0ASM\1\0\0\0", "not WebAssembly"),
    "the magic alone": (EMPTY[:4], "ends within its first 8 bytes"),
    "seven bytes": (EMPTY[:7], "ends within its first 8 bytes"),
    "version 2": (b"\0asm\2\0\0\0", "version 02000000"),
    "version 0x0100": (b"\0asm\1\1\0\0", "version 01010000"),
    "a component": (b"\0asm\x0d\0\1\0", "is a WebAssembly component"),
    "html after the preamble": (EMPTY + HTML, "section 60 extends beyond"),
    "a section number alone": (EMPTY + b"\1", "ends too early"),
    "a section longer than the file": (EMPTY + b"\1\5\0", "section 1 extends beyond"),
    "a section of 4 GiB": (EMPTY + b"\1\xff\xff\xff\xff\x0f", "section 1 extends beyond"),
    "a size of 6 bytes": (EMPTY + b"\0\x80\x80\x80\x80\x80\0", "more than 5 bytes"),
    "a size of 33 bits": (EMPTY + b"\0\xff\xff\xff\xff\x1f", "more than 32 bits"),
    "an unknown section": (EMPTY + b"\x63\0", "not valid WebAssembly"),
    "sections out of order": (module(s3=vector(), s1=vector()), "not valid WebAssembly"),
    "a section twice": (module(s1=vector()) + b"\1\1\0", "section 1 comes twice"),
    "a wrong type on the stack": (function(b"\x42\0", results=I32), "type mismatch"),
    "code for no function": (module(s10=vector(sized(b"\0" + END))), "not valid WebAssembly"),
    "10^9 locals": (function(b"", runs=vector(leb(10**9) + I32)), LOCALS.decode()),
    "50,001 locals": (function(b"", runs=vector(leb(50_000) + I32, b"\1" + I32)), LOCALS.decode()),
    "2^32 - 1 runs of locals": (function(b"", runs=leb(2**32 - 1)), "declarations of locals"),
    "a table of 2^32 - 1": (module(s4=vector(FUNCREF + b"\0" + leb(2**32 - 1))), "a table of at least 4294967295"),
    "an imported table of 2^32 - 1": (module(s2=vector(b"\1a\1b\1" + FUNCREF + b"\0" + leb(2**32 - 1))), "a table of"),
    "a memory of 65,537 pages": (module(s5=vector(b"\0" + leb(65_537))), "a memory of at least 65537 pages"),
    "an imported memory of 65,537": (module(s2=vector(b"\1a\1b\2\0" + leb(65_537))), "a memory of at least"),
    "2^32 - 1 types": (module(s1=leb(2**32 - 1)), "4294967295 types; at most 10000"),
    "2^32 - 1 functions": (module(s3=leb(2**32 - 1)), "4294967295 functions; at most 100000"),
    "2^32 - 1 imports": (module(s2=leb(2**32 - 1)), "imports; at most 10000"),
    "2^32 - 1 exports": (module(s7=leb(2**32 - 1)), "exports; at most 100000"),
    "2^32 - 1 globals": (module(s6=leb(2**32 - 1)), "globals; at most 1000000"),
    "2^32 - 1 tables": (module(s4=leb(2**32 - 1)), "tables; at most 100"),
    "2^32 - 1 segments": (module(s9=leb(2**32 - 1)), "element segments; at most 100000"),
    "2^32 - 1 data": (module(s11=leb(2**32 - 1)), "data segments; at most 100000"),
    "2^32 - 1 bodies": (module(s10=leb(2**32 - 1)), "function bodies; at most 100000"),
    "1,001 parameters": (module(s1=vector(type_of(I32 * 1001))), "1001 parameters; at most 1000"),
    "a name beyond its import": (module(s2=vector(b"\x7fa\1b\0\0")), "the module name of an import extends"),
    "a body beyond the section": (module(s10=b"\1\x7f\0"), "a function body extends beyond"),
    "a huge body": (function(b"\1" * wasm.BODY_BYTES_MAX), "a function body of 7654323 bytes"),
    "a thousand sections and one": (EMPTY + b"\0\1\0" * 1001, "more than 1000 sections"),
    "types of a million values": (module(s1=vector(*[type_of(I32 * 1000)] * 1001)), "types with more than 1000000"),
}  # fmt: skip


@each_row("case", WRONG)
def test_refuses_with_the_reason(case: str) -> None:
    data, why = WRONG[case]
    assert why in refused(data)


@each_row("name", ["own-hello", "own-threshold"])
def test_refuses_a_sample_cut_anywhere_but_between_sections(name: str) -> None:
    data = SAMPLES[name]
    taken = []
    for end in range(len(data)):
        try:
            check_wasm(data[:end])
        except InvalidWasm:
            continue
        taken.append(end)
    # The preamble; the preamble and the custom section; then the types, and the imports after them.
    assert taken[:3] == [8, 49, 60 if name == "own-hello" else 63]
    assert len(taken) <= 4


def test_a_reason_is_short_whatever_the_module_says() -> None:
    name = sized("\u202e\n".encode() * 10_000)
    detail = refused(module(s5=vector(b"\0\1"), s7=vector(name + b"\2\0", name + b"\2\0")))
    assert "duplicate export name" in detail
    assert len(detail) < 400
    assert detail.isprintable()


def wide_branches(width: int, targets: int) -> bytes:
    """A function whose br_table makes the validator pop `width` values for each of `targets` bytes."""
    consts = b"\x41\0" * width
    code = b"\2\1" + consts + b"\x41\0\x0e" + leb(targets) + b"\0" * (targets + 1) + END + b"\x1a" * width + END
    return module(s1=vector(type_of(), type_of(results=I32 * width)), s3=vector(b"\0"), s10=vector(sized(b"\0" + code)))


@pytest.mark.timed
def test_code_that_is_dear_to_validate_is_refused_before_it_costs() -> None:
    check_wasm(wide_branches(8, 10_000))
    with cpu_within(1):
        assert "too many for a body of" in refused(wide_branches(1000, 65_000))
        params = module(s1=vector(type_of(I32 * 1000)), s3=vector(b"\0"), s10=b"\1" + sized(b"\0" * 600_000))
        assert "a type has 1000 parameters or results" in refused(params)


def test_a_process_makes_one_validator() -> None:
    check_wasm(EMPTY)
    with calls_within(60):  # a validator takes a hundred calls, each of which may wait for another thread
        check_wasm(EMPTY)


@pytest.mark.timed
def test_the_event_loop_runs_on_while_a_thread_validates() -> None:
    check_wasm(EMPTY)  # imports the validator
    branches = wide_branches(60, 60_000)

    def ticks() -> int:
        dear = threading.Thread(target=lambda: [check_wasm(branches) for _ in range(4)])
        dear.start()
        count = 0
        while dear.is_alive():
            time.sleep(0.001)
            count += 1
        return count

    # A machine that is busy with other things may give this thread no turn. If it could have none, no attempt succeeds.
    assert any(ticks() > 5 for _ in range(20))


mutations = st.tuples(
    st.sampled_from([SAMPLES["own-hello"], SAMPLES["own-threshold"], *TAKEN.values(), *NOT_TAKEN.values()]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.binary(max_size=8),
)


@settings(deadline=None)
@given(mutations)
def test_a_mutated_module_is_taken_or_refused(mutation: tuple[bytes, list[tuple[int, int]], bytes]) -> None:
    data, changes, tail = mutation
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(data)] = byte
    check_wasm(EMPTY)  # imports the validator
    with calls_within(10_000):
        try:
            check_wasm(bytes(changed) + tail)
        except InvalidWasm as refusal:
            refusal.detail.encode()
