"""Connections with valid and broken requests, reproducible by seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

_ADDRESS = "0x" + "11" * 20
_JSON = b"Content-Type: application/json\r\n"
# Pieces that make heads and bodies ambiguous, too large, or nonsense.
_LINES = (
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: -1\r\n", b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n", b"Content-Length: 99999999999999999999999\r\n", b"Content-Length : 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n", b"Transfer-Encoding: chunked, chunked\r\n", b"Expect: 100-continue\r\n",
    b"Expect: 200-ok\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Upgrade: h2c\r\n", b"Host: other\r\n",
    b"Connection: close\r\n", b"Connection: keep-alive, close\r\n", b"Trailer: X-A\r\n", b"X-A: b\r\n folded\r\n",
    b"X-A: b\0c\r\n", b"X-A: b\rX-B: c\r\n", b"X-A: b\nX-B: c\n", b"NoColon\r\n", b": empty\r\n", b"X-\xe9: \xff\r\n",
    b"X-Long: " + b"x" * 33_000 + b"\r\n", b"X-Long: " + b"x" * 140_000 + b"\r\n", b"X: y\r\n" * 3_000,
    b"Accept: ;,;q=,\r\n", b"Range: bytes=-,0-0\r\n", b'If-None-Match: "\r\n', b"Authorization: \r\n",
    b"X-Forwarded-For: 10.0.0.1, \xff\r\n", b"Content-Encoding: gzip\r\n", b"Forwarded: for=x\r\n", b"\r\n", b"\n",
)  # fmt: skip
_FIRST_LINES = (
    b"GET / HTTP/2.0", b"GET / HTTP/1.2", b"GET / HTTP/0.9", b"GET /", b"get /healthz HTTP/1.1", b"PRI * HTTP/2.0",
    b"CONNECT test:443 HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET  /healthz HTTP/1.1", b"GET /a b HTTP/1.1",
    b"GET http://test HTTP/1.1", b"GET /healthz HTTP/1.1 ", b"GET /healthz http/1.1", b"GET /%00%ff HTTP/1.1",
    b"GET /\xff\xfe HTTP/1.1", b"GET ?x HTTP/1.1", b"GET healthz HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03",
    b"GET /" + b"x" * 40_000 + b" HTTP/1.1", b"GET /?" + b"x" * 140_000 + b" HTTP/1.1", b"SOURCE / HTTP/1.1",
    b"M-SEARCH * HTTP/1.1", b"GET /healthz HTTP/1.1\r\nGET /healthz HTTP/1.1", b"\r\n\r\nGET /healthz HTTP/1.1",
)  # fmt: skip
_CHUNKS = (
    b"-1\r\n", b"0x1\r\na\r\n", b"ffffffffffffffff\r\n", b"fffffffffffffffff\r\n", b"g\r\n", b"1\r\nab\r\n", b"1\n",
    b"1;" + b"x" * 40_000 + b"\r\na\r\n", b"0\r\nX-A: b\r\n\r\n", b"0\r\n" + b"X: y\r\n" * 30_000, b"\r\n", b"0\r\n\r",
    b"1;a=b\r\na\r\n" * 500,
)  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """The bytes of a request."""

    id: str
    method: str
    data: bytes
    # What may be answered; None when the request is broken, so that anything that is not a fault may be.
    statuses: frozenset[int] | None
    # Whether the connection may end with the answer: asked for, or because the body was not read.
    may_close: bool = False
    # Whether a proxy may refuse it by itself and end the connection, at which a client that goes on sending may lose
    # this answer and later ones.
    proxy_ends: bool = False


@dataclass(frozen=True)
class Course:
    """Actions on one connection."""

    requests: list[Sent]
    # The pieces to send, and the seconds to wait after each.
    pieces: list[bytes]
    pause: float
    # "read" all answers, "half-close" and read them, "wait" for the server to act, "reset" after the last piece.
    end: str

    @property
    def sound(self) -> int:
        """Number of requests before the first broken one; these must be answered."""
        return next((number for number, each in enumerate(self.requests) if each.statuses is None), len(self.requests))


def courses(seed: int, requests: int) -> Iterator[Course]:
    """Connections with at least so many requests in all."""
    dice = random.Random(seed)
    made = 0
    while made < requests:
        course = _course(dice, made)
        made += len(course.requests)
        yield course


def _course(dice: random.Random, first: int) -> Course:
    count = dice.choice((1, 1, 1, 2, 3, 4, 8, 20))
    requests = [dice.choice(_KINDS)(dice, f"f{first + n:07d}") for n in range(count)]
    # An unknown method ends the connection.
    if dice.random() < 0.1:
        requests[0] = _unknown(dice, requests[0].id)
    if dice.random() < 0.1:
        requests[-1] = _last(dice, requests[-1].id)
    if dice.random() < 0.6:
        at = dice.randrange(count)
        requests[at] = _broken(dice, requests[at])
        # It may take the first letter of the next one for its own last: GET becomes ET, but EAD would be no HEAD.
        requests[at + 1 :] = [_with_body(each) for each in requests[at + 1 :]]
        if b"close" in requests[at].data or b"HTTP/1.0" in requests[at].data:
            # A client that sends after its last request may lose the answer (RFC 9112 section 9.6).
            requests = requests[: at + 1]
    data = b"".join(each.data for each in requests)
    end = dice.choices(("read", "half-close", "wait", "reset"), (45, 40, 3, 12))[0]
    if end == "reset":
        data = data[: dice.randrange(len(data)) + 1]
    pieces = _cut(dice, data)
    pause = dice.choice((0, 0, 0, 0.001, 0.02)) if len(pieces) < 30 else 0
    return Course(requests, pieces, pause, end)


def _cut(dice: random.Random, data: bytes) -> list[bytes]:
    """The bytes whole, byte by byte, or split at a few places."""
    how = dice.random()
    if how < 0.3:
        return [data]
    if how < 0.4 and len(data) < 1_500:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.randrange(1, 8)))})
    return [data[begin:end] for begin, end in pairwise(places)]


def _head(id_: str, first: str, *lines: str) -> bytes:
    return "\r\n".join([first, "Host: test", f"X-Request-Id: {id_}", *lines, "", ""]).encode()


def _get(dice: random.Random, id_: str) -> Sent:
    target, status = dice.choice(
        [
            ("/healthz", 200), ("/readyz", 200), ("/functions", 200), ("/triggers?limit=5", 200), ("/nothing", 404),
            ("/triggers?limit=x", 400), ("/openapi.json", 200), ("/triggers/0x12", 400), ("http://test/functions", 200),
            ("//functions", 200), ("/ipfs/bafkqaaa?format=raw", 200), ("/intents?limit=1", 200), ("/nowhere", 404),
        ]
    )  # fmt: skip
    method = dice.choice(("GET", "GET", "GET", "HEAD"))
    lines = dice.choice(([], ["Accept: */*"], ["X-Long: " + "x" * 20_000], ["Upgrade: h2c", "Connection: upgrade"]))
    # An offer of another protocol is served, and ends the connection.
    is_last = "Upgrade: h2c" in lines
    return Sent(id_, method, _head(id_, f"{method} {target} HTTP/1.1", *lines), frozenset({status}), may_close=is_last)


def _last(dice: random.Random, id_: str) -> Sent:
    version, line = dice.choice((("1.0", "X-A: b"), ("1.1", "Connection: close"), ("1.0", "Connection: keep-alive")))
    return Sent(id_, "GET", _head(id_, f"GET /functions HTTP/{version}", line), frozenset({200}), may_close=True)


def _refused(dice: random.Random, id_: str) -> Sent:
    method = dice.choice(("PUT", "PATCH", "TRACE", "DELETE"))
    head = _head(id_, f"{method} /functions HTTP/1.1")
    return Sent(id_, method, head, frozenset({405}), proxy_ends=method == "TRACE")


def _unknown(dice: random.Random, id_: str) -> Sent:
    method = dice.choice(("FOO", "BREW", "GETS", "X"))
    return Sent(id_, method, _head(id_, f"{method} /functions HTTP/1.1"), None, may_close=True)


def _options(dice: random.Random, id_: str) -> Sent:
    method = dice.choice(("GET", "POST"))
    lines = ("Origin: https://a.example", f"Access-Control-Request-Method: {method}")
    return Sent(id_, "OPTIONS", _head(id_, "OPTIONS /functions HTTP/1.1", *lines), frozenset({204}))


def _post(dice: random.Random, id_: str) -> Sent:
    """A body by length or in chunks; valid JSON or not; accepted or refused early."""
    target, status = dice.choice(
        [
            ("/users/nonce", 200),
            ("/triggers", 400),
            ("/functions", 401),
            ("/users/authenticate", 400),
            ("/nothing", 404),
        ]
    )
    body = json.dumps({"address": _ADDRESS}).encode()
    size = dice.choice((0, 0, 0, 10, 3_000, 70_000))
    body = b" " * size + body
    lines = dice.choice(([], [], ["Expect: 100-continue"]))
    if dice.random() < 0.5:
        head = _head(id_, f"POST {target} HTTP/1.1", f"Content-Length: {len(body)}", *lines)
    else:
        head = _head(id_, f"POST {target} HTTP/1.1", "Transfer-Encoding: chunked", *lines)
        body = _chunked(dice, body)
    head = head.replace(b"Host:", _JSON + b"Host:", 1)
    return Sent(id_, "POST", head + body, frozenset({status}), may_close=True)


def _chunked(dice: random.Random, body: bytes) -> bytes:
    pieces = [each for each in _cut(dice, body) if each]
    extension = dice.choice((b"", b";a=b"))
    trailers = dice.choice((b"", b"X-Trailer: a\r\n", b"X: y\r\nX-A:\r\n"))
    return b"".join(b"%x%b\r\n%b\r\n" % (len(each), extension, each) for each in pieces) + b"0\r\n" + trailers + b"\r\n"


_KINDS: tuple[Callable[[random.Random, str], Sent], ...] = (_get, _get, _get, _post, _post, _options, _refused)


def _broken(dice: random.Random, sent: Sent) -> Sent:
    """The request with one to three changes, except to HEAD: whether a body follows must be known."""
    sent = _with_body(sent)
    data = sent.data
    for _ in range(dice.choice((1, 1, 2, 3))):
        data = dice.choice(_CHANGES)(dice, data)
    return Sent(sent.id, sent.method, data, None, may_close=True)


def _with_body(sent: Sent) -> Sent:
    """The request, with GET in place of HEAD."""
    if sent.method != "HEAD":
        return sent
    return Sent(sent.id, "GET", sent.data.replace(b"HEAD", b"GET", 1), sent.statuses)


def _with_line(dice: random.Random, data: bytes) -> bytes:
    first, end, rest = data.partition(b"\r\n")
    return first + end + dice.choice(_LINES) + rest


def _with_first_line(dice: random.Random, data: bytes) -> bytes:
    return dice.choice(_FIRST_LINES) + data[max(0, data.find(b"\r\n")) :]


def _with_chunks(dice: random.Random, data: bytes) -> bytes:
    head, _, body = data.partition(b"\r\n\r\n")
    return (
        head
        + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        + dice.choice((b"", b"1\r\na\r\n"))
        + dice.choice(_CHUNKS)
        + body
    )


def _with_noise(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.randbytes(dice.choice((1, 2, 10, 200))) + data[at + dice.choice((0, 1, 10)) :]


def _without_a_part(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + data[at + dice.choice((1, 2, 20, 100_000)) :] or b"x"


def _with_a_part_twice(dice: random.Random, data: bytes) -> bytes:
    begin, end = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
    return data[:end] + data[begin:]


def _with_a_bit_flipped(dice: random.Random, data: bytes) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _with_line, _with_line, _with_first_line, _with_chunks, _with_noise, _without_a_part, _with_a_part_twice,
    _with_a_bit_flipped,
)  # fmt: skip
