"""The certificates that connections trust, as `SSL_CERT_FILE` and `SSL_CERT_DIR` name them."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import warm
from each_row import each_row
from muniment.client import CannotSign, Registry, Retry, Unreachable, signer_of
from muniment.operate.http_request import ask
from muniment.outgoing import Outgoing, Unreachable as NoAnswer
from muniment.tls import tls_context

NAME = b"localhost"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, and its key, in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME.decode())])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME.decode())]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = tmp_path_factory.mktemp("certificate") / "certificate.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture(scope="module")
def hashed(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the certificate by the name that `openssl rehash` gives it: a hash of its subject."""
    common_name = b"\x06\x03\x55\x04\x03\x0c" + bytes([len(NAME)]) + NAME  # DER
    subject = bytes([0x31, len(common_name) + 2, 0x30, len(common_name)]) + common_name
    name = int.from_bytes(hashlib.sha1(subject).digest()[:4], "little")  # noqa: S324 - OpenSSL's choice
    folder = tmp_path_factory.mktemp("hashed")
    (folder / f"{name:08x}.0").write_bytes(certificate.read_bytes())
    return folder


@pytest.fixture(scope="module")
def url(certificate: Path) -> Iterator[str]:
    """A server with that certificate, which answers every request with an empty list."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_: Any) -> None: ...  # pyright: ignore[reportIncompatibleMethodOverride] - silent

    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


async def _fetched(url: str) -> bytes:
    async with Outgoing(allow_private=True) as outgoing:
        return await outgoing.get(url, seconds_max=60)


def _listed(url: str) -> list[Any]:
    with Registry(url, retry=Retry(tries=1)) as registry:
        return [*registry.functions.list()]


CLIENTS: tuple[Callable[[str], Any], ...] = (
    _listed,
    lambda url: ask(url, seconds_max=60),
    lambda url: asyncio.run(_fetched(url)),
)


@each_row("variable", ["file", "directory", "both", "several"])
def test_every_client_trusts_what_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, hashed: Path, url: str, variable: str
) -> None:
    with monkeypatch.context() as patched:
        patched.delenv("SSL_CERT_FILE", raising=False)
        patched.delenv("SSL_CERT_DIR", raising=False)
        if variable != "directory":
            # A file with another certificate does not hide the directory.
            other = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
            patched.setenv("SSL_CERT_FILE", str(certificate if variable == "file" else other))
        if variable != "file":
            folders = [str(hashed.parent), str(hashed)] if variable == "several" else [str(hashed)]
            patched.setenv("SSL_CERT_DIR", os.pathsep.join(folders))
        for client in CLIENTS:
            client(url)


def test_no_client_trusts_it_otherwise(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "")
    monkeypatch.setenv("SSL_CERT_DIR", "")
    for client in CLIENTS:
        with pytest.raises((Unreachable, NoAnswer, ssl.SSLCertVerificationError)):
            client(url)
    with pytest.raises(CannotSign, match="ConnectError"):
        print(signer_of(f"rpc:{url}").address)


def named_wrongly(folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """The environment and what is said of it."""
    (folder / "text").write_text("no certificate")
    return {
        "missing file": ({"SSL_CERT_FILE": "/no/such/cert.pem"}, "SSL_CERT_FILE names /no/such/cert.pem, which"),
        "a directory": ({"SSL_CERT_FILE": str(folder)}, f"SSL_CERT_FILE names {folder}, which"),
        "a text": ({"SSL_CERT_FILE": str(folder / "text")}, f"SSL_CERT_FILE names {folder / 'text'}, which"),
        "missing directory": ({"SSL_CERT_DIR": "/no/such/certs"}, "SSL_CERT_DIR names /no/such/certs, which"),
        "both": ({"SSL_CERT_DIR": "/no/such:/nor/this"}, "SSL_CERT_DIR names /no/such:/nor/this, which"),
        "a file": ({"SSL_CERT_DIR": str(folder / "text")}, f"SSL_CERT_DIR names {folder / 'text'}, which"),
    }


def test_what_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for case, (environment, said) in named_wrongly(tmp_path).items():
        with monkeypatch.context() as patched:
            patched.setenv("SSL_CERT_FILE", environment.get("SSL_CERT_FILE", ""))
            patched.setenv("SSL_CERT_DIR", environment.get("SSL_CERT_DIR", ""))
            for use in (tls_context, lambda: Registry("https://x.example"), lambda: Outgoing(allow_private=True)):
                with pytest.raises(ValueError, match="SSL_CERT") as raised:
                    use()
                assert str(raised.value).startswith(said), case


def test_one_directory_of_several_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for named in (f"{tmp_path}:/no/such", f"/no/such:{tmp_path}"):
        monkeypatch.setenv("SSL_CERT_DIR", named)
        tls_context()


PROGRAMS = (
    ("triggers", "list", "--url", "https://127.0.0.1:9"),
    ("verify", "--remote", "https://127.0.0.1:9"),
    ("tlog", "verify", "https://127.0.0.1:9", "--state", "state"),
    ("serve", "--port", "0", "--data-dir", "data"),
    ("intents", "watch", "--once", "--data-dir", "data"),
    ("chains", "check", "--data-dir", "data"),
    ("doctor", "--url", "https://127.0.0.1:9", "--data-dir", "data"),
    ("relayer", "--once", "--dry", "--any", "--config", "relayer.toml"),
    ("blocks", "pin", "--url", "https://127.0.0.1:9", "--kubo", "https://127.0.0.1:9", "--once"),
)


@pytest.mark.programs
def test_every_program_names_what_it_cannot_read_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "relayer.toml").write_text('[relayer]\nregistry = "https://127.0.0.1:9"\n')
    assert warm.run("migrate", data=tmp_path / "data").returncode == 0
    (tmp_path / "chains.toml").write_text(
        '[[chains]]\nid = 1\nname = "One"\nrpc_urls = ["https://127.0.0.1:9"]\nsettler = "0x' + "11" * 20 + '"\n'
    )
    environment = {"SSL_CERT_FILE": "/no/such/cert.pem", "HOME": str(tmp_path), "MUNIMENT_CHAINS_FILE": "chains.toml"}
    for words in PROGRAMS:
        done = warm.run(*words, directory=tmp_path, environment=environment)
        said = done.stdout + done.stderr
        assert done.returncode != 0, words
        assert said.count("SSL_CERT_FILE names /no/such/cert.pem") == 1, (words, said)
        assert "Traceback" not in said, said
