"""Requests to the application without a server in between, and how long they take."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from muniment.service.app import Application
from muniment.service.http.reply import Ready, header_lines
from muniment.service.running.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see that one.
_without_server: Any = import_module("without_server")

CALLS = 100


def unlimited(data: Path) -> Settings:
    """Settings on SQLite in `data` with which one client may ask as much as it likes."""
    return Settings(
        data_dir=data, log_level="warning",
        rate_limit_client="off", rate_limit_login="off", rate_limit_owner="off", rate_limit_stop="off",
    )  # fmt: skip


async def micros_of(app: Application, target: str) -> float:
    """CPU microseconds of one of a hundred equal requests."""
    started = time.process_time_ns()
    for _ in range(CALLS):
        await get(app, target)
    return (time.process_time_ns() - started) / 1_000 / CALLS


async def get(app: Application, target: str) -> tuple[dict[bytes, bytes], bytes]:
    """One request, without a server in between."""
    return await _exchange(app, "GET", target, b"", 200)


async def post(app: Application, target: str, body: bytes, status: int = 200) -> bytes:
    """One request with a JSON body; what is answered with `status`."""
    _, answered = await _exchange(app, "POST", target, body, status)
    return answered


async def _exchange(
    app: Application, method: str, target: str, body: bytes, status: int
) -> tuple[dict[bytes, bytes], bytes]:
    path, _, query = target.partition("?")
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))] if body else []
    request = _without_server.request_of(method, path.encode(), query.encode(), fields, _without_server.Whole(body))
    reply = await app.respond(request)
    assert isinstance(reply, Ready)
    assert reply.status == status, reply.body
    lines = header_lines(reply, request.id, request.limit_lines).split(b"\r\n")[:-1]
    return {name: value for name, _, value in (line.partition(b": ") for line in lines)}, reply.body
