"""Clients that write until they are stopped, repeat each request until it is answered, and keep the answers.

On every engine, however often processes are killed, each acknowledged record must be found unchanged.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import httpx2

from answers import target_of
from builders import TriggerDraft, Wallet
from operator_client import HEX32, IntentDraft, hash_of_proposal, log, proposal

Json = dict[str, Any]
# How long clients wait for an answer: beyond every bound of the service, so that none gives up before it.
ANSWER_SECONDS_MAX = 60
# From a kill to the next acknowledged write. An attempt to connect that failed is repeated after two seconds at most;
# the rest is for a machine that is busy with other things.
RECOVERY_SECONDS_MAX = 60
CREATORS = 4
# Far beyond every year of the test, and of those who read it.
DEADLINE = 4_000_000_000


@dataclass
class Load:
    """Clients of the processes at `urls`: they create and deactivate triggers and, with an operator's key, intents."""

    urls: list[str]
    cid: str
    operator_key: str
    triggers: dict[str, Json] = field(default_factory=dict[str, Json])
    ended: set[str] = field(default_factory=set[str])
    intents: dict[str, Json] = field(default_factory=dict[str, Json])
    answered_at: list[float] = field(default_factory=list[float])
    refused: int = 0
    # After which statuses a request is repeated. A proxy answers 502 when a service ended during a write.
    statuses_again: frozenset[int] = frozenset({503})
    # The rest of a client after each answer.
    rest_seconds: float = 0.0
    longest: float = 0.0
    # A load beside another one, or after it, writes rows of its own.
    own: int = field(default_factory=lambda: secrets.randbits(64) << 32)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _turn: count[int] = field(default_factory=count)

    async def __aenter__(self) -> Self:
        # One connection for a request: no process is asked only because it was asked before.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.AsyncClient(timeout=ANSWER_SECONDS_MAX, limits=limits, trust_env=False)
        jobs = [self.create_on(Wallet(self.own + 1 + n)) for n in range(CREATORS)]
        jobs += [self.deactivate_on(Wallet(self.own)), self.write_intents(1), self.write_intents(2)]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()
        for end in ends:
            if not isinstance(end, asyncio.CancelledError):
                assert isinstance(end, BaseException)
                raise end

    async def ask(self, method: str, path: str, body: Json, status: int = 200) -> httpx2.Response:
        """Send a request to one process after the other until one answers; a 503 must have Retry-After."""
        headers = {"x-operator-key": self.operator_key}
        while True:
            url = self.urls[next(self._turn) % len(self.urls)]
            began = time.monotonic()
            try:
                response = await self._client.request(method, url + path, json=body, headers=headers)
            except (httpx2.NetworkError, httpx2.RemoteProtocolError):  # no timeout: the service always answers
                await asyncio.sleep(0.02)
                continue
            self.longest = max(self.longest, time.monotonic() - began)
            if response.status_code not in self.statuses_again:
                assert response.status_code == status, response.text
                self.answered_at.append(time.monotonic())
                await asyncio.sleep(self.rest_seconds)
                return response
            if response.status_code == 503:
                assert int(response.headers["retry-after"]) > 0
            self.refused += 1
            await asyncio.sleep(max(0.02, 4 * self.rest_seconds))

    async def create_on(self, wallet: Wallet) -> None:
        for number in count():
            await self.create(TriggerDraft(self.cid, wallet, version=f"{number}.0.0").signed())

    async def create(self, body: Json) -> None:
        self.triggers[body["sig"]] = (await self.ask("POST", "/triggers", body)).json()

    async def deactivate_on(self, wallet: Wallet) -> None:
        """Deactivate three triggers at a time, by two simultaneous requests that both name the second one."""
        for number in count():
            bodies = [TriggerDraft(self.cid, wallet, version=f"{number}.{n}.0").signed() for n in range(3)]
            await asyncio.gather(*(self.create(body) for body in bodies))
            sigs = [body["sig"] for body in bodies]
            await asyncio.gather(*(self.deactivate(wallet, listed) for listed in (sigs[:2], sigs[:0:-1])))

    async def deactivate(self, wallet: Wallet, sigs: list[str]) -> None:
        consent = {"triggerSigs": sigs, "signature": wallet.sign_deactivation(sigs)}
        await self.ask("POST", "/triggers/deactivate", consent, 204)
        self.ended.update(sigs)

    async def write_intents(self, writer: int) -> None:
        """Write intents, each with a log, a proposal and two moves of its status."""
        for number in count(self.own + (writer << 28)):
            draft = IntentDraft(number, deadline=DEADLINE)
            draft = draft.saying(logs=[log(0)])
            await self.ask("PUT", f"/intents/{draft.hash}", draft.body)
            acknowledged = self.intents[draft.hash] = {"logs": {"line 0"}, "proposals": set[str](), "status": "created"}
            await self.ask("POST", f"/intents/{draft.hash}/logs", log(1))
            acknowledged["logs"].add("line 1")
            body = proposal(number, deadline=str(DEADLINE))
            await self.ask("POST", f"/intents/{draft.hash}/proposals", body)
            acknowledged["proposals"].add(hash_of_proposal(draft.hash, body))
            for status, more in (("enqueued", {}), ("submitted", {"transactionHash": HEX32})):
                await self.ask("POST", f"/intents/{draft.hash}/status", {"status": status, **more})
                acknowledged["status"] = status

    async def recovery(self, since: float) -> float:
        """Wait for a write acknowledged after `since`; the time between."""
        await self.until(lambda: bool(self.answered_at) and self.answered_at[-1] > since)
        return next(at for at in reversed(self.answered_at) if at > since) - since

    async def until(self, holds: Callable[[], bool], seconds_max: float = RECOVERY_SECONDS_MAX) -> None:
        """Let the clients run until they have written enough; all of them must still run."""
        async with asyncio.timeout(seconds_max):
            while not holds():
                for task in self._tasks:
                    assert not task.done(), task.exception()
                await asyncio.sleep(0.005)

    def is_of_every_kind(self, triggers_min: int) -> bool:
        """Whether more than so many triggers were acknowledged, some were ended, and intents were written."""
        return len(self.triggers) > triggers_min and bool(self.ended) and bool(self.intents)

    async def check(self) -> None:
        """Read everything through every process; each acknowledged record must be unchanged."""
        for url in self.urls:
            async with httpx2.AsyncClient(base_url=url, timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
                await until_it_is_ready(client)  # another process may have been the one that was back first
            shown = {each["sig"]: each async for each in listed(url, "/triggers?limit=100&sort=1")}
            for sig, promised in self.triggers.items():
                known = dict(shown[sig])
                assert (known.pop("deactivateSig", None) is not None) or sig not in self.ended
                assert known == {name: each for name, each in promised.items() if name != "deactivateSig"}
            intents = {each["hash"]: each async for each in listed(url, "/intents?limit=100&sort=1")}
            order = ("created", "enqueued", "submitted")
            for name, acknowledged in self.intents.items():
                intent = intents[name]
                assert {each["data"] for each in intent["logs"]} >= acknowledged["logs"]
                assert {each["hash"] for each in intent["proposals"]} >= acknowledged["proposals"]
                assert order.index(intent["status"]) >= order.index(acknowledged["status"])


async def until_it_is_ready(client: httpx2.AsyncClient) -> float:
    """Wait until a process is ready; the time that it took."""
    began = time.monotonic()
    async with asyncio.timeout(RECOVERY_SECONDS_MAX):
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def listed(url: str, target: str) -> AsyncIterator[Json]:
    """All rows of a listing, along the `next` links; no row twice."""
    seen: set[str] = set()
    async with httpx2.AsyncClient(base_url=url, timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
        while True:
            response = await client.get(target)
            assert response.status_code == 200, response.text
            for each in response.json():
                name = each.get("sig") or each["hash"]
                assert name not in seen
                seen.add(name)
                yield each
            following = target_of(response)
            if not response.json() or following is None:
                return
            target = following


@asynccontextmanager
async def reading(url: str, target: str) -> AsyncGenerator[list[tuple[float, int, float]]]:
    """Read repeatedly during the block: start, status and duration of each request."""
    seen: list[tuple[float, int, float]] = []

    async def read_on() -> None:
        async with httpx2.AsyncClient(base_url=url, timeout=ANSWER_SECONDS_MAX, trust_env=False) as client:
            while True:
                began = time.monotonic()
                response = await client.get(target)
                if response.status_code == 503:
                    assert int(response.headers["retry-after"]) > 0
                seen.append((began, response.status_code, time.monotonic() - began))
                await asyncio.sleep(0.02)

    task = asyncio.create_task(read_on())
    try:
        yield seen
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
