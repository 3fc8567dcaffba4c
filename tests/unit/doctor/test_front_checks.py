"""The checks of the service as clients reach it, each with a proxy or a service that does one thing wrong."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from breaking import breaks
from local_server import LocalServer
from muniment.operate.doctor.findings import Examined, Finding
from muniment.operate.doctor.front import check_logins, check_proxies, check_service
from muniment.operate.http_request import Answer, ask, detail_of, ping
from muniment.service.running.limits.limiter import PROXY_NOTE
from muniment.service.running.settings import Settings

NOW_S = 1_795_204_080
GOOD = {"/readyz": 200, "/metrics": 404, "/functions": 401}


class Front(BaseHTTPRequestHandler):
    """Answers each path with a status; a POST is read first, unless it is too large."""

    statuses: dict[str, int]

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        if self.statuses[self.path] != 413:
            self.rfile.read(int(self.headers["content-length"]))
        self._answer()

    def _answer(self) -> None:
        body = b'{"detail": "the disk is full"}'
        self.send_response(self.statuses[self.path])
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def fronted(statuses: dict[str, int], tls: ssl.SSLContext | None = None) -> Generator[str]:
    """The URL of a server that answers with these statuses."""
    server = LocalServer(("127.0.0.1", 0), type("Answers", (Front,), {"statuses": statuses}))
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def trickling(answer: bytes, piece: bytes, *, seconds: float = 0.2) -> Generator[str]:
    """The URL of a server that sends `answer` and then a piece every now and then, without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.recv(65_536)
                connection.sendall(answer)
                while True:
                    connection.sendall(piece)
                    time.sleep(seconds)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def good() -> Iterator[str]:
    with fronted(GOOD) as url:
        yield url


def levels(findings: list[Finding]) -> dict[str, int]:
    return {found.check or "service": found.level.value for found in findings}


def check_front(url: str, **given: Any) -> list[Finding]:
    return check_service(Examined(Settings(), url, now_s=NOW_S), **given)


def elsewhere(url: str, until_s: float | None, target: str, **given: Any) -> Answer:
    """The answer of the server at `url`, as if it had another name and a certificate that ends at `until_s`."""
    answer = ask(url + target.removeprefix("https://registry.example").removeprefix("http://registry.example"), **given)
    return Answer(answer.status, answer.body, until_s)


def test_a_service_behind_a_good_proxy_has_no_finding(good: str) -> None:
    assert levels(check_front(good)) == {"service": 0, "TLS": 0, "metrics": 0, "body limit": 0}


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n"],
    ids=["body", "chunks", "head"],
)
def test_an_answer_that_never_ends_is_none_in_bounded_time(answer: bytes) -> None:
    piece = b"1\r\nx\r\n" if b"chunked" in answer else b"x-more: x\r\n"
    with trickling(answer, piece) as url:
        began = time.monotonic()
        with pytest.raises(OSError, match="no complete answer within 1 s"):
            ask(f"{url}/readyz", seconds_max=1)
        with pytest.raises(OSError, match="does not answer"):
            ping(url, path="/readyz", seconds_max=1)
        assert time.monotonic() - began < 60


def test_a_body_without_an_end_is_cut_off() -> None:
    with trickling(b"HTTP/1.1 200 OK\r\n\r\n", bytes(1_000_000), seconds=0) as url:
        assert len(ask(f"{url}/readyz", seconds_max=20).body) == 64 * 1024


def test_neither_a_password_in_a_url_nor_a_hostile_detail_is_shown() -> None:
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9 does not answer") as failed:
        ping("http://me:hidden@127.0.0.1:9", path="/readyz")
    assert "hidden" not in str(failed.value)
    detail = detail_of(Answer(503, json.dumps({"detail": "\x1b[2J" + "x" * 10_000 + "\n"}).encode()))
    assert (len(detail), detail[:9]) == (300, "\\u001b[2J")
    assert detail_of(Answer(503, b"[" * 60_000)) == "not a problem document: is it a proxy?"


def test_nothing_that_answers_fails() -> None:
    assert levels(check_front("http://127.0.0.1:9")) == {"service": 2}
    assert levels(check_front("registry.example")) == {"service": 2}


def unanswered(url: str, **_: Any) -> Answer:
    raise ConnectionRefusedError(url)


@breaks("proxies")
@pytest.mark.parametrize(
    ("host", "proxies", "url", "level"),
    [
        ("127.0.0.1", "", "", 0),
        ("192.0.2.7", "", "", 1),
        ("127.0.0.1", "", "https://registry.example", 1),
        ("192.0.2.7", "10.0.0.0/8", "", 0),
        ("127.0.0.1", "0.0.0.0/0", "", 2),
        ("127.0.0.1", "10.0.0.0/8,::/0", "", 2),
    ],
)
def test_proxies_that_are_not_named_or_are_everybody_are_noticed(host: str, proxies: str, url: str, level: int) -> None:
    examined = Examined(Settings(host=host, trusted_proxies=proxies), url)
    assert check_proxies(examined, send=unanswered).level == level


@pytest.mark.parametrize(
    ("url", "asked"),
    [("", "http://127.0.0.1:8787/readyz"), ("https://registry.example/", "https://registry.example/readyz")],
)
def test_a_proxy_that_the_service_notes_is_a_warning(url: str, asked: str) -> None:
    urls: list[str] = []

    def send(given: str, **_: Any) -> Answer:
        urls.append(given)
        return Answer(200, json.dumps({"status": "ok", "notes": ["another note", PROXY_NOTE]}).encode())

    found = check_proxies(Examined(Settings(trusted_proxies="192.0.2.0/24"), url), send=send)
    assert (found.level, found.message, urls) == (1, PROXY_NOTE, [asked])
    assert "MUNIMENT_TRUSTED_PROXIES" in found.remedy


@pytest.mark.parametrize(
    "body", [b"", b"[" * 60_000, b"\xff", b"7", b"[]", b'{"status": "ok"}', b'{"notes": 7}', b'{"notes": {"a": [1]}}']
)
def test_another_answer_than_that_of_a_service_notes_no_proxy(body: bytes) -> None:
    assert check_proxies(Examined(Settings()), send=lambda _, **__: Answer(200, body)).level == 0


@breaks("service")
def test_a_service_that_is_not_ready_fails_with_its_reason() -> None:
    with fronted({**GOOD, "/readyz": 503}) as url:
        (found, *_) = check_front(url)
        assert (found.level, found.message) == (2, "/readyz answers 503: the disk is full")
        with pytest.raises(OSError, match="answers 503: the disk is full"):
            ping(url, path="/readyz")


@breaks("body limit")
@pytest.mark.parametrize(("status", "level"), [(413, 2), (502, 1)])
def test_a_proxy_that_refuses_large_bodies_is_noticed(status: int, level: int) -> None:
    with fronted({**GOOD, "/functions": status}) as url:
        assert levels(check_front(url))["body limit"] == level


@breaks("metrics")
def test_metrics_that_everybody_can_read_fail() -> None:
    with fronted({**GOOD, "/metrics": 200}) as url:
        found = check_front("https://registry.example", send=partial(elsewhere, url, NOW_S * 2))
        assert levels(found) == {"service": 0, "TLS": 0, "metrics": 2, "body limit": 0}
        assert levels(check_front(url))["metrics"] == 0  # this machine may


@breaks("TLS")
@pytest.mark.parametrize(("days", "level"), [(22, 0), (20, 1), (6, 2), (None, 2)])
def test_a_certificate_that_ends_soon_is_noticed(good: str, days: int | None, level: int) -> None:
    until_s = None if days is None else NOW_S + days * 86_400
    found = check_front("http://registry.example", send=partial(elsewhere, good, until_s))
    assert levels(found)["TLS"] == level


def test_a_certificate_that_nobody_vouches_for_fails(tmp_path: Path) -> None:
    with fronted(GOOD, _self_signed(tmp_path)) as url:
        (found,) = check_front(url)
    assert (found.check, found.level, found.message) == ("TLS", 2, "self-signed certificate")


def test_the_end_of_a_certificate_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = _self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    with fronted(GOOD, tls) as url:
        until_s = ask(f"{url}/readyz", seconds_max=60).certificate_until_s
    assert until_s is not None
    assert datetime.fromtimestamp(until_s, UTC) - datetime.now(UTC) < timedelta(days=10)


def _self_signed(folder: Path) -> ssl.SSLContext:
    """A server's context with a certificate of ten days for 127.0.0.1."""
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=10))
        .add_extension(address, critical=False).sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "certificate").write_bytes(made.public_bytes(Encoding.PEM))
    (folder / "key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    return context


@breaks("log-ins")
def test_log_ins_that_may_be_of_another_registry_are_a_warning() -> None:
    named = {"public_url": "https://registry.example.org"}
    rows: list[tuple[dict[str, Any], str, int, str]] = [
        ({}, "", 0, "on this machine"), ({"host": "0.0.0.0"}, "", 1, "public_url is empty"),  # noqa: S104 - said, not listened on
        ({}, "https://registry.example.org", 1, "public_url is empty"), (named, "", 1, "another registry"),
        ({**named, "bare_nonces": False}, "", 0, "in words"),
        ({"public_url": "http://127.0.0.1:8787"}, "", 0, "in words"),
    ]  # fmt: skip
    for members, url, level, said in rows:
        finding = check_logins(Examined(Settings(**members), url))
        assert (finding.level, said in finding.message) == (level, True), members
