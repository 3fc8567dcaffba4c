"""Which requests are answered while they are read, and that nothing is done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from wires import create_answering, protocol, until

from muniment.app import Application, create_app
from muniment.cli.at_once import AT_ONCE_PER_READ
from muniment.storage.sqlite import SqliteDatabase

# Says that there is no body, which sends a request on the long way.
LONG = "content-length: 0\r\n"


async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.setenv("MUNIMENT_DATA_DIR", str(tmp_path))
    app = create_app()
    await app.context.database.migrate()
    return app


async def said(app: Application, request: bytes) -> bytes:
    """The answer to one request on a connection of its own."""
    made, transport = protocol(app)
    made.data_received(request)
    await until(lambda: bool(transport.written) and not made.tasks)
    made.connection_lost(None)
    return b"".join(transport.written)


async def test_a_page_that_waits_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = await opened(tmp_path, monkeypatch)
    asked: list[str] = []
    fetch = SqliteDatabase._fetch_until

    def listen(self: SqliteDatabase, deadline: float, sql: str, parameters: Any) -> Any:
        asked.append(sql)
        return fetch(self, deadline, sql, parameters)

    monkeypatch.setattr(SqliteDatabase, "_fetch_until", listen)
    assert (await said(app, b"GET /triggers?offset=2000 HTTP/1.1\r\nhost: test\r\n\r\n")).endswith(b"\r\n\r\n[]")
    assert len(asked) == 1
    await app.context.database.close()


async def test_many_that_come_in_one_read_let_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await opened(tmp_path, monkeypatch)
    made, transport = protocol(app)
    for _ in range(2):
        made.data_received(b"GET /triggers HTTP/1.1\r\nhost: test\r\n\r\n" * 40)
        assert len(transport.written) == AT_ONCE_PER_READ
        await until(lambda: not made.tasks and not made.pipeline)
        assert len(transport.written) == 40
        transport.written.clear()
    made.connection_lost(None)
    await app.context.database.close()


@pytest.mark.parametrize(
    ("request_line", "headers", "long"),
    [
        ("GET /triggers", "", 0), ("GET /triggers?limit=3", "x-request-id: a\r\n", 0), ("GET /triggers/0x", "", 0),
        ("GET /healthz", "", 1), ("GET /triggers", LONG, 1), ("GET /triggers", "connection: close\r\n", 1),
        ("GET /triggers", "transfer-encoding: chunked\r\n", 1), ("GET /triggers?offset=5000", "", 1),
        ("HEAD /triggers", "", 1),
    ],
)  # fmt: skip
async def test_the_short_way_is_taken_where_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_line: str, headers: str, long: int
) -> None:
    app = await opened(tmp_path, monkeypatch)
    begun: list[object] = []
    begin = HttpToolsProtocol._start_asgi_task

    def listen(self: HttpToolsProtocol, *more: Any) -> None:
        begun.append(more)
        begin(self, *more)

    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", listen)
    end = "0\r\n\r\n" if "chunked" in headers else ""
    answer = await said(app, f"{request_line} HTTP/1.1\r\nhost: test\r\n{headers}\r\n{end}".encode())
    assert answer.startswith(b"HTTP/1.1 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(begun) == long
    await app.context.database.close()


class Failing:
    """An application that fails, before its answer or behind it."""

    def __init__(self, *, is_answered: bool, is_sync: bool = False) -> None:
        self.answering = create_answering()
        self.context = self.answering.context
        self.is_answered = is_answered
        self.is_sync = is_sync

    def is_at_once(self, path: str) -> bool:
        return path == "/"

    def serve(self, *given: Any) -> Any:
        if self.is_sync:
            raise ValueError("before it begins")
        return self.failing(*given)

    async def failing(self, *given: Any) -> None:
        if self.is_answered:
            await self.answering.serve(*given)
        raise ValueError("while it serves")


@pytest.mark.parametrize("is_sync", [True, False])
async def test_an_error_before_the_answer_is_told_once(caplog: pytest.LogCaptureFixture, *, is_sync: bool) -> None:
    answer = await said(
        cast("Any", Failing(is_answered=False, is_sync=is_sync)), b"GET / HTTP/1.1\r\nhost: test\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_an_error_behind_the_answer_is_told_as_well(caplog: pytest.LogCaptureFixture) -> None:
    answer = await said(cast("Any", Failing(is_answered=True)), b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [("ERROR", True)]
