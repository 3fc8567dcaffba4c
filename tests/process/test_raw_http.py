"""HTTP that a client library would not write: other forms of a target, odd methods, hostile framing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from connection import Answer, Connection
from service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests here: nothing that they send has an effect later."""
    with Service(tmp_path_factory.mktemp("raw") / "data") as started:
        yield started


async def asked(service: Service, target: str, method: str = "GET", *lines: str, host: str = "test") -> Answer:
    connection = await Connection.open(service.url)
    await connection.send("\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode())
    answer = await connection.answer()
    await connection.close()
    return answer


def problem(answer: Answer) -> tuple[int, Any]:
    return answer.status, json.loads(answer.body)["code"]


async def is_served(service: Service) -> bool:
    async with httpx2.AsyncClient(base_url=service.url) as client:
        return (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        "/functions", "//functions", "///functions?limit=1", "http://test/functions", "http://test//functions",
        "HTTP://other:80/functions?limit=1", "https://test/functions",
    ],
)  # fmt: skip
async def test_every_form_of_a_target_is_served(service: Service, target: str) -> None:
    answer = await asked(service, target)
    assert (answer.status, answer.body) == (200, b"[]")


@pytest.mark.parametrize(
    "target",
    [
        "/functions%2F", "/%2ffunctions", "/functions%2f%2e%2e", "/functions%00", "/%00", "/functions/", "/nothing",
        "/functions/../functions", "/./functions", "/../functions", "/functions\\", "/triggers//preview",
        "http://test/nothing", "http://test/functions/",
    ],
)  # fmt: skip
async def test_another_path_is_not_found(service: Service, target: str) -> None:
    assert problem(await asked(service, target)) == (404, "unknown-path")


@pytest.mark.parametrize("method", ["TRACE", "PUT", "PATCH", "DELETE"])
async def test_another_method_is_refused_with_all_that_are_allowed(service: Service, method: str) -> None:
    answer = await asked(service, "/functions", method)
    assert problem(answer) == (405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST, OPTIONS"


async def test_a_long_target_is_refused(service: Service) -> None:
    assert problem(await asked(service, "/functions?x=" + "x" * 33_000)) == (414, "uri-too-long")


async def test_large_headers_are_refused(service: Service) -> None:
    answer = await asked(service, "/functions", "GET", "X-Long: " + "x" * 33_000)
    assert problem(answer) == (431, "headers-too-large")


@pytest.mark.parametrize("start", ["GET /", "GET / HTTP/1.1\r\nX-A: "], ids=["target", "header"])
async def test_a_head_of_10_mb_is_refused(service: Service, start: str) -> None:
    end = " HTTP/1.1\r\n" if start == "GET /" else "\r\n"
    connection = await Connection.open(service.url)
    # The service stops reading, so a client that goes on writing may get a reset instead of the answer.
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        await connection.send(start.encode() + b"x" * 10_000_000 + end.encode() + b"Host: test\r\n\r\n")
        assert (await connection.answer()).status in {400, 414, 431}
    assert await connection.is_closed_by_server()
    await connection.close()
    assert await is_served(service)


POST = b"POST /users/nonce HTTP/1.1\r\nHost: test\r\n"
GET = b"GET /nothing HTTP/1.1\r\nHost: test\r\n"
HOSTILE = {
    "both framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nxxxxx",
    "a length in hex": POST + b"Content-Length: 0x5\r\n\r\nxxxxx",
    "a bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a coding that is none": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost test\r\n\r\n",
    "a space before the colon": GET + b"X-A : b\r\n\r\n",
    "a folded header": GET + b"X-A: b\r\n c\r\n\r\n",
    "a NUL in a header": GET + b"X-A: b\0c\r\n\r\n",
    "a bare CR in a header": GET + b"X-A: b\rX-B: c\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: test\n\n",
    "a target without a path": b"GET http://test HTTP/1.1\r\nHost: test\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: test\r\n\r\n",
    "a path that is not ASCII": "GET /triggers/é HTTP/1.1\r\nHost: test\r\n\r\n".encode(),
    "a query that is not ASCII": "GET /triggers?limit=é HTTP/1.1\r\nHost: test\r\n\r\n".encode(),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_malformed_http_is_refused_and_ends_the_connection(service: Service, what: str) -> None:
    await is_refused(service, HOSTILE[what], 400, "malformed-request")


async def is_refused(service: Service, request: bytes, status: int, code: str) -> None:
    """With a problem document, whatever follows, and the connection ends; others are served."""
    connection = await Connection.open(service.url)
    await connection.send(request)
    answer = await connection.answer()
    assert problem(answer) == (status, code)
    assert answer.headers["connection"] == "close"
    assert await connection.is_closed_by_server()
    await connection.close()
    assert await is_served(service)


@pytest.mark.parametrize(
    "host", ["", "Host: a\r\nHost: a\r\n", "Host: a\r\nX-A: 1\r\nHost: b\r\n"], ids=["none", "two", "other"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_a_request_has_exactly_one_host(service: Service, method: str, host: str) -> None:
    await is_refused(service, f"{method} /functions HTTP/1.1\r\n{host}\r\n".encode(), 400, "malformed-request")


async def test_http_1_0_needs_no_host_and_ends_with_its_answer(service: Service) -> None:
    connection = await Connection.open(service.url)
    await connection.send(b"GET /functions HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"[]", "close")
    assert await connection.is_closed_by_server()
    await connection.close()


@pytest.mark.parametrize(
    "head",
    [
        b"PRI * HTTP/2.0\r\n\r\n", b"GET / HTTP/2.0\r\nHost: test\r\n\r\n", b"GET / HTTP/3.0\r\nHost: test\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: test\r\n\r\n", b"GET /triggers HTTP/1.2\r\nHost: test\r\n\r\n",
    ],
)  # fmt: skip
async def test_another_version_of_http_is_505(service: Service, head: bytes) -> None:
    await is_refused(service, head + b"SM\r\n\r\n", 505, "http-version-not-supported")


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "x-own"])
async def test_another_transfer_coding_is_501(service: Service, coding: str) -> None:
    request = POST + f"Transfer-Encoding: {coding}\r\n\r\n3\r\nxyz\r\n0\r\n\r\n".encode()
    await is_refused(service, request, 501, "transfer-coding-not-supported")


@pytest.mark.parametrize("cut", [None, 1, 3, 20])
@pytest.mark.parametrize("method", [b"FOO", b"PROPFIND", b"get", b"X" * 64, b"\x16\x03\x01\x02\x00\x01\xfc\x03\x03"])
async def test_an_unknown_method_is_501_and_ends_the_connection(
    service: Service, method: bytes, cut: int | None
) -> None:
    """Nobody knows what comes after it: the rest of a request, or another one."""
    request = method + b" /functions HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nxyz" + GET + b"\r\n"
    connection = await Connection.open(service.url)
    for piece in [request] if cut is None else [request[:cut], request[cut:]]:
        await connection.send(piece)
        await asyncio.sleep(0.01)
    answer = await connection.answer()
    assert problem(answer) == (501, "method-not-implemented")
    assert answer.headers["connection"] == "close"
    assert await connection.is_closed_by_server()
    await connection.close()


async def test_a_client_that_half_closes_gets_the_answers_that_are_due(service: Service) -> None:
    """Also those that take more than one turn of the event loop."""
    body = json.dumps({"address": "0x" + "11" * 20}).encode()
    post = POST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    connection = await Connection.open(service.url)
    await connection.send(post + b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n" + GET + b"\r\n")
    connection.writer.write_eof()
    assert [(await connection.answer()).status for _ in range(3)] == [200, 200, 404]
    assert await connection.is_closed_by_server()
    await connection.close()


async def test_a_body_that_is_cut_short_by_a_half_closed_client_is_not_served(service: Service) -> None:
    connection = await Connection.open(service.url)
    await connection.send(POST + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    connection.writer.write_eof()
    assert await connection.is_closed_by_server()
    await connection.close()


async def test_a_refused_upload_does_not_become_the_next_request(service: Service) -> None:
    """What follows an answer on a connection that stays open is a request of its own; a body never is."""
    connection = await Connection.open(service.url)
    hidden = b"GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n"
    head = f"POST /functions HTTP/1.1\r\nHost: test\r\nContent-Length: {len(hidden)}\r\n\r\n".encode()
    await connection.send(head + hidden + b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
    assert (await connection.answer()).status == 401
    assert (await connection.answer()).body == b'{"status":"ok"}'
    await connection.close()


async def test_requests_in_a_row_are_answered_in_their_order(service: Service) -> None:
    connection = await Connection.open(service.url)
    targets = ["/healthz", "/nothing", "/functions", "/healthz"]
    await connection.send("".join(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n" for target in targets).encode())
    assert [(await connection.answer()).status for _ in targets] == [200, 404, 200, 200]
    await connection.close()


async def test_a_client_that_half_closes_gets_the_refusal_of_its_body(service: Service) -> None:
    connection = await Connection.open(service.url)
    before = b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n" * 3  # its turn comes after the end was seen
    body = POST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
    await connection.send(before + body)
    connection.writer.write_eof()
    assert [(await connection.answer()).status for _ in range(3)] == [200] * 3
    assert problem(await connection.answer()) == (400, "malformed-request")
    assert await connection.is_closed_by_server()
    await connection.close()


async def test_an_unknown_method_after_another_request_is_answered_after_it(service: Service) -> None:
    connection = await Connection.open(service.url)
    await connection.send(GET + b"\r\n")
    assert (await connection.answer()).status == 404
    await connection.send(b"BREW /functions HTTP/1.1\r\nHost: test\r\n\r\n" + GET + b"\r\n")
    assert (await connection.answer()).status == 501
    assert await connection.is_closed_by_server()
    await connection.close()
