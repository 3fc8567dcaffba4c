"""The header fields `traceparent` and `tracestate`, as W3C Trace Context defines them."""

from __future__ import annotations

from each_row import each_row
from muniment.service.running.tracing.parents import Parent, read_parent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEAD = f"00-{TRACE}-{SPAN}-01"


@each_row(
    ("text", "is_sampled"),
    [
        (HEAD, True), (f"00-{TRACE}-{SPAN}-00", False), (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-fe", False), (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
    ],
)  # fmt: skip
def test_a_parent_names_its_trace_and_its_span(text: str, *, is_sampled: bool) -> None:
    assert read_parent([text]) == Parent(TRACE, SPAN, is_sampled)


@each_row(
    "values",
    [
        [], [""], [HEAD, HEAD], [HEAD.upper()], [f"ff-{TRACE}-{SPAN}-01"], [f"{HEAD}-"], [f"{HEAD}-more"],
        [f"00-{'0' * 32}-{SPAN}-01"], [f"00-{TRACE}-{'0' * 16}-01"], [HEAD[:-1]], [f" {HEAD}"], [f"{HEAD}\n"],
        [f"00_{TRACE}_{SPAN}_01"], [f"cc-{TRACE}-{SPAN}-01more"], ["0" * 100_000],
    ],
)  # fmt: skip
def test_another_text_names_no_parent(values: list[str]) -> None:
    assert read_parent(values, ["a=b"]) is None


@each_row(
    ("values", "entries"),
    [
        (["a=1,b=2"], (("a", "1"), ("b", "2"))),
        (["a=1", "b=2"], (("a", "1"), ("b", "2"))),
        ([" a=1 ,, \tb=2\t"], (("a", "1"), ("b", "2"))),
        (["t0@v=x y"], (("t0@v", "x y"),)),
        (["a=1,a=2"], ()),
        (["A=1"], ()),
        (["a=1,b"], ()),
        (["a=b=c"], ()),
        (["a=\x01"], ()),
        (["a=" + "é"], ()),
        (["a="], ()),
        ([",".join(f"k{number}=v" for number in range(33))], ()),
        (["a=" + "x" * 256], (("a", "x" * 256),)),
        (["a=" + "x" * 257], ()),
        (["a=" + "x" * 200 + ",b=" + "x" * 200 + ",c=" + "x" * 200], ()),
    ],
)
def test_a_state_is_kept_if_it_is_valid_and_short(values: list[str], entries: tuple[tuple[str, str], ...]) -> None:
    parent = read_parent([HEAD], values)
    assert parent is not None
    assert parent.state == entries
