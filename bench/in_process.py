"""Requests to the application without a server in between, and how long they take."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from typing import Any

from muniment.app import Application

CALLS = 100


async def micros_of(app: Application, target: str) -> float:
    """Microseconds of one of a hundred equal requests."""
    started = time.perf_counter()
    for _ in range(CALLS):
        await get(app, target)
    return (time.perf_counter() - started) / CALLS * 1e6


async def get(app: Application, target: str) -> tuple[dict[bytes, bytes], bytes]:
    """One request, without a server in between."""
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [], "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 0), "client": None,
        "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    return dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])
