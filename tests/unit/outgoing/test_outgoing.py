from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from each_row import each_row
from muniment.outgoing import Outgoing, Unreachable, client as outgoing_client, is_public

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def certificate(directory: Path, name: str) -> Path:
    """A self-signed certificate for `name`, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / "certificate.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def server(answer: bytes = ANSWER, tls: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A server on a free port: the port, and the heads of the requests it got."""
    heads: list[bytes] = []
    open_ones: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones[asyncio.current_task()] = writer
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield made.sockets[0].getsockname()[1], heads
    finally:
        made.close()
        for writer in open_ones.values():
            writer.close()
        await asyncio.gather(*(task for task in open_ones if task is not None))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Name to addresses, in place of the resolver; every look-up of `asked` is counted there."""
    known: dict[str, list[str]] = {"asked": []}

    async def getaddrinfo(_: object, host: str, port: int, **__: Any) -> list[Any]:
        known["asked"].append(host)
        return [(0, 0, 0, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


async def test_tls_verifies_the_name_of_the_url_while_the_connection_goes_to_the_checked_address(
    tmp_path: Path, names: dict[str, list[str]]
) -> None:
    path = certificate(tmp_path, "node.example")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=str(path))
    names |= {"node.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    async with server(tls=serving) as (port, heads), Outgoing(allow_private=True, tls=trusting) as outgoing:
        assert await outgoing.get(f"https://node.example:{port}/x?key=1", seconds_max=60) == b"ok"
        assert heads[0].startswith(b"GET /x?key=1 HTTP/1.1\r\n")
        assert f"host: node.example:{port}\r\n".encode() in heads[0].lower()
        with pytest.raises(Unreachable) as refusal:
            await outgoing.get(f"https://other.example:{port}/", seconds_max=60)
        assert refusal.value.reason == "unreachable"
    async with server(tls=serving) as (port, heads), Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable):
            await outgoing.get(f"https://node.example:{port}/", seconds_max=60)
        assert heads == []


async def test_a_name_with_one_private_address_among_public_ones_is_refused(names: dict[str, list[str]]) -> None:
    names["mixed.example"] = ["93.184.216.34", "10.0.0.1"]
    async with Outgoing(allow_private=False) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.get("http://mixed.example/", seconds_max=60)
    assert refusal.value.reason == "forbidden-address"
    assert names["asked"] == ["mixed.example"]


async def test_the_next_address_is_tried_when_one_refuses(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["two.example"] = ["::1", "127.0.0.1"]
    backend: Any = httpcore2.AnyIOBackend
    connect = backend.connect_tcp

    async def refused_by_the_first(self: Any, host: str, port: int, **more: Any) -> Any:
        if host == "::1":
            raise httpcore2.ConnectError("refused")
        return await connect(self, host, port, **more)

    monkeypatch.setattr(backend, "connect_tcp", refused_by_the_first)
    async with server() as (port, _), Outgoing(allow_private=True) as outgoing:
        assert await outgoing.get(f"http://two.example:{port}/", seconds_max=60) == b"ok"


async def test_a_redirect_is_not_followed() -> None:
    answer = b"HTTP/1.1 307 Go\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
    async with server(answer) as (port, heads), Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.get(f"http://127.0.0.1:{port}/", seconds_max=60)
    assert refusal.value.reason == "http-307"
    assert len(heads) == 1


async def test_an_answer_that_trickles_ends_with_the_time_given() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"
    async with server(answer) as (port, _), Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable) as refusal:
            await outgoing.post(f"http://127.0.0.1:{port}/", b"{}", seconds_max=0.2)
    assert refusal.value.reason == "timeout"


async def test_a_name_and_password_of_a_url_are_sent_as_credentials() -> None:
    async with server() as (port, heads), Outgoing(allow_private=True) as outgoing:
        await outgoing.get(f"http://me:a%40b@127.0.0.1:{port}", seconds_max=60)
    assert b"authorization: Basic bWU6YUBi\r\n" in heads[0].replace(b"Authorization", b"authorization")
    assert b"@" not in heads[0]


@each_row(
    "url", ["", "x", "file:///etc/passwd", "http://", "http://h:99999/", "http://[::1/", "http://h\n/é", "ftp://h/"]
)
async def test_what_is_no_http_url_is_refused(url: str) -> None:
    async with Outgoing(allow_private=True) as outgoing:
        with pytest.raises(Unreachable):
            await outgoing.get(url, seconds_max=2)


@each_row(
    ("address", "public"),
    [
        ("93.184.216.34", True), ("2606:2800:220:1::1", True), ("64:ff9b::5db8:d822", True),
        ("127.0.0.1", False), ("10.1.2.3", False), ("192.168.0.1", False), ("169.254.169.254", False),
        ("0.0.0.0", False),  # noqa: S104 - an address that is refused
        ("100.64.0.1", False), ("224.0.0.1", False), ("255.255.255.255", False), ("::1", False), ("::", False),
        ("fe80::1", False), ("fd00::1", False), ("ff02::1", False), ("::ffff:169.254.169.254", False),
        ("64:ff9b::a9fe:a9fe", False), ("2002:7f00:1::", False), ("64:ff9b:1::a9fe:a9fe", False),
        # Python's releases differ in whether these are global.
        ("192.0.0.8", False), ("192.0.0.192", False), ("2001:20::1", False), ("3fff::1", False),
        # Python takes these for global: site-local, IPv4 in IPv6, and segment identifiers.
        ("fec0::1", False), ("feff::1", False), ("::127.0.0.1", False), ("::ffff:0:127.0.0.1", False),
        ("5f00::1", False),
    ],
)  # fmt: skip
def test_an_address_is_public_or_not(address: str, public: bool) -> None:  # noqa: FBT001 - an expected value
    assert is_public(ipaddress.ip_address(address)) is public


async def test_a_first_request_that_outlives_its_client_makes_no_connection() -> None:
    async with server() as (port, heads):
        outgoing = Outgoing(allow_private=True)
        request = asyncio.create_task(outgoing.get(f"http://127.0.0.1:{port}/", seconds_max=5))
        await asyncio.sleep(0)  # it loads the connections
        await outgoing.close()
        with pytest.raises(Unreachable, match="closed"):
            await request
    assert not heads


async def test_connections_that_could_not_be_loaded_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    load = outgoing_client._loaded
    failures = [OSError("too many open files")]

    def fails_once() -> object:
        if failures:
            raise failures.pop()
        return load()

    monkeypatch.setattr(outgoing_client, "_loaded", fails_once)
    async with server() as (port, _), Outgoing(allow_private=True) as outgoing:
        with pytest.raises(OSError, match="too many"):
            await outgoing.get(f"http://127.0.0.1:{port}/", seconds_max=5)
        assert await outgoing.get(f"http://127.0.0.1:{port}/", seconds_max=5) == b"ok"
