"""Strangers who mean harm, a process of their own: `attacking.py NAME PORT SECONDS`. They come from 127.0.1.2 and on.

Each does what it can with little: requests that once cost much, connections that are held, bodies that never end.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

_A = "0x" + "11" * 20
# Of one client, all connections together: what one loop can do by hand, and far beyond it for what once cost much.
_PER_SECOND = 50


def _get(target: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: test", *lines, "", ""]).encode()


def _post(target: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _unclosed(size: int) -> bytes:
    return _post("/users/authenticate", b'{"address":"' + b'\\"' * ((size - 212) // 2) + b"[" * 200)


def _login() -> bytes:
    return _post(
        "/users/authenticate", json.dumps({"address": _A, "nonce": "a" * 32, "signature": "0x" + "1b" * 65}).encode()
    )


def _upload() -> bytes:
    """A module of 250 KB that a validator works on for long, were it asked to; nobody signed for it."""
    body = b"\0asm\1\0\0\0\1\4\1\x60\0\0\3\2\1\0\x0a" + b"\x0e\x7f" * 125_000
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n'
    form = part % (b"function.wasm", body) + part % (b"manifest.json", b"{}") + b"--x--\r\n"
    return _post("/functions", form, "multipart/form-data; boundary=x")


REQUESTS: dict[str, bytes] = {
    "unclosed string, 16 KB": _unclosed(16_000),
    "unclosed string, 63 KB": _unclosed(63_000),
    "unclosed string, 255 KB": _unclosed(255_000),
    "nested brackets, 195 KB": _post("/users/authenticate", b"[" * 195_000),
    "Accept, 16 KB": _get("/ipfs/bafkqaaa", 'Accept: "' + '\\"' * 8_000),
    "intents at offset 2^62": _get(f"/intents?offset={2**62}"),
    "intents of user and settler": _get(f"/intents?user={_A}&settler={_A}"),
    "longest page": _get("/triggers?limit=100"),
    "ended triggers at an offset": _get("/triggers?active=false&offset=100000"),
    "/docs": _get("/docs"),
    "failing log-in": _login(),
    "module of 250 KB": _upload(),
}


async def _connect(port: int, number: int, *, buffer: int = 0) -> socket.socket:
    """A connection from the client of that number."""
    made = socket.socket()
    made.setblocking(False)
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.bind((f"127.0.{1 + number // 250}.{2 + number % 250}", 0))
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def _repeat(port: int, request: bytes, connections: int, interval: float, *, is_one: bool = True) -> None:
    """Send a request again and again, and drop what is answered; connections that end are opened again."""
    loop = asyncio.get_running_loop()

    async def go_on(number: int) -> None:
        while True:
            with suppress(OSError), await _connect(port, 0 if is_one else number) as made:
                while True:
                    due = time.monotonic() + interval
                    await loop.sock_sendall(made, request)
                    received = await loop.sock_recv(made, 2**20)
                    while len(received) == 2**20:
                        received = await loop.sock_recv(made, 2**20)
                    if not received:
                        break
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.sleep(interval)

    await asyncio.gather(*(go_on(number) for number in range(connections)))


async def _hold(port: int, connections: int, first: bytes, then: bytes, interval: float, *, buffer: int = 0) -> None:
    """Connections of many clients that send `first`, then a piece now and then, and never read."""
    loop = asyncio.get_running_loop()

    async def go_on(number: int) -> None:
        while True:
            with suppress(OSError), await _connect(port, number, buffer=buffer) as made:
                await loop.sock_sendall(made, first)
                while True:
                    await asyncio.sleep(interval)
                    await loop.sock_sendall(made, then)
            await asyncio.sleep(1)

    await asyncio.gather(*(go_on(number) for number in range(connections)))


async def _surge(port: int) -> None:
    """Nine hundred new connections at once, again and again."""
    loop = asyncio.get_running_loop()

    async def ask(number: int) -> None:
        with suppress(OSError), await _connect(port, number) as made:
            await loop.sock_sendall(made, _get("/healthz"))
            await loop.sock_recv(made, 4_096)

    while True:
        await asyncio.gather(*(ask(number) for number in range(900)))
        await asyncio.sleep(1)


_BODY = b"POST /functions HTTP/1.1\r\nHost: test\r\nContent-Length: 16000000\r\n\r\n"
HELD: dict[str, Callable[[int], Awaitable[None]]] = {
    "1,000 that never read": lambda port: _hold(port, 1_000, _get("/triggers?limit=100") * 4, b"", 5, buffer=4_096),
    "1,000 at a byte a second": lambda port: _hold(port, 1_000, b"GET /", b"x", 1),
    "5,000 idle": lambda port: _hold(port, 5_000, b"", b"", 60),
    "900 at once": _surge,
    "uploads without a key": lambda port: _hold(port, 100, _BODY, b"x" * 65_536, 0.5),
    "600 parked": lambda port: _repeat(port, _get("/triggers?limit=100"), 600, 0.0),
}
NAMES = [*REQUESTS, *HELD]


async def attack(name: str, port: int, seconds: float) -> None:
    """Do it for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if name in HELD:
                await HELD[name](port)
            else:
                await _repeat(port, REQUESTS[name], 16, 16 / _PER_SECOND)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
