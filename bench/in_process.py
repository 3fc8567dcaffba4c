"""Requests to the application without a server in between, and how long they take."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from muniment.service.app import Application
from muniment.service.running.settings import Settings

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
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(b"content-type", b"application/json")] if body else [],
        "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 0), "client": None,
        "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == status, sent
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])
