"""An IPFS node for tests: the two commands of Kubo's RPC that are used, read strictly, with faults to choose.

It is strict: an upload must be one form with one CAR file, with correct hashes and a connected DAG.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from local_server import LocalServer
from muniment.protocol.errors import ContentNotFound
from muniment.protocol.ipfs.car import read_car
from muniment.protocol.ipfs.cid import decode_cid
from muniment.protocol.ipfs.dag import open_file, walk

OTHER_ROOT = "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn"


@dataclass
class PinNode:
    """State of the node. `fault` names the fault of an import; "": none. With `faulty`, of that CID alone."""

    port: int = 0
    fault: str = ""
    faulty: str = ""
    look_status: int = 200
    # The answer to each look in place of the true one.
    look_answer: bytes | None = None
    authorization: str | None = None
    # Whether a refusal is JSON, as Go writes it: with `&` and `<` escaped.
    refuses_in_json: bool = False
    pinned: dict[str, dict[bytes, bytes]] = field(default_factory=dict[str, dict[bytes, bytes]])
    # Each import that began, and each command with its CID: so tests see who was asked how often.
    imports: list[str] = field(default_factory=list[str])
    looks: list[str] = field(default_factory=list[str])
    # Holds every answer back while it is unset.
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def file(self, cid: str, name: str) -> bytes:
        """A file of a pinned bundle, read back from the blocks of the node."""
        return b"".join(open_file(self._getter(cid), decode_cid(cid), [name]).read())

    def _getter(self, cid: str) -> Any:
        def get(digest: bytes) -> bytes:
            if digest not in self.pinned[cid]:
                raise ContentNotFound("the node has no such block")
            return self.pinned[cid][digest]

        return get

    def take_in(self, car: bytes) -> str:
        """Store and pin the root of a CAR file and everything below it."""
        roots, sections = read_car(io.BytesIO(car))
        (root,) = roots
        self.pinned[root.text] = {cid.digest: block for cid, block in sections}
        assert len(list(walk(self._getter(root.text), root))) == len(self.pinned[root.text])
        return root.text


@contextmanager
def pin_node(port: int = 0, **given: Any) -> Generator[PinNode]:
    """A node that listens on loopback until the end of the block."""
    node = PinNode(**given)
    node.may_answer.set()
    server = LocalServer(("127.0.0.1", port), type("Handler", (_Handler,), {"node": node}))
    node.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    node: PinNode
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(405, b"405 - Method Not Allowed")

    def do_POST(self) -> None:
        node, parts = self.node, urlsplit(self.path)
        if node.authorization is not None and self.headers["authorization"] != node.authorization:
            said = self.headers["authorization"] or "nothing"
            if node.refuses_in_json:
                text = json.dumps({"Message": said}).replace("&", "\\u0026").replace("<", "\\u003C")
                return self._close(403, text.encode())
            return self._close(403, f"403 - Forbidden, you said {said}".encode())
        command = parts.path.removeprefix("/api/v0/")
        if command == "dag/import":
            return self._import(parse_qs(parts.query))
        if command == "pin/ls":
            return self._look(parse_qs(parts.query))
        return self._answer(404, b"404 page not found")

    def _look(self, query: dict[str, list[str]]) -> None:
        (cid,), kind = query["arg"], query["type"]
        assert kind == ["recursive"]
        self.node.looks.append(cid)
        self.node.may_answer.wait(30)
        if self.node.look_answer is not None:
            return self._answer(200, self.node.look_answer)
        if self.node.look_status in range(300, 400):
            return self._answer(self.node.look_status, b"", location=f"{self.node.url}/api/v0/elsewhere")
        if self.node.look_status != 200:
            return self._answer(self.node.look_status, b'{"Message":"the node is ill","Code":0,"Type":"error"}')
        if cid not in self.node.pinned:
            return self._error(f"path '{cid}' is not pinned")
        return self._answer(200, json.dumps({"Keys": {cid: {"Type": "recursive", "Name": ""}}}).encode())

    def _import(self, query: dict[str, list[str]]) -> None:
        node = self.node
        assert query["pin-roots"] == ["true"]
        if node.fault == "cut":
            node.imports.append("cut")
            self.rfile.read(64)
            self.close_connection = True
            return self.connection.close()
        car = _only_file(self.headers["content-type"], self.rfile.read(int(self.headers["content-length"])))
        roots, _ = read_car(io.BytesIO(car))
        root = roots[0].text
        node.imports.append(root)
        node.may_answer.wait(30)
        fault = node.fault if node.faulty in {"", root} else ""
        if fault in {"", "lost answer"}:
            node.take_in(car)
        return self._say(root, fault)

    def _say(self, root: str, fault: str) -> None:
        def line(cid: str, error: str = "") -> bytes:
            return json.dumps({"Root": {"Cid": {"/": cid}, "PinErrorMsg": error}}).encode() + b"\n"

        stats = b'{"Stats":{"BlockCount":4,"BlockBytesCount":318}}\n'
        if fault == "500":
            return self._error("import failed: no space left on device")
        if fault == "500 of a proxy":
            return self._answer(500, b"<html>")
        if fault.isdigit():
            return self._answer(int(fault), b"refused")
        if fault == "endless":
            return self._stream(stats for _ in iter(int, 1))
        if fault == "endless and slow":
            return self._stream(_slowly(stats))
        if fault in {"lost answer", "half an answer"}:
            return self._stream(iter([line(root)]), ends=False)
        answers = {
            "": line(root) + stats,
            "wrong root": line(OTHER_ROOT) + stats,
            "two roots": line(root) + line(OTHER_ROOT) + stats,
            "pin error": line(root, "block was not found locally (offline): \x1b[31m" + "x" * 9_000),
            "no root": stats,
            "error at the end": line(root) + b'{"Message":"unexpected EOF","Code":0,"Type":"error"}\n',
            "no json": b"<html>It works!</html>",
            "strange json": b'{"Root":[1]}\n',
            "deep json": b"[" * 60_000,
            "nothing": b"",
        }
        return self._answer(200, answers[fault])

    def _stream(self, pieces: Iterator[bytes], *, ends: bool = True) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if ends:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _error(self, message: str) -> None:
        self._answer(500, json.dumps({"Message": message, "Code": 0, "Type": "error"}).encode())

    def _close(self, status: int, content: bytes) -> None:
        self.close_connection = True
        self._answer(status, content)

    def _answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _only_file(content_type: str, body: bytes) -> bytes:
    """The content of the one part of a form (RFC 7578), which is a file named `file`."""
    kind, _, boundary = content_type.partition("; boundary=")
    assert kind == "multipart/form-data"
    before, part, after = body.split(f"--{boundary}".encode())
    assert (before, after) == (b"", b"--\r\n")
    head, _, content = part.partition(b"\r\n\r\n")
    assert b'form-data; name="file"; filename=' in head
    return content.removesuffix(b"\r\n")


def _slowly(piece: bytes) -> Iterator[bytes]:
    while True:
        time.sleep(0.1)
        yield piece
