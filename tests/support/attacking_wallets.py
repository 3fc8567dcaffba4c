"""Servers that the registry calls for wallets and operators, and uploads of wallets that fill its disk."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import httpx2

from attacked import INPUTS
from builders import Bundle, TriggerDraft, Wallet, api_key_of, log_in
from receiving import raw_receiver

# Beyond every one that a test uses otherwise.
_FIRST_WALLET = 2**100
# An answer of a receiver that is slow only just within the time limit of a delivery.
_SLOW_SECONDS = 14.5
_MODULE_BYTES = 14 * 2**20
_UPLOADS = 60
# The statuses of what this attack was answered.
ANSWERS: Counter[int] = Counter()
# Of operators whose receivers are hostile.
_OPERATOR_KEYS = os.environ.get("ATTACK_OPERATOR_KEYS", "").split(",")
# Where the registry looks for the node of a chain.
_NODE_PORT = int(os.environ.get("ATTACK_NODE_PORT", "0"))


def client_at(port: int, address: str) -> httpx2.AsyncClient:
    """A client at an address of its own."""

    async def note(answer: httpx2.Response) -> None:
        ANSWERS[answer.status_code] += 1

    return httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", transport=httpx2.AsyncHTTPTransport(local_address=address),
        timeout=60, event_hooks={"response": [note]},
    )  # fmt: skip


async def _endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send informational answers for ever."""
    with suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        while True:
            writer.write(b"HTTP/1.1 103 x\r\n\r\n" * 1_000)
            await writer.drain()


async def _hooks(client: httpx2.AsyncClient, key: str, urls: list[str]) -> list[Callable[[], Awaitable[Any]]]:
    """Add webhooks of an operator in place of those that it has; calling one of the results tests it."""
    headers = {"x-operator-key": key}
    for old in (await client.get("/webhooks", headers=headers)).json():
        await client.delete(f"/webhooks/{old['id']}", headers=headers)
    added = [(await client.post("/webhooks", json={"url": url}, headers=headers)).json() for url in urls]
    ids = [each["webhook"]["id"] for each in added]
    return [lambda id=id: client.post(f"/webhooks/{id}/test", headers=headers) for id in ids]


async def _again_and_again(asks: list[Callable[[], Awaitable[Any]]]) -> None:
    async def go_on(ask: Callable[[], Awaitable[Any]]) -> None:
        while True:
            with suppress(httpx2.TransportError):
                await ask()
            await asyncio.sleep(0.1)

    await asyncio.gather(*map(go_on, asks))


async def _endless_receiver(port: int, network: str) -> None:
    """Fifteen tests of three operators, of receivers whose answers never end."""
    async with (
        await asyncio.start_server(_endless, f"{network}.0.1", 0) as server,
        client_at(port, f"{network}.0.2") as client,
    ):
        url = f"http://{network}.0.1:{server.sockets[0].getsockname()[1]}/"
        asks = [each for key in _OPERATOR_KEYS for each in await _hooks(client, key, [url] * 5)]
        await _again_and_again(asks)


async def _endless_node(port: int, network: str) -> None:
    """Six readings of balances at once, from a node whose answers never end."""
    async with (
        await asyncio.start_server(_endless, "127.0.0.1", _NODE_PORT),
        client_at(port, f"{network}.0.2") as client,
    ):
        headers = {"x-auth-token": await log_in(client, Wallet(_FIRST_WALLET))}
        await _again_and_again([lambda: client.get("/users/tokens", headers=headers)] * 6)


async def _silent_names(port: int, network: str) -> None:
    """Fifteen tests of three operators, of receivers whose name servers never answer."""
    async with client_at(port, f"{network}.0.2") as client:
        asks: list[Callable[[], Awaitable[Any]]] = []
        for n, key in enumerate(_OPERATOR_KEYS):
            asks += await _hooks(client, key, [f"https://n{n}-{m}.silent.test/" for m in range(5)])
        await _again_and_again(asks)


async def _slow_by_turns(port: int, network: str) -> None:
    """Sixty webhooks of three operators at sixteen hosts: a quick answer, then a slow one, then a quick one."""
    turns = count()

    async def answer(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(next(turns) % 2 * _SLOW_SECONDS)
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()

    async with asyncio.TaskGroup() as group:
        hosts = [raw_receiver(f"{network}.1.{n + 1}", answer) for n in range(16)]
        urls = [await each.__aenter__() for each in hosts]
        for n, key in enumerate(_OPERATOR_KEYS):
            async with client_at(port, f"{network}.0.{n + 1}") as client:
                for test in await _hooks(client, key, [urls[(20 * n + m) % 16] for m in range(20)]):
                    await test()
            group.create_task(_make_events(port, f"{network}.0.{n + 1}", Wallet(_FIRST_WALLET + n)))


async def _make_events(port: int, address: str, wallet: Wallet) -> None:
    """Create a trigger of a wallet each second."""
    async with client_at(port, address) as client:
        (function,) = (await client.get("/functions?limit=1")).json()
        for number in count():
            draft = TriggerDraft(function["CID"], wallet, INPUTS, version=f"0.0.{number}", input={"note": "short"})
            with suppress(httpx2.TransportError):
                await client.post("/triggers", json=draft.signed())
            await asyncio.sleep(1)


async def _fill(port: int, network: str) -> None:
    """Fill the limits of eight wallets at one address with uploads, then triggers."""
    async with client_at(port, f"{network}.0.2") as client:
        keys = [{"x-api-key": await api_key_of(client, Wallet(_FIRST_WALLET + n))} for n in range(8)]
        for number in range(_UPLOADS):
            section = b"\0\x80\x80\x80\7\0" + os.urandom(_MODULE_BYTES)
            large = Bundle(version=f"{number}.0.0", wasm=Bundle().wasm + section[: 6 + 14 * 2**20 - 1])
            await client.post("/functions", files=large.files, headers=keys[number % 8])
    await _make_events(port, f"{network}.0.2", Wallet(_FIRST_WALLET))


WALLETS: dict[str, Callable[[int, str], Awaitable[None]]] = {
    "receivers that answer 103 for ever": _endless_receiver,
    "a node that answers 103 for ever": _endless_node,
    "receivers whose names are silent": _silent_names,
    "receivers that are slow by turns": _slow_by_turns,
}
# On a small disk of its own.
FILLING: dict[str, Callable[[int, str], Awaitable[None]]] = {"uploads that fill the disk": _fill}
