"""A witness on loopback, written from c2sp.org/tlog-witness 1.0.0, and ways in which it can lie or fail."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import pytest

from local_server import LocalServer
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint, parse_checkpoint
from muniment.protocol.log.fields import hash_of, number_of
from muniment.protocol.log.notes import COSIGNATURE, Note, SigningKey, VerifierKey, parse_note, sign_note, signing_key
from muniment.protocol.log.tree import EMPTY_ROOT, check_consistency
from muniment.service.resources.log import integrator, witnesses as asking

SIZE_TYPE = "text/x.tlog.size"


class Reply(NamedTuple):
    """An answer: status, content, media type."""

    status: int
    content: bytes = b""
    media_type: str = "text/plain"


# What a witness does in place of its duty: the answer to a body.
Lie = Callable[["WitnessSite", bytes], Reply]


@dataclass
class WitnessSite:
    """A witness that keeps the last checkpoint of each log that it knows."""

    key: SigningKey
    now_s: Callable[[], int]
    url: str = ""
    logs: dict[str, VerifierKey] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    lie: Lie | None = None
    shows_checkpoints: bool = True
    # Until it is set, a slow witness answers nothing.
    released: Event = field(default_factory=Event)

    def trust(self, key: VerifierKey) -> None:
        self.logs[key.name] = key

    def checkpoint(self, origin: str) -> Checkpoint | None:
        """The last checkpoint that it has cosigned."""
        return parse_checkpoint(self.notes[origin].text) if origin in self.notes else None

    @property
    def olds(self) -> list[int]:
        """Old sizes in its requests."""
        return [int(body.split(b"\n", 1)[0].removeprefix(b"old ")) for body in self.bodies]

    def add(self, body: bytes) -> Reply:
        """Section "add-checkpoint": the checks in the order of the specification."""
        try:
            head, data = body.split(b"\n\n", 1)
            first, *lines = head.decode("ascii").split("\n")
            old = number_of(first.removeprefix("old "), "the old size")
            proof, note = [hash_of(line, "a hash") for line in lines], parse_note(data)
            new = parse_checkpoint(note.text)
        except ValueError as error:
            return Reply(400, str(error).encode())
        if new.origin not in self.logs:
            return Reply(404)
        try:
            open_checkpoint(note, self.logs[new.origin])
        except ValueError as error:
            return Reply(403, str(error).encode())
        if not first.startswith("old ") or old > new.size or len(proof) > 63:
            return Reply(400)
        last = self.checkpoint(new.origin) or Checkpoint(new.origin, 0, EMPTY_ROOT)
        if old != last.size:
            return Reply(409, f"{last.size}\n".encode(), SIZE_TYPE)
        if old == new.size and last.root != new.root:
            return Reply(409)
        try:
            check_consistency(old, last.root, new.size, new.root, proof)
        except ValueError as error:
            return Reply(422, str(error).encode())
        self.notes[new.origin] = note
        return Reply(200, self.cosign(note.text))

    def cosign(self, text: str, at_s: int | None = None) -> bytes:
        """Its cosignature line over the text of a checkpoint."""
        return sign_note(text, [self.key], self.now_s() if at_s is None else at_s).signatures[0].line.encode()

    def show(self, path: str) -> Reply:
        """The last checkpoint of the log whose origin has this hash."""
        for origin, note in self.notes.items():
            if self.shows_checkpoints and path == f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint":
                return Reply(200, note.data)
        return Reply(404)


def text_of(body: bytes) -> str:
    """The text of the checkpoint in the body of a request."""
    return parse_note(body.split(b"\n\n", 1)[1]).text


def status(code: int, content: bytes = b"", media_type: str = "text/plain") -> Lie:
    """Always answer this."""
    return lambda _, __: Reply(code, content, media_type)


def larger(_: WitnessSite, body: bytes) -> Reply:
    """Claim a larger tree than it was sent."""
    return Reply(409, f"{parse_checkpoint(text_of(body)).size + 7}\n".encode(), SIZE_TYPE)


def dated(at_s: int) -> Lie:
    """Sign another time."""
    return lambda site, body: Reply(200, site.cosign(text_of(body), at_s))


def signs_another_text(site: WitnessSite, body: bytes) -> Reply:
    return Reply(200, site.cosign(text_of(body) + "more\n"))


def signs_wrongly(site: WitnessSite, body: bytes) -> Reply:
    """Sign with another key under its own name and key id."""
    other = SigningKey(site.key.verifier, bytes(32))
    return Reply(200, sign_note(text_of(body), [other], site.now_s()).signatures[0].line.encode())


def signs_by_a_stranger(site: WitnessSite, body: bytes) -> Reply:
    stranger = signing_key("stranger.example/w", COSIGNATURE, bytes(31) + b"\x07")
    return Reply(200, sign_note(text_of(body), [stranger], site.now_s()).signatures[0].line.encode())


def slow(site: WitnessSite, _: bytes) -> Reply:
    """Answer when the test is over."""
    site.released.wait(600)
    return Reply(500)


def endless(_: WitnessSite, __: bytes) -> Reply:
    """Endless content, which `listening` sends."""
    raise NotImplementedError


@contextmanager
def listening(site: WitnessSite) -> Generator[WitnessSite]:
    """Serve a witness on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            site.bodies.append(body)
            if self.path != "/add-checkpoint":
                self.reply(Reply(404))
            elif site.lie is endless:
                self.stream()
            else:
                self.reply(site.lie(site, body) if site.lie else site.add(body))

        def do_GET(self) -> None:
            self.reply(site.show(self.path))

        def reply(self, reply: Reply) -> None:
            with suppress(OSError):  # the client has not waited
                self.send_response(reply.status)
                self.send_header("content-type", reply.media_type)
                self.send_header("content-length", str(len(reply.content)))
                self.end_headers()
                self.wfile.write(reply.content)

        def stream(self) -> None:
            self.send_response(200)
            self.send_header("connection", "close")
            self.end_headers()
            deadline = time.monotonic() + 30
            with suppress(OSError):
                while time.monotonic() < deadline:
                    self.wfile.write(b"\xe2\x80\x94 endless\n" * 1000)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with LocalServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # looks for its end so often
        thread.start()
        try:
            yield site
        finally:
            site.released.set()
            server.shutdown()
            thread.join()


@contextmanager
def sites(count: int, now_s: Callable[[], int]) -> Generator[list[WitnessSite]]:
    """Witnesses that listen, each with a key of its own. One that has to wait for a core is no witness that fails."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in (asking, integrator):
            patch.setattr(module, "SECONDS_MAX", 60.0)
        keys = [signing_key(f"w{n}.example/w", COSIGNATURE, n.to_bytes(32)) for n in range(1, count + 1)]
        yield [stack.enter_context(listening(WitnessSite(key, now_s))) for key in keys]


def write_policy(path: Path, witnesses: list[WitnessSite], quorum: str) -> None:
    """A policy with these witnesses, `w1` and so on; `quorum` is a number of them, `all`, `any` or `none`."""
    lines = [f"witness w{n} {site.key.verifier.text} {site.url}/" for n, site in enumerate(witnesses, 1)]
    if quorum == "none":
        lines.append("quorum none")
    else:
        names = " ".join(f"w{n}" for n in range(1, len(witnesses) + 1))
        lines += [f"group enough {quorum} {names}", "quorum enough"]
    path.write_text("\n".join(lines) + "\n")
