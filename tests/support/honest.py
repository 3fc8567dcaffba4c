"""Honest clients during an attack: they read, write, deactivate and follow the feed, and measure."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from answers import target_of
from attacked import INPUTS
from builders import TriggerDraft, Wallet
from event_stream import EventStream
from receiving import Received, Receiver, Reply, echo
from service import Service

ANSWER_SECONDS_MAX = 60
# Of the events of an attack, after its end: what has not come by then is missed.
LATE_SECONDS_MAX = 5
# A stream begins so many events before the newest.
BEHIND = 5_000

# The type of an event of a trigger, and the trigger.
Seen = tuple[str, str]


@dataclass
class Felt:
    """Measurements of honest clients, and resources of the service."""

    reads: list[float] = field(default_factory=list[float])
    refused: int = 0
    written: list[str] = field(default_factory=list[str])
    ended: list[str] = field(default_factory=list[str])
    not_ended: int = 0
    lost: int = 0
    gone: int = 0
    at: dict[Seen, float] = field(default_factory=dict[Seen, float])
    polled: set[Seen] = field(default_factory=set[Seen])
    delivered: dict[Seen, float] = field(default_factory=dict[Seen, float])
    stream_s: float = float("inf")
    mib: float = 0.0
    descriptors: int = 0
    answered: str = ""

    def millis(self, share: float) -> float:
        times = sorted(self.reads) or [float("inf")]
        return 1_000 * times[int(len(times) * share)]

    def note(self, kind: str, sig: str) -> None:
        """Note an acknowledged write."""
        (self.written if kind == "created" else self.ended).append(sig)
        self.at[f"muniment.trigger.{kind}", sig] = time.time()

    @property
    def not_polled(self) -> int:
        return len(self.at.keys() - self.polled)

    @property
    def not_delivered(self) -> int:
        return len(self.at.keys() - self.delivered.keys())

    @property
    def delivery_s(self) -> float:
        """Delivery time of the last event."""
        return max((at - self.at[each] for each, at in self.delivered.items() if each in self.at), default=0)

    def row(self, attack: str, quiet: Felt) -> str:
        p99 = self.millis(0.99)
        return (
            f"| {attack} | {len(self.reads):,} | {self.millis(0.5):.1f} | {p99:.1f} | {p99 / quiet.millis(0.99):.1f} "
            f"| {self.refused} | {len(self.written)} | {self.lost} | {len(self.ended)} | {self.not_ended} "
            f"| {self.gone} | {self.not_polled} | {self.not_delivered} | {self.delivery_s:.1f} | {self.stream_s:.1f} "
            f"| {self.mib:.0f} | {self.descriptors:,} | {self.answered} |"
        )


_COLUMNS = (
    "beside", "reads", "p50, ms", "p99, ms", "p99 / quiet", "refused", "writes", "lost", "deactivated",
    "not deactivated", "410", "events not polled", "not delivered", "slowest delivery, s",
    f"stream of {BEHIND:,}, s", "MiB at most", "descriptors at most", "the attacker was answered",
)  # fmt: skip
HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|"


class Honest:
    """Honest clients of a service, at 127.0.0.1, during one attack. Their triggers are of a new wallet."""

    def __init__(self, service: Service, operator_key: str, cid: str, sig: str, begin: str) -> None:
        """`sig` is the trigger to read; `begin` is the position from which the stream is read."""
        self.felt = Felt()
        self._service = service
        self._operator = {"x-operator-key": operator_key}
        self._cid, self._sig, self._begin = cid, sig, begin
        self._wallet = Wallet(secrets.randbits(64))
        self._events = ""
        self._to_end: list[str] = []

    async def prepare(self, seconds: float) -> None:
        """Note the end of the feed, and add a trigger for each second, to be deactivated then."""
        async with self._client() as client:
            first = await client.get("/events", params={"owner": self._wallet.address, "limit": 500})
            self._events = target_of(first) or ""
            for number in range(int(seconds) + 1):
                assert await self._create(client, f"1.0.{number}")
        self._to_end = list(self.felt.written)

    async def felt_beside(self, attackers: Sequence[asyncio.subprocess.Process], seconds: float) -> Felt:
        """Run for so long, until the attackers have ended; the measurements."""
        each = (self._read, self._write, self._poll, self._follow, self._list, self._weigh)
        tasks = [asyncio.create_task(go_on()) for go_on in each]
        ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            task.result()
        answered = [(await attacker.communicate())[0].decode().strip() for attacker in attackers]
        self.felt.answered = "; ".join(answered)
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            until = time.monotonic() + LATE_SECONDS_MAX
            while (self.felt.not_polled or self.felt.not_delivered) and time.monotonic() < until:
                await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with self._client() as client:
            for written in self.felt.written:
                while (status := (await client.get(f"/triggers/{written}")).status_code) == 503:
                    await asyncio.sleep(0.1)  # right after an attack
                self.felt.lost += status != 200
        return self.felt

    @contextmanager
    def hooked(self) -> Generator[None]:
        """Add a webhook of an operator for the events of this wallet."""
        receiver = Receiver()
        receiver.reply = self._take
        with receiver.listening(), httpx2.Client(base_url=self._service.url, headers=self._operator) as client:
            hook = {"url": receiver.url, "filters": {"owner": [self._wallet.address]}}
            path = f"/webhooks/{client.post('/webhooks', json=hook).json()['webhook']['id']}"
            until = time.monotonic() + ANSWER_SECONDS_MAX
            while (tested := client.post(f"{path}/test").json())["status"] != "active":
                assert time.monotonic() < until, tested  # right after an attack the service may be overloaded
                time.sleep(1)
            yield
            client.delete(path)

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self._service.url, timeout=ANSWER_SECONDS_MAX, trust_env=False)

    def _take(self, received: Received) -> Reply:
        event = received.event
        if event["type"].endswith("challenge"):
            return echo(received)
        self.felt.delivered.setdefault((event["type"], event["subject"]), time.time())
        return 204, {}, b""

    async def _read(self) -> None:
        """Read a trigger by its signature fifty times a second; a slow answer does not shift later requests."""
        async with self._client() as client:
            while True:
                began = time.monotonic()
                try:
                    status = (await client.get(f"/triggers/{self._sig}")).status_code
                except httpx2.TransportError:
                    status = 0
                if status == 200:
                    self.felt.reads.append(time.monotonic() - began)
                else:
                    self.felt.refused += 1
                await asyncio.sleep(max(0.0, began + 0.02 - time.monotonic()))

    async def _write(self) -> None:
        """Create a trigger five times a second, and deactivate an older one each second."""
        async with self._client() as client:
            for number in count():
                await self._create(client, f"2.0.{number}")
                if number % 5 == 0 and self._to_end:
                    await self._end(client, self._to_end.pop())
                await asyncio.sleep(0.2)

    async def _create(self, client: httpx2.AsyncClient, version: str) -> bool:
        draft = TriggerDraft(self._cid, self._wallet, INPUTS, version=version, input={"note": "short"})
        body = draft.signed()
        if is_done := await self._is_done(client, "/triggers", body):
            self.felt.note("created", body["sig"])
        return is_done

    async def _end(self, client: httpx2.AsyncClient, sig: str) -> None:
        body = {"triggerSigs": [sig], "signature": self._wallet.sign_deactivation([sig])}
        if await self._is_done(client, "/triggers/deactivate", body):
            self.felt.note("deactivated", sig)
        else:
            self.felt.not_ended += 1

    async def _is_done(self, client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> bool:
        try:
            return (await client.post(path, json=body)).is_success
        except httpx2.TransportError:
            return False

    async def _poll(self) -> None:
        """Read the events of the wallet, page after page."""
        await self._pages(self._events)

    async def _list(self) -> None:
        """Read the new triggers of the wallet, page after page."""
        await self._pages(f"/triggers?sort=1&signer={self._wallet.address}")

    async def _pages(self, target: str) -> None:
        async with self._client() as client:
            while True:
                try:
                    answer = await client.get(target)
                except httpx2.TransportError:
                    self.felt.refused += 1
                    continue
                self.felt.gone += answer.status_code == 410
                if answer.status_code == 200:
                    if target.startswith("/events"):
                        self.felt.polled |= {(each["type"], each["subject"]) for each in answer.json()}
                    target = target_of(answer) or target
                await asyncio.sleep(0.1)

    async def _follow(self) -> None:
        """Follow a stream from an old position; measure the delay of its events."""
        began, seen, last = time.monotonic(), 0, self._begin
        while seen < BEHIND:
            with suppress(OSError, EOFError, TimeoutError):
                stream = await EventStream.open(self._service.url, after=last)
                try:
                    while stream.status == 200 and seen < BEHIND:
                        block = await stream.block()
                        seen, last = seen + (block.data is not None), block.id or last
                finally:
                    await stream.close()
        self.felt.stream_s = time.monotonic() - began
        await asyncio.Event().wait()

    async def _weigh(self) -> None:
        """Measure the memory and the open descriptors of the process (proc(5))."""
        folder, felt = Path(f"/proc/{self._service.pid}"), self.felt
        while True:
            pages = int((folder / "statm").read_text().split()[1])
            felt.mib = max(felt.mib, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
            felt.descriptors = max(felt.descriptors, len(list((folder / "fd").iterdir())))
            await asyncio.sleep(0.2)
