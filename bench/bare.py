"""The ceiling: uvicorn with the service's settings, and an application that sends ready-made answers.

Run as a process of its own: `bare.py FILE`, where FILE holds the answers as JSON: method and beginning of the
path to headers and body, in base64. A request's body is received, and not looked at.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from muniment.server.run import BACKLOG
from muniment.server.shared import IDLE_SECONDS_MAX

# As far as a path tells an operation: `/triggers/` with whatever signature, or `/triggers`.
_PREFIX = len("/triggers/")

Application = Callable[
    [dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]
]


def application(file: Path) -> Application:
    answers: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for route, (headers, body) in json.loads(file.read_bytes()).items():
        pairs = [(name.encode(), value.encode()) for name, value in headers]
        answers[route] = (
            {"type": "http.response.start", "status": 200, "headers": pairs},
            {"type": "http.response.body", "body": base64.b64decode(body)},
        )

    async def answer(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Any]) -> None:
        if scope["method"] == "POST":
            while (await receive()).get("more_body"):
                pass
        start, body = answers[f"{scope['method']} {scope['path'][:_PREFIX]}"]
        await send(start)
        await send(body)

    return answer


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    config = uvicorn.Config(
        application(Path(sys.argv[1])), backlog=BACKLOG, loop="uvloop", http="httptools", lifespan="off",
        log_config=None, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=IDLE_SECONDS_MAX,
    )  # fmt: skip
    print(f"listens on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
