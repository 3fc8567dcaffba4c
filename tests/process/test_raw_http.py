"""HTTP that a client library would not write: other forms of a target, odd methods, hostile framing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from connection import Answer, Connection
from service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests here: nothing that they send leaves anything behind."""
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
    async with httpx.AsyncClient(base_url=service.url) as client:
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
        "http://test/", "http://test/functions/",
    ],
)  # fmt: skip
async def test_another_path_is_not_found(service: Service, target: str) -> None:
    assert problem(await asked(service, target)) == (404, "unknown-path")


@pytest.mark.parametrize("method", ["TRACE", "PUT", "PATCH", "DELETE", "PROPFIND"])
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
GET = b"GET / HTTP/1.1\r\nHost: test\r\n"
HOSTILE = {
    "both framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxx",
    "a negative length": POST + b"Content-Length: -5\r\n\r\nxxxxx",
    "a length in hex": POST + b"Content-Length: 0x5\r\n\r\nxxxxx",
    "a bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\nxyz\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost test\r\n\r\n",
    "a space before the colon": GET + b"X-A : b\r\n\r\n",
    "a folded header": GET + b"X-A: b\r\n c\r\n\r\n",
    "a NUL in a header": GET + b"X-A: b\0c\r\n\r\n",
    "a bare CR in a header": GET + b"X-A: b\rX-B: c\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: test\n\n",
    "a target without a path": b"GET http://test HTTP/1.1\r\nHost: test\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: test\r\n\r\n",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_malformed_http_is_refused_and_ends_the_connection(service: Service, what: str) -> None:
    connection = await Connection.open(service.url)
    await connection.send(HOSTILE[what])
    assert (await connection.answer()).status == 400
    assert await connection.is_closed_by_server()
    await connection.close()
    assert await is_served(service)


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
