"""Answers that are made to cost time, memory or an exception of another kind."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from facades_world import QUICK, calls_of, plain_http, signer

from counted_calls import calls_within
from intent_bodies import intent_body
from middle import Answered, Asked, Behaviour, Forward, Middle, always, before
from muniment.client import Forged, NotARegistry, Registry, Unreachable
from muniment.protocol.errors import Invalid, Unavailable
from muniment.protocol.functions.types import Function
from muniment.protocol.intents.types import Intent
from muniment.protocol.triggers.types import Trigger
from operator_client import IntentDraft

SIG = "0x" + "12" * 64 + "1b"
HASH = IntentDraft(1).hash
CID = "QmRwFzcSwmkbWJuQsFaHcAGvykRU3q82JiYfwGaswNKFG4"
JSON = {"content-type": "application/json"}
OK = b"HTTP/1.1 200 OK\r\n"
CALLS_MAX = 2_000_000
BYTES_MAX = 160 * 2**20
Call = Callable[[Registry], object]
CALLS: dict[str, Call] = {
    "triggers.get": lambda registry: registry.triggers.get(SIG),
    "triggers.list": lambda registry: [*registry.triggers.list()],
    "triggers.follow": lambda registry: next(iter(registry.triggers.follow(after="A"))),
    "triggers.refresh": lambda registry: registry.triggers.refresh([SIG]),
    "intents.get": lambda registry: registry.intents.get(HASH),
    "intents.list": lambda registry: [*registry.intents.list()],
    "intents.follow": lambda registry: next(iter(registry.intents.follow(after="A"))),
    "functions.get": lambda registry: registry.functions.get(CID),
    "functions.list": lambda registry: [*registry.functions.list()],
    "functions.manifest": lambda registry: registry.functions.manifest(CID),
    "account.log_in": lambda registry: registry.account.log_in(),
    "account.balances": lambda registry: registry.account.balances(),
    "events.begin": lambda registry: registry.events.begin(),
    "events.follow": lambda registry: next(iter(registry.events.follow(after="A"))),
}
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "half of it": b'[{"sig": "0x',
    "null": b"null",
    "a number": b"7",
    "a text": b'"x"',
    "an empty object": b"{}",
    "a list of lists": b"[[]]",
    "nested lists": b"[" * 10**5,
    "nested lists that end": b"[" * 10**5 + b"]" * 10**5,
    "nested objects": b'{"a":' * 10**5,
    "NaN": b"[NaN]",
    "infinity": b'{"a": -Infinity}',
    "bytes that are no UTF-8": b'["\xff\xfe"]',
    "no UTF-8 in a member": b'{"\xc3\x28": 1}',
    "half a surrogate pair": rb'["\ud800"]',
    "another encoding": "[]".encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf[]",
    "a long number": b"[" + b"9" * 10**6 + b"]",
    "a large number": b"[1e999]",
    "many wide numbers": b"[" + b"1e-300," * 10**5 + b"1]",
    "many lists": b"[" + b"[]," * 10**5 + b"[]]",
    "many objects": b"[" + b"{}," * 10**5 + b"{}]",
    "a text of megabytes": b'["' + b"x" * 2**22 + b'"]',
}


@pytest.fixture(scope="module")
def middle() -> Iterator[Middle]:
    with before("http://127.0.0.1:9") as made:
        yield made


def saying(content: bytes, status: int = 200, **headers: str) -> Behaviour:
    """The same answer to every request."""
    fields = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return always(Answered(status, fields, content))


@contextmanager
def bounded(text: bytes = b"") -> Generator[None]:
    """The block takes little CPU time and memory. A short `text` is not unpacked, so its memory is not measured."""
    if 0 < len(text) < 1_000:
        with calls_within(CALLS_MAX):
            yield
        return
    tracemalloc.start()
    try:
        with calls_within(CALLS_MAX):
            yield
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
    finally:
        tracemalloc.stop()


@contextmanager
def registry_at(middle: Middle, **given: Any) -> Generator[Registry]:
    with plain_http() as http:
        yield Registry(middle.url, signer=signer(7), token="t.t.t", retry=QUICK, http=http, **given)


@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_text_is_of_no_registry_to_every_operation(middle: Middle, text: str) -> None:
    """`null` in the place of a feed is a service without one: following goes on without it."""
    with bounded(TEXTS[text]), middle.behaving(saying(TEXTS[text])), registry_at(middle) as registry:
        for name, call in CALLS.items():
            with pytest.raises(NotARegistry, match=middle.url):
                assert call(registry) is None, name


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_problem_document_is_a_refusal(middle: Middle, text: str, status: int) -> None:
    kind = {400: Invalid, 503: Unavailable}[status]
    answer = saying(TEXTS[text], status, retry_after="9999")
    with bounded(TEXTS[text]), middle.behaving(answer), registry_at(middle) as registry:
        with pytest.raises(kind) as raised:
            registry.intents.get(HASH)
        assert raised.value.answer.status == status


def example(kind: Any) -> dict[str, Any]:
    return json.loads(json.dumps(kind.example))


@pytest.mark.parametrize(("name", "kind"), [("triggers", Trigger), ("intents", Intent), ("functions", Function)])
def test_a_page_of_two_thousand_records_is_forged_before_they_are_proved(middle: Middle, name: str, kind: Any) -> None:
    row = json.dumps({**example(kind), **({} if name != "intents" else {"events": [], "maxFees": []})})
    content = ("[" + ",".join([row] * 2_000) + "]").encode()
    link = f'</{name}?cursor=A>; rel="next"'
    with (
        middle.behaving(saying(content, link=link)),
        registry_at(middle) as registry,
        calls_within(100 * 2_000),
        pytest.raises(Forged),
    ):
        list(getattr(registry, name).list())
    two = saying(f"[{row},{row}]".encode(), link=link)
    with (
        middle.behaving(two),
        registry_at(middle, verify=False) as registry,
        pytest.raises(Forged, match="at most 1 records"),
    ):
        list(getattr(registry, name).list(limit=1))


WRONG: list[Any] = [None, True, -1, 7, 1.5, "x", "", [], [None], {}, {"a": {}}, "0x", "\x00", 2**64, "9" * 100, "🦊"]


@pytest.mark.parametrize("kind", [Trigger, Intent, Function])
def test_a_wrong_type_in_any_member_is_forged_or_harmless(middle: Middle, kind: Any) -> None:
    """A member may have a value that is right by chance. No other exception comes out."""
    calls: dict[Any, str] = {Trigger: "triggers.get", Intent: "intents.get", Function: "functions.get"}
    call = CALLS[calls[kind]]
    right = example(kind)
    right |= {Trigger: {"sig": SIG}, Intent: {**intent_body(1), "hash": HASH}, Function: {"CID": CID}}[kind]
    forged = 0
    with registry_at(middle, verify=False) as registry:
        with middle.behaving(saying(json.dumps(right).encode())):
            call(registry)
        for name in right:
            for value in WRONG:
                with middle.behaving(saying(json.dumps({**right, name: value}).encode())):
                    try:
                        call(registry)
                    except Forged:
                        forged += 1
    assert forged > len(right) * len(WRONG) / 2


@cache
def bombs() -> dict[str, bytes]:
    """A small text for each way of packing that Python knows; unpacked, it is larger than any answer may be."""
    content = bytes(2**27)
    return {"gzip": gzip.compress(content, 1), "deflate": zlib.compress(content, 1)}


@pytest.mark.parametrize("facade", ["sync", "aio"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "x" * 9_000])
def test_a_compressed_answer_is_not_unpacked(middle: Middle, facade: str, coding: str) -> None:
    packed = bombs().get(coding, b"\x00" * 99)
    calls = calls_of(facade, middle.url)
    with bounded(), middle.behaving(saying(packed, content_encoding=coding)):
        with pytest.raises(NotARegistry, match="encoding") as raised:
            calls.do("intents.get", HASH)
        assert len(str(raised.value)) < 200
        assert middle.asked[-1].headers["accept-encoding"] == "identity"
    calls.close()


@pytest.mark.parametrize("facade", ["sync", "aio"])
@pytest.mark.parametrize(
    "head",
    [
        OK + b"x: y\r\n" * 100_000 + b"\r\n", OK + b"x: " + b"y" * 10**7 + b"\r\n\r\n",
        OK + b"content-length: -1\r\n\r\n", OK + b"content-length: 9\r\ncontent-length: 8\r\n\r\n",
        b"HTTP/1.1 999999 OK\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 10_000,
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n", OK + b"content-length: 999\r\n\r\n{}",
    ],
    ids=range(9),
)  # fmt: skip
def test_an_unreadable_head_is_no_answer(middle: Middle, facade: str, head: bytes) -> None:
    def behave(asked: Asked, forward: Forward) -> list[bytes]:
        del asked, forward
        return [head]

    calls = calls_of(facade, middle.url)
    with bounded(), middle.behaving(behave), pytest.raises(Unreachable) as raised:
        calls.do("intents.get", HASH)
    assert raised.value.sent
    calls.close()


@pytest.mark.parametrize("facade", ["sync", "aio"])
def test_an_answer_in_tiny_chunks_is_held_as_its_bytes(middle: Middle, facade: str) -> None:
    count = 16_000
    head = OK + b"transfer-encoding: chunked\r\n\r\n"
    chunks = {"whole": b"%x\r\n%b\r\n" % (2 * count, b"  " * count), "tiny": b"2\r\n  \r\n" * count}
    calls = calls_of(facade, middle.url)

    def peak_of(chunk: bytes) -> int:
        def behave(asked: Asked, forward: Forward) -> list[bytes]:
            del asked, forward
            return [head, chunk, b"0\r\n\r\n"]

        tracemalloc.start()
        try:
            with middle.behaving(behave), pytest.raises(NotARegistry):
                calls.do("intents.get", HASH)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak_of(chunks["whole"])  # a client's first request makes what it keeps
    whole, tiny = (peak_of(chunks[each]) for each in ("whole", "tiny"))
    calls.close()
    # A list of the chunks would take more than forty bytes for each; what a socket may give at once, 200 kB.
    assert tiny - whole < 25 * count, f"{whole:,} and {tiny:,} bytes"


def test_a_listing_whose_cursor_stays_ends(middle: Middle) -> None:
    link = '</intents?cursor=A>; rel="next"'
    with middle.behaving(saying(b"[]", link=link)), registry_at(middle) as registry:
        assert list(registry.intents.list()) == []
