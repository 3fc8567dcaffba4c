"""Shapes of input that make careless decoders slow: one small piece again and again, opened and never closed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from muniment.errors import Refusal
from muniment.outgoing import Unreachable

REFUSALS = (Refusal, ValueError, Unreachable)
PIECES = (
    b'"',
    b"\\",
    b'\\"',
    b'\\\\"',
    b'""',
    b'"",',
    b'"\\n",',
    b'"a":',
    b'"a":0,',
    b'{"a":0},',
    b'{"a":',
    b'a"',
    b"[",
    b"]",
    b"[]",
    b"{",
    b"}",
    b"{}",
    b"[],",
    b"{},",
    b"[[]],",
    b"[[[[]]]],",
    b"[0,",
    b",",
    b";",
    b":",
    b"=",
    b".",
    b"..",
    b"-",
    b"_",
    b"/",
    b"//",
    b"*",
    b"*,",
    b"%",
    b"%2",
    b"%41",
    b"%C3%A9",
    b"&",
    b"&&",
    b" ",
    b"\t",
    b" ,",
    b", ",
    b" ;",
    b"; ",
    b" =",
    b"\n",
    b"\r",
    b"\r\n",
    b"\r\n ",
    b"--",
    b"--\r\n",
    b"\0",
    b"\x80",
    b"\xff",
    b"a",
    b"A",
    b"z",
    b"f",
    b"1",
    b"a,",
    b"a;",
    b"a=",
    b"a=,",
    b"a;a=",
    b"a=a&",
    b'a="',
    b'a="",',
    b'a="";',
    b"a-",
    b"a.",
    b"1.",
    b"a1",
    b"0",
    b"00",
    b"9",
    b"0,",
    b"1,",
    b"0-",
    b"0-1,",
    b"-1,",
    b"1-0,",
    b"1/",
    b"1-1/",
    b"0x",
    b"0xab",
    b"1e5,",
    b"1e-310,",
    b"5e-324,",
    b"1E+400,",
    b"9007199254740993.0,",
    b"0.1,",
    b"true,",
    b"null,",
    b"9" * 4_000 + b",",
    b"1." + b"7" * 300 + b"e-310,",
    b"1." + b"7" * 98 + b"e-99,",
    b"0." + b"0" * 330 + b"1,",
    b"\\u0041",
    b"\\ud800",
    b"\\ud83d\\ude00",
    "é".encode(),
    "😀".encode(),
    "\u202e".encode(),
    "İ".encode(),
    b"W/",
    b'W/"a",',
    b"`",
    b"``",
    b"$.",
    b"[0]",
    b"a[",
    b"(",
    b"<",
    b"()",
    b"127.0.0.1,",
    b"::",
    b"[::1]:1,",
    b"a@",
    b"@",
    b"@a.",
    b"mon,",
    b"*/2,",
    b"1-3,",
    b"q=0;",
    b"a/a,",
    b"a/a;q=0.5,",
    b"*/*;q=1,",
    b"application/json,",
    *(b"[" * depth + b"]" * depth + b"," for depth in (10, 60)),
    *(b'{"a":' * depth + b"0" + b"}" * depth + b"," for depth in (2, 10, 60)),
)


@dataclass(frozen=True)
class Shape:
    """A piece that is repeated between a head and a tail."""

    head: bytes
    piece: bytes
    tail: bytes

    def of(self, size: int) -> bytes:
        """The shape in `size` bytes: cut anywhere, or before a tail whole pieces, so that it may be well-formed."""
        inner = max(0, size - len(self.head) - len(self.tail))
        if not self.tail:
            return self.head + (self.piece * (inner // len(self.piece) + 1))[:inner]
        return self.head + (self.piece * max(1, inner // len(self.piece))).removesuffix(b",") + self.tail


def cpu_seconds(call: Callable[[], object], runs: int) -> float:
    """What one call of the fastest of `runs` takes of this thread's CPU. What it refuses, it refuses."""
    best = float("inf")
    for _ in range(runs):
        started = time.thread_time()
        with suppress(*REFUSALS):
            call()
        best = min(best, time.thread_time() - started)
    return best


def slowness() -> float:
    """How much slower this machine is now than an idle one, on which a million turns of a loop take 30 ms."""

    def turn() -> None:
        for number in range(250_000):
            _ = number * number

    return max(1.0, cpu_seconds(turn, 5) / 0.0075)
