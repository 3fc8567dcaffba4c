"""A proxy between a reader and a chain: it counts requests, refuses creation calls, or changes answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

import httpx2

from local_server import LocalServer

Reply = tuple[int, dict[str, str], bytes]


class RpcProxy:
    """An HTTP server on a free port. `change` may replace each JSON-RPC answer, given its request.

    With `reply`, which a test may set at any time, every request gets that answer; with `answers`, the one that
    this gives for the request.
    """

    def __init__(
        self,
        upstream: str = "",
        *,
        change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None,
        reply: Reply | None = None,
        answers: Callable[[Any], Reply] | None = None,
    ) -> None:
        self.requests: list[list[dict[str, Any]]] = []
        self.reply = reply
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                calls = json.loads(body)
                outer.requests.append(calls)
                status, headers, content = (
                    outer.reply or (answers and answers(calls)) or outer.passed_on(upstream, calls, change)
                )
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = LocalServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @staticmethod
    def passed_on(upstream: str, calls: list[dict[str, Any]], change: Any) -> Reply:
        answers = httpx2.post(upstream, json=calls, timeout=60, trust_env=False).json()
        if change is not None:
            by_id = {call["id"]: call for call in calls}
            answers = [change(by_id[answer["id"]], answer) for answer in answers]
        return 200, {"content-type": "application/json"}, json.dumps(answers).encode()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def refuses_creation(call: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Refuse calls without `to`, as some nodes do."""
    if call["method"] == "eth_call" and "to" not in call["params"][0]:
        return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32602, "message": "missing to"}}
    return answer
