"""A hostile header field, target or query costs little and never causes an internal error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import pytest

from counted_calls import counted_calls
from cpu_time import slowness
from decoders import FIELD, FIELDS, TARGETS
from hostile import PIECES, Shape
from muniment.service.app import Application
from muniment.service.http.reply import header_lines
from without_server import Whole, request_of

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
# On the event loop nobody else is answered meanwhile.
LOOP_SECONDS_MAX = 0.020
# A byte of the value may make some calls; for the square of the bytes they would be a thousand million.
CALLS_MAX = 500_000
# Beside the field that is tried: a host, the end of lines, the path.
SIZE = FIELD - 512
# Of so many requests one is tried in a quick run. The step meets each piece, and in turn each head, of which there are
# five or six.
one_of = pytest.mark.parametrize("one_of", [7, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
FIELD_HEADS = (b"", b'"', b"bytes=", b"application/json", b"multipart/form-data;boundary=", b"Bearer ")


Fields = list[tuple[bytes, bytes]]
Requested = tuple[bytes, bytes, Fields]


async def ask(app: Application, path: bytes, query: bytes, fields: Fields) -> tuple[int, float]:
    """The status, and what the event loop gave for it."""
    request = request_of("GET", path, query, [(b"host", b"test"), *fields], Whole())
    started = time.thread_time()
    reply = await app.respond(request)
    header_lines(reply, request.id, request.limit_lines)
    return reply.status, time.thread_time() - started


def with_field(field: str) -> Iterator[Requested]:
    """Requests with each hostile value of a header field."""
    path, _, query = FIELDS[field][0].encode().partition(b"?")
    for piece in PIECES:
        for head in FIELD_HEADS:
            yield path, query, [(field.encode(), Shape(head, piece, b"").of(SIZE))]


def with_target(target: str) -> Iterator[Requested]:
    """Requests with each hostile path or query."""
    path, _, _ = target.encode().partition(b"?")
    for piece in PIECES:
        for head in (b"", b"cursor=", b"creator=", b"cids=", b"limit="):
            value = Shape(head, piece, b"").of(SIZE - len(target))
            # The form that Accept chooses is named as a query in the answer, after the one that was sent.
            fields = [(b"accept", b"application/vnd.ipld.raw")]
            yield path if "?" in target else path + value, value if "?" in target else b"", fields


def shown(requested: Requested) -> str:
    path, query, fields = requested
    return f"{path[:80]!r} {query[:80]!r} {[value[:80] for _, value in fields]}"


async def check_calls(app: Application, requests: Iterator[Requested]) -> None:
    for requested in requests:
        with counted_calls() as calls:
            status, _ = await ask(app, *requested)
        assert status < 500, shown(requested)
        assert calls.count <= CALLS_MAX, f"{calls.count:,} calls: {shown(requested)}"


async def check_time(app: Application, requests: Iterator[Requested]) -> None:
    for requested in requests:
        seconds = 0.0
        for attempt in range(5):
            _, seconds = await ask(app, *requested)
            if seconds <= LOOP_SECONDS_MAX * (slowness() if attempt else 1):
                break
        else:
            pytest.fail(f"{seconds * 1000:.1f} ms: {shown(requested)}")


@one_of
@pytest.mark.parametrize("field", FIELDS)
async def test_a_hostile_field_makes_few_calls_and_no_internal_error(app: Application, field: str, one_of: int) -> None:
    await check_calls(app, islice(with_field(field), None, None, one_of))


@pytest.mark.timed
@pytest.mark.parametrize("field", FIELDS)
async def test_a_hostile_field_takes_little_time(app: Application, field: str) -> None:
    await check_time(app, with_field(field))


@one_of
@pytest.mark.parametrize("target", TARGETS)
async def test_a_hostile_target_makes_few_calls_and_no_internal_error(
    app: Application, target: str, one_of: int
) -> None:
    await check_calls(app, islice(with_target(target), None, None, one_of))


@pytest.mark.timed
@pytest.mark.parametrize("target", TARGETS)
async def test_a_hostile_target_takes_little_time(app: Application, target: str) -> None:
    await check_time(app, with_target(target))


@pytest.mark.parametrize("accept", [b";", b",", b";,;", b" ; ", b'"', b"=", b";q=1", b"a;;b", b"*/*;", b""])
async def test_an_accept_without_a_media_type_names_none(app: Application, accept: bytes) -> None:
    status, _ = await ask(app, b"/ipfs/bafkqaaa", b"", [(b"accept", accept)])
    assert status == 406
