"""The strict reading of JSON text, for every body and manifest."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from each_row import each_row
from muniment.protocol.errors import InvalidJson
from muniment.protocol.json_text import JSON_DEPTH_MAX, parse_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)

# To make up such a value takes twenty milliseconds.
FEWER = settings(max_examples=settings().max_examples // 3)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.long
@FEWER
@given(json_values)
def test_reads_what_json_writes(value: Any) -> None:
    for text in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, indent=2),
    ):
        assert parse_json(text.encode()) == value


@pytest.mark.long
@FEWER
@given(json_values)
def test_takes_an_object_apart_from_its_double(value: Any) -> None:
    for member, template in (
        (json.dumps(value), '{{"a":{0},"b":1,"a":{0}}}'),
        (json.dumps(value), '{{"a": {0}, "b": 1, "a": {0}}}'),
        (json.dumps(value, indent=1), '{{\n "a" : {0}\t,\r\n"b": 1, "a": {0} }}'),
    ):
        with pytest.raises(InvalidJson, match='two members named "a"'):
            parse_json(template.format(member).encode())


@each_row(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"a":2}',
        '{"a" :1,"a" :":"}',
        '{"a":1,"\\u0061":2}',
        '{"b":[{"a":1,"a":2}]}',
        '[[],{"x":{"a":null,"c":1,"a":null}}]',
    ],
)
def test_refuses_two_members_of_one_name(text: str) -> None:
    with pytest.raises(InvalidJson, match='two members named "a"'):
        parse_json(text.encode())


def test_a_repeated_long_name_is_shown_in_part() -> None:
    name = "n" * 100_000
    with pytest.raises(InvalidJson) as refused:
        parse_json(f'{{"{name}":1,"{name}":1}}'.encode())
    assert len(refused.value.detail) < 100


@each_row(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (b"{} x", "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"01", "not JSON"),
        (b'"\x01"', "not JSON"),
        (b"\x00", "not JSON"),
        (b"\xa01", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
        (b"NaN", "NaN and Infinity are not JSON"),
        (b"[Infinity]", "NaN and Infinity are not JSON"),
        (b'{"a":-Infinity}', "NaN and Infinity are not JSON"),
        (b"1e400", "too large"),
        (b"[-1.5e999]", "too large"),
        (b"1" * 5000, "too many digits"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\udc00":1}', "surrogate"),
        (b'["\\ude00\\ud83d"]', "surrogate"),
        (nested(JSON_DEPTH_MAX + 1), "deeper than 64"),
        (nested(100), "deeper than 64"),
        (nested(100_000), "deeper than 64"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "deeper than 64"),
        (b"[" * 250_000, "deeper than 64"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_refuses_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(InvalidJson, match=why):
        parse_json(data)


def test_takes_what_is_only_unusual() -> None:
    assert parse_json(nested(JSON_DEPTH_MAX)) is not None
    assert len(parse_json(b"[" + b"[]," * 1000 + b"[]]")) == 1001
    assert parse_json(b'"\\ud83d\\ude00 \\\\ud800"') == "😀 \\ud800"
    assert parse_json(b"1" + b"0" * 400) == 10**400
    assert parse_json(b'"' + b"[" * 1000 + b'"') == "[" * 1000
    assert parse_json(b'["' + b"1e100," * 2000 + b'", "]"]') == ["1e100," * 2000, "]"]
    assert parse_json(b'["' + (b"1" * 100 + b" ") * 100 + b'"]') == [("1" * 100 + " ") * 100]
    assert math.copysign(1, parse_json(b"-0.0")) == -1
    assert list(parse_json(b'{"b":1,"a":2,"1":3}')) == ["b", "a", "1"]
    assert list(parse_json(b'{"b": 1, "a": 2, "1": 3}')) == ["b", "a", "1"]


@settings(deadline=None)
@given(st.binary() | st.text(alphabet='{}[]":,\\u0dD8a1e.-+ \n').map(str.encode))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = parse_json(data)
    except InvalidJson as refusal:
        json.dumps(refusal.detail).encode()
    else:
        assert json.loads(data) == value
