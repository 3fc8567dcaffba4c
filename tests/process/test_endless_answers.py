"""Others whose answers never end, beside a running service: it takes little of them, and goes on answering."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import Wallet, log_in
from service import Service

EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\n\r\n"
# What the buffers of the kernels on both sides may hold of what nobody reads.
TAKEN_BYTES_MAX = 2**20
# Only ends a hang: what reads on reaches so many bytes long before its time limit.
SENT_BYTES_MAX = 8 * 2**20


class Endless:
    """A server that answers each request with informational answers without end."""

    def __init__(self) -> None:
        self.url = ""
        # Bytes that were taken of each answer, in the order in which they ended.
        self.taken: list[int] = []

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Endless]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)  # its connections have it too
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with await asyncio.start_server(self._answer, sock=listener):
                yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken = 0
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            while taken < SENT_BYTES_MAX:
                writer.write(EARLY_HINTS * 100)
                await writer.drain()
                taken += len(EARLY_HINTS) * 100
        self.taken.append(taken)
        writer.transport.abort()


@pytest.fixture
async def endless() -> AsyncGenerator[Endless]:
    async with Endless().listening() as listening:
        yield listening


async def test_little_is_taken_of_an_endless_receiver_and_of_an_endless_node(tmp_path: Path, endless: Endless) -> None:
    chains = tmp_path / "chains.toml"
    chains.write_text(f'[[chains]]\nid = 8453\nrpc_urls = ["{endless.url}"]\n')
    environment = {"MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_CHAINS_FILE": str(chains)}
    with Service(tmp_path / "data", environment=environment) as service:
        async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
            client.headers["x-auth-token"] = await log_in(client, Wallet())
            client.headers["x-operator-key"] = service.operator_key()
            id = ok(await client.post("/webhooks", json={"url": f"{endless.url}/hook"})).json()["webhook"]["id"]
            for path in (f"/webhooks/{id}/test", "/users/tokens"):
                method = "POST" if path.endswith("test") else "GET"
                asked = asyncio.create_task(client.request(method, path))
                while not asked.done():
                    assert ok(await client.get("/triggers")).json() == []
                answer = asked.result()
                if method == "POST":
                    assert ok(answer).json()["outcome"] == "unreachable"
                else:
                    assert answer.status_code in {200, 503}, answer.text
                async with asyncio.timeout(60):  # the end of a connection comes here when it comes
                    while not endless.taken:
                        await asyncio.sleep(0.01)
                assert max(endless.taken) < TAKEN_BYTES_MAX
                endless.taken.clear()
