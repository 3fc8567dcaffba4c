"""Deliveries to a receiver in JavaScript, which verifies them with npm's standardwebhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from javascript import HERE, NODE_TESTS

from delivering import ENGINES, Registry, delivering

pytestmark = [*NODE_TESTS, pytest.mark.long]

SECONDS_MAX = 60.0
EVENTS = 40


@pytest.fixture(params=ENGINES)
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering(request.param, tmp_path) as made:
        yield made


class Receiver:
    """The process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout
        return (await asyncio.wait_for(self._process.stdout.readline(), SECONDS_MAX)).decode().strip()

    async def take_secret(self, secret: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{secret}\n".encode())
        assert await self.line() == "ready"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    process = await asyncio.create_subprocess_exec(
        "node", str(HERE / "receiver.mjs"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    yield Receiver(process)
    process.kill()
    await process.wait()


async def test_each_event_is_verified_with_the_secret_of_either_generation(
    registry: Registry, receiver: Receiver
) -> None:
    port = await receiver.line()
    hook_id, secret = await registry.hook(f"http://127.0.0.1:{port}/hook")
    await receiver.take_secret(secret)
    registry.deliver()
    await registry.add(EVENTS)
    assert [await receiver.line() for _ in range(EVENTS)] == await registry.ids()
    async with asyncio.timeout(60):  # a change by a person lets deliveries that are not stored come again
        while (await registry.shown(hook_id))[0].cursor != (await registry.ids())[-1]:
            await asyncio.sleep(0.05)
    rotated = (await registry.run("webhooks", "rotate", hook_id)).split()
    (new,) = [word for word in rotated if word.startswith("whsec_")]
    await asyncio.sleep(5)  # the deliverer knows of the change: it looks each second
    await registry.add(2)  # the secret before signs too
    assert [await receiver.line() for _ in range(2)] == (await registry.ids())[EVENTS:]
    await receiver.take_secret(new)
    await registry.add(2)
    assert [await receiver.line() for _ in range(2)] == (await registry.ids())[EVENTS + 2 :]
    await receiver.take_secret("whsec_" + "A" * 43 + "=")
    await registry.add(1)
    assert (await receiver.line()).startswith("refused: ")
