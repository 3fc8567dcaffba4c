"""Repeated header fields, and fields after a body, do not count as a single header field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connection import Answer, Connection
from service import Service

TRACES = ["4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests here: nothing that they send has an effect later."""
    with Service(tmp_path_factory.mktemp("fields") / "data") as started:
        yield started


async def said(service: Service, request: str) -> Answer:
    connection = await Connection.open(service.url)
    await connection.send(request.encode())
    answer = await connection.answer()
    await connection.close()
    return answer


@pytest.mark.parametrize("target", ["/triggers", "/healthz"], ids=["at once", "later"])
@pytest.mark.parametrize("sent", [[0], [0, 1], [0, 0], [1, 0, 1]])
async def test_a_trace_is_continued_only_when_the_request_has_one(
    service: Service, target: str, sent: list[int]
) -> None:
    lines = "".join(f"traceparent: 00-{TRACES[at]}-00f067aa0ba902b7-01\r\n" for at in sent)
    for more in ("", "x-a: 1\r\nx-a: 2\r\n"):
        answer = await said(service, f"GET {target} HTTP/1.1\r\nHost: test\r\n{lines}{more}\r\n")
        assert answer.status == 200
        if len(sent) == 1:
            assert answer.headers["x-request-id"] == TRACES[0]
        else:
            assert answer.headers["x-request-id"] not in TRACES


async def test_a_trailer_does_not_count_as_a_header_field(service: Service) -> None:
    body = "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Request-Id: trailer\r\n\r\n"
    answer = await said(service, f"POST /users/nonce HTTP/1.1\r\nHost: test\r\n{body}")
    assert answer.status == 400
    assert answer.headers["x-request-id"] != "trailer"
