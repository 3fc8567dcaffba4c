"""Attackers in a process of their own: `attacking.py NAME PORT SECONDS`. Each attack has its own addresses.

They use little: requests that once were expensive, held connections, endless bodies, and what needs a wallet or an
operator (`attacking_wallets.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from attacking_wallets import ANSWERS, FILLING, WALLETS, client_at
from builders import Wallet

_A = "0x" + "11" * 20
# Of one client, all connections together: what one loop can do by hand, and far beyond it for what once cost much.
_PER_SECOND = 50
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


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
    """Upload a module of 250 KB that is slow to validate, without a credential."""
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
# Requests to repeat without pause, and their number of connections. `_found` fills in the braces.
FLOODS: dict[str, tuple[str, int]] = {
    "offset, its name escaped": ("/triggers?offs%65t=100000", 16),
    "the same, ended ones": ("/triggers?offs%65t=100000&active=false&sort=1", 16),
    "500 events": ("/events?cursor={cursor}&limit=500", 16),
    "500 events, the name escaped": ("/events?cursor={cursor}&lim%69t=500", 16),
    "events that match nothing": ("/events?cursor={cursor}&owner=" + _A, 16),
    "a CAR": ("/ipfs/{cid}?format=car", 16),
    "a small module": ("/functions/{cid}/wasm", 16),
    "pages of 10 MB, 16 times": ("/triggers?limit=100&signer={signer}", 16),
    "pages of 10 MB, 200 times": ("/triggers?limit=100&signer={signer}", 200),
    "tile of the tail, 16 times": ("/log/1/tile/0/{bundle}.p/1", 16),
    "tile of the tail, 400 times": ("/log/1/tile/0/{bundle}.p/1", 400),
    "entry of a full bundle": ("/log/1/tile/entries/000.p/1", 16),
    "proof in the tail": ("/triggers/{sig}/proof", 16),
    "/healthz": ("/healthz", 200),
}


def _network() -> str:
    """The network of the addresses of this attack, so that attacks do not share rate limits."""
    return f"127.{1 + _NETWORKS.index(sys.argv[1])}"


async def _connect(port: int, number: int, *, buffer: int = 0) -> socket.socket:
    """Connect from the address with this number."""
    made = socket.socket()
    made.setblocking(False)
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.bind((f"{_network()}.{number // 250}.{2 + number % 250}", 0))
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def _repeat(port: int, request: bytes, connections: int, interval: float, *, is_one: bool = True) -> None:
    """Send a request repeatedly, and drop the answers; reopen connections that end."""
    loop = asyncio.get_running_loop()

    async def go_on(number: int) -> None:
        while True:
            with suppress(OSError), await _connect(port, 0 if is_one else number) as made:
                while True:
                    due = time.monotonic() + interval
                    await loop.sock_sendall(made, request)
                    received = await loop.sock_recv(made, 2**20)
                    _note(received)
                    while len(received) == 2**20:
                        received = await loop.sock_recv(made, 2**20)
                    if not received:
                        break
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            await asyncio.sleep(interval)

    await asyncio.gather(*(go_on(number) for number in range(connections)))


async def _flood(port: int, request: bytes, connections: int) -> None:
    """Send a request repeatedly, each after the whole answer to the one before."""
    loop = asyncio.get_running_loop()

    async def go_on() -> None:
        while True:
            with suppress(OSError), await _connect(port, 0) as made:
                has_more = True
                while has_more:
                    await loop.sock_sendall(made, request)
                    has_more = await _taken(made)
            await asyncio.sleep(0.1)

    await asyncio.gather(*(go_on() for _ in range(connections)))


async def _taken(made: socket.socket) -> bool:
    """Read an answer; False when the connection has ended."""
    loop = asyncio.get_running_loop()
    data = await loop.sock_recv(made, 2**20)
    _note(data)
    head, _, content = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    left = int(length[1]) - len(content) if length else 0
    while data and (left > 0 or not (length or data.endswith(b"0\r\n\r\n"))):
        data = await loop.sock_recv(made, 2**20)
        left -= len(data)
    return bool(data)


def _note(answer: bytes) -> None:
    if (status := answer[9:12]).isdigit():
        ANSWERS[int(status)] += 1


async def _hold(port: int, connections: int, first: bytes, then: bytes, interval: float, *, buffer: int = 0) -> None:
    """Hold connections of many clients that send `first`, then pieces at intervals, and never read."""
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


async def _found(port: int) -> dict[str, str]:
    """Public facts: a function, a trigger, the first position of the feed, the last bundle of the log."""
    signer = Wallet(7).address
    async with client_at(port, f"{_network()}.255.1") as client:
        (function,) = (await client.get("/functions?limit=1")).json()
        (trigger,) = (await client.get(f"/triggers?limit=1&signer={signer}")).json()
        cursor = (await client.get("/events")).links["next"]["url"].partition("cursor=")[2]
        size = int((await client.get("/log/1/checkpoint")).text.splitlines()[1])
    epoch = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))[:11]
    return {
        "cid": function["CID"], "sig": trigger["sig"], "signer": signer, "bundle": _tile(size // 256),
        "cursor": base64.urlsafe_b64encode(epoch + b"0").decode().rstrip("="),
    }  # fmt: skip


def _tile(number: int) -> str:
    """The path of a tile (C2SP tlog-tiles)."""
    high, low = divmod(number, 1_000)
    return f"x{high:03}/{low:03}" if high else f"{low:03}"


async def _streams(port: int, clients: int) -> None:
    """Open 20 streams for each client, from the first event on, with a filter that no event matches; read them."""
    loop = asyncio.get_running_loop()
    request = _get(f"/events/stream?owner={_A}", f"Last-Event-ID: {(await _found(port))['cursor']}")

    async def go_on(number: int) -> None:
        while True:
            with suppress(OSError), await _connect(port, number % clients) as made:
                await loop.sock_sendall(made, request)
                _note(await loop.sock_recv(made, 65_536))
                while await loop.sock_recv(made, 65_536):
                    pass
            await asyncio.sleep(1)

    await asyncio.gather(*(go_on(number) for number in range(20 * clients)))


async def _surge(port: int) -> None:
    """Open 900 new connections at once, repeatedly."""
    loop = asyncio.get_running_loop()

    async def ask(number: int) -> None:
        with suppress(OSError), await _connect(port, number) as made:
            await loop.sock_sendall(made, _get("/healthz"))
            _note(await loop.sock_recv(made, 4_096))

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
    "20 streams that match nothing": lambda port: _streams(port, 1),
    "the same, 20 clients": lambda port: _streams(port, 20),
}
NAMES = [*REQUESTS, *FLOODS, *HELD, *WALLETS]
_NETWORKS = [*NAMES, *FILLING]


async def attack(name: str, port: int, seconds: float) -> None:
    """Run the attack for this time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if name in HELD:
                await HELD[name](port)
            elif wallets := (WALLETS | FILLING).get(name):
                await wallets(port, _network())
            elif name in FLOODS:
                target, connections = FLOODS[name]
                await _flood(port, _get(target.format_map(await _found(port))), connections)
            else:
                await _repeat(port, REQUESTS[name], 16, 16 / _PER_SECOND)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("begun", flush=True)
    asyncio.run(attack(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
    print(", ".join(f"{status}: {number:,}" for status, number in sorted(ANSWERS.items())))
