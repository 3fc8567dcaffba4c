"""People change hooks, by the API and by commands, while events are delivered to them."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from delivering import ENGINES, Registry, delivering_at, until
from receiving import Received, Receiver, Reply, echo
from service import Service

OPERATOR = "tests"
Call: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else ""


@pytest.fixture
async def registry(database_url: str, tmp_path: Path) -> AsyncIterator[Registry]:
    async with delivering_at(database_url, tmp_path) as made:
        yield made


@pytest.fixture
async def call(registry: Registry) -> AsyncIterator[Call]:
    """Calls the API of a service that also delivers, as the operator to whom the hooks belong."""
    with Service(registry.data_dir, environment=registry.settings) as service:
        headers = {"x-operator-key": service.operator_key()}
        async with httpx2.AsyncClient(base_url=service.url, headers=headers) as client:

            async def called(method: str, path: str, body: object = None) -> dict[str, Any]:
                given: dict[str, Any] = {} if body is None else {"json": body}
                response = await client.request(method, path, **given)
                assert response.status_code == 200, response.text
                return response.json()

            yield called


class Taker:
    """A receiver that agrees and notes the ids of events; it waits for `gate` before it answers."""

    def __init__(self, receiver: Receiver) -> None:
        self.ids: list[str] = []
        self.gate = threading.Event()
        # Whether a request has come to the closed gate.
        self.is_waiting = threading.Event()
        self.gate.set()
        receiver.reply = self.reply

    def reply(self, received: Received) -> Reply:
        if received.event["type"].endswith("challenge"):
            return echo(received)
        time.sleep(0.002)
        if not self.gate.is_set():
            self.is_waiting.set()
        self.gate.wait(12)  # below the 15 seconds of a delivery
        self.ids.append(received.event["id"])
        return 204, {}, b""


@pytest.mark.long
async def test_a_change_while_events_are_delivered_repeats_none_and_a_replay_goes_back(
    registry: Registry, call: Call
) -> None:
    receiver = Receiver()
    taker = Taker(receiver)
    with receiver.listening():
        hook_id, _ = await registry.hook(receiver.url, operator=OPERATOR)
        path = f"/webhooks/{hook_id}"
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: call("POST", f"{path}/rotate"),
            lambda: registry.run("webhooks", "rotate", hook_id),
            lambda: call("PATCH", path, {"url": receiver.url, "batch": False}),
        ]
        await registry.add(500)
        ids = await registry.ids()
        for number, change in enumerate(changes, 1):
            await until(lambda number=number: len(taker.ids) >= 100 * number)
            await change()
        await until(lambda: len(taker.ids) >= 400)
        assert taker.ids == ids[: len(taker.ids)]

        # The stored cursor lies after a delivery that is on its way; a replay may begin there as anywhere else.
        taker.gate.clear()
        await registry.add(10)  # all the others may have been delivered during the changes
        ids = await registry.ids()
        await until(taker.is_waiting.is_set)
        place = (await call("GET", path))["cursor"]
        await call("POST", f"{path}/replay", {"cursor": place})
        await call("POST", f"{path}/rotate")
        taker.gate.set()
        later = ids.index(place) + 1
        await until(lambda: taker.ids[-1] == ids[-1] and ids[later] in taker.ids[later + 1 :])
    again = taker.ids.index(ids[later], later + 1)
    assert taker.ids[:again] == ids[:again]
    assert taker.ids[again:] == ids[later:]
