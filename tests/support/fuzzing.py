"""A client that sends the requests of `fuzzed_requests` and checks the answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from fuzzed_requests import Course, Sent, courses
from nginx import reached
from service import Service

# Answers of the 500s that are no fault: a coding that is not taken, too much to do, another version of HTTP.
_NO_FAULTS = frozenset({501, 503, 505})
_TOGETHER = 64
# Nothing follows for so long: the server waits, or has nothing more to say.
_QUIET_SECONDS = 0.25
# This ends a hang. The longest deadline that a course can meet is 40 s, by the settings below and those of nginx.
_SECONDS_MAX = 120
# Beyond the time that the settings below give to a head and to a body.
_DEADLINE_SECONDS = 43
# A machine with other work sends a body byte by byte for more than ten seconds.
SETTINGS = {"MUNIMENT_BODY_TIMEOUT_S": "40", "MUNIMENT_LOG_LEVEL": "error"}
_PROBE = b"GET /healthz HTTP/1.1\r\nHost: test\r\nX-Request-Id: probe\r\n\r\n"


class Fault(Exception):
    """A wrong answer."""


@dataclass
class Answer:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers.get("x-request-id", "")

    @property
    def is_last(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


@dataclass
class Findings:
    """Number of requests, answers by status, and faults with the course that shows them."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter[int])
    faults: list[tuple[str, Course]] = field(default_factory=list[tuple[str, Course]])

    def __str__(self) -> str:
        shown = ", ".join(f"{status}: {count}" for status, count in sorted(self.statuses.items()))
        return f"{self.requests} requests; answers {shown}"


def judge_server(folder: Path, way: str, *, seed: int, requests: int) -> None:
    """Send so many requests to a service by one of the `WAYS`, and fail on any fault."""
    with ExitStack() as stack:
        service = stack.enter_context(Service(folder / "data", environment=SETTINGS))
        url = stack.enter_context(reached(service.url, way, folder / "nginx"))
        findings = asyncio.run(fuzz(url, courses(seed, requests), is_proxied=way != "direct"))
        said = f"FUZZ_SEED={seed}, {way}: {findings}"
        print(said)
        for fault, course in findings.faults[:5]:
            print(fault, course.end, course.pause, [each[:2_000] for each in course.pieces])
        assert not findings.faults, f"{said}; {len(findings.faults)} faults"
        assert httpx2.get(f"{service.url}/readyz").status_code == 200


async def fuzz(url: str, course_list: Iterable[Course], *, is_proxied: bool = False) -> Findings:
    """Run all courses, many at a time. A proxy may answer itself, without the id, and close connections."""
    findings = Findings()
    remaining = iter(course_list)

    async def go_on() -> None:
        for course in remaining:
            try:
                async with asyncio.timeout(_SECONDS_MAX):
                    answers = await _run(url, course, is_proxied=is_proxied)
                _judge(course, answers, is_proxied=is_proxied)
                findings.statuses.update(each.status for each in answers)
            except (Fault, TimeoutError) as fault:
                findings.faults.append((str(fault) or "the connection does not end", course))
            findings.requests += len(course.requests)

    await asyncio.gather(*(go_on() for _ in range(_TOGETHER)))
    return findings


async def _run(url: str, course: Course, *, is_proxied: bool) -> list[Answer]:
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**20)
    answers: list[Answer] = []
    reading = asyncio.create_task(_read_all(reader, course.requests, answers, is_proxied=is_proxied))
    try:
        await _send(writer, course, is_proxied=is_proxied)
        if course.end == "reset":
            return []
        while len(answers) < course.sound and not reading.done():
            await asyncio.wait([reading], timeout=0.01)
        await _end(reading, writer, answers, course, is_proxied=is_proxied)
        return answers
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.transport.abort()


async def _send(writer: asyncio.StreamWriter, course: Course, *, is_proxied: bool) -> None:
    # A server that has ended the connection hears no more.
    with suppress(OSError):
        for piece in course.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(course.pause)
        if course.end == "half-close" and not is_proxied:  # to a proxy a client that half-closes is gone
            writer.write_eof()


async def _end(
    reading: asyncio.Task[None],
    writer: asyncio.StreamWriter,
    answers: list[Answer],
    course: Course,
    *,
    is_proxied: bool,
) -> None:
    """Read until the connection ends, or the server is idle and serves another request."""
    end = "read" if is_proxied and course.end == "half-close" else course.end
    if end == "wait":
        await asyncio.wait([reading], timeout=_DEADLINE_SECONDS)
        if not reading.done() and await _is_served(reading, writer, answers):
            return
    elif end == "read":
        before = -1
        while before != len(answers) and not reading.done():
            before = len(answers)
            await asyncio.wait([reading], timeout=_QUIET_SECONDS)
        if is_proxied and not reading.done():
            return
        with suppress(OSError):
            writer.write_eof()
    await reading


async def _is_served(reading: asyncio.Task[None], writer: asyncio.StreamWriter, answers: list[Answer]) -> bool:
    """Whether the connection serves another request; False when it ends."""
    count = len(answers)
    with suppress(OSError):
        writer.write(_PROBE)
        await writer.drain()
    while not reading.done() and len(answers) == count:
        await asyncio.wait([reading], timeout=0.05)
    if len(answers) == count or answers[-1].id != "probe":
        return False
    answers.pop()
    return True


async def _read_all(
    reader: asyncio.StreamReader, requests: list[Sent], answers: list[Answer], *, is_proxied: bool
) -> None:
    """Every answer until the end of the connection."""
    methods = {each.id: each.method for each in requests}
    with suppress(ConnectionError):
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as end:
                if end.partial and not is_proxied:  # a proxy may speak HTTP/0.9
                    raise Fault(f"no answer: {end.partial[:80]!r}") from None
                return
            status, headers = _read_head(head)
            if status == 100:
                continue
            due = requests[len(answers)].method if len(answers) < len(requests) else ""
            method = methods.get(headers.get("x-request-id", ""), due if is_proxied else "")
            try:
                body = b"" if status in {204, 304} or method == "HEAD" else await _body(reader, headers)
            except asyncio.IncompleteReadError:
                raise Fault(f"an answer is cut off: {head!r}") from None
            answers.append(Answer(status, headers, body))


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    version, _, rest = first.partition(" ")
    if version != "HTTP/1.1" or not rest[:3].isdigit():
        raise Fault(f"no status line: {first!r}")
    return int(rest[:3]), {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        if "content-length" not in headers:
            return await reader.read()
        return await reader.readexactly(int(headers["content-length"]))
    pieces: list[bytes] = []
    while True:
        size = int(await reader.readuntil(b"\r\n"), 16)
        pieces.append((await reader.readexactly(size + 2))[:-2])
        if size == 0:
            return b"".join(pieces)


def _judge(course: Course, answers: list[Answer], *, is_proxied: bool) -> None:
    """Raise `Fault` for a wrong answer, or when answers are missing, superfluous or out of order."""
    for answer in answers:
        if answer.status >= 500 and answer.status not in _NO_FAULTS:
            raise Fault(f"answered {answer.status} {answer.body[:300]!r}")
    # A broken request may carry the id of another one, when a bit of its own was turned.
    broken = b"".join(each.data for each in course.requests if each.statuses is None)
    numbers = {
        each.id: number
        for number, each in enumerate(course.requests)
        if each.statuses is None or each.id.encode() not in broken
    }
    order = [numbers[each.id] for each in answers if each.id in numbers]
    if order != sorted(set(order)):
        raise Fault(f"answers are not in order: {order}")
    if course.end != "reset":
        _judge_sound(course, answers, is_proxied=is_proxied)


def _judge_sound(course: Course, answers: list[Answer], *, is_proxied: bool) -> None:
    """Check the answers to the requests before the first broken one."""
    for number, sent in enumerate(course.requests[: course.sound]):
        if number >= len(answers):
            ended = any(each.may_close for each in course.requests[:number])  # for example, a body was not read whole
            if is_proxied and (ended or any(each.proxy_ends for each in course.requests[: number + 1])):
                return
            raise Fault(f"{len(answers)} answers to {len(course.requests)} requests: {sent.data[:60]!r}")
        _judge_one(sent, answers[number], is_proxied=is_proxied)
        if answers[number].is_last:
            if number + 1 != len(answers):
                raise Fault("something follows the last answer")
            return
    if course.sound == len(course.requests) < len(answers):
        raise Fault("more answers than requests")


def _judge_one(sent: Sent, answer: Answer, *, is_proxied: bool) -> None:
    assert sent.statuses is not None
    if is_proxied and not answer.id:
        return
    if answer.id != sent.id:
        raise Fault(f"the answer to {sent.id} is for {answer.id}: {answer.status} {answer.body[:200]!r}")
    if answer.status == 503:  # too much to do
        return
    if answer.status not in sent.statuses:
        raise Fault(f"{sent.data[:80]!r} was answered {answer.status} {answer.body[:200]!r}")
    if answer.is_last and not sent.may_close:
        raise Fault(f"{sent.data[:80]!r} ended the connection")
