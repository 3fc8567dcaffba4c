"""Writes of an operator, many side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from muniment.client.flows import intents
from muniment.client.steps import Flow
from muniment.protocol.intents.hashes import intent_hash

if TYPE_CHECKING:
    from types import TracebackType

    from muniment.client.drivers import Awaiting
    from muniment.client.flows.intents import GivenIntent, GivenProposal
    from muniment.client.flows.session import Session
    from muniment.protocol.intents.types import LogLevel

Write = Callable[[], Flow[object]]


class Writer:
    """Sends writes to intents: in order for each intent, concurrently for different intents.

    Each method returns when the write is queued, and waits while `waiting_max` writes are queued. `flush` raises
    the failures. A queue is in memory: store a cursor only after `flush`.
    """

    def __init__(self, driver: Awaiting, session: Session, *, concurrency: int, waiting_max: int) -> None:
        """Write through `driver`, with up to `concurrency` requests at the same time."""
        self._driver = driver
        self._session = session
        self._sending = asyncio.Semaphore(concurrency)
        self._places = asyncio.Semaphore(waiting_max)
        self._queues: dict[str, deque[tuple[str, Write]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: list[Exception] = []

    async def put(self, intent: GivenIntent) -> None:
        """Queue a new intent, or one of these members. Raises the `Invalid` of the member that is wrong."""
        new = intents.new_intent(intent)
        hash_ = "0x" + intent_hash(new).hex()
        await self._add(hash_, "intent", lambda: intents.put(self._session, new))

    async def propose(self, hash: str, offer: GivenProposal) -> None:
        """Queue a proposal to an intent, or one of these members. Raises the `Invalid` of the member that is wrong."""
        new = intents.new_proposal(offer)
        await self._add(hash, "proposal to", lambda: intents.propose(self._session, hash, new))

    async def log(self, hash: str, level: LogLevel, data: str, *, id: str | None = None) -> None:
        """Queue a line for the log of an intent."""
        await self._add(hash, "line for", lambda: intents.log(self._session, hash, intents.new_line(level, data, id)))

    async def move(
        self, hash: str, status: str, *, proposal: str | None = None, transaction_hash: str | None = None
    ) -> None:
        """Queue a move of an intent, or of a proposal to it."""
        await self._add(hash, "move of", lambda: intents.move(
            self._session, hash, intents.new_change(status, proposal, transaction_hash)
        ))  # fmt: skip

    async def flush(self) -> None:
        """Wait until every queued write is answered.

        Raises an `ExceptionGroup` of the writes that failed since the last flush; a note of each names its intent.
        """
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        errors, self._errors = self._errors, []
        if errors:
            raise ExceptionGroup("writes failed", errors)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Flush; after an error of the block, drop the writes that have not begun."""
        if error is None:
            await self.flush()
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _add(self, hash_: str, what: str, write: Write) -> None:
        await self._places.acquire()
        queue = self._queues.get(hash_.lower())
        if queue is not None:
            queue.append((what, write))
            return
        self._queues[hash_.lower()] = deque([(what, write)])
        task = asyncio.create_task(self._run(hash_.lower()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, hash_: str) -> None:
        queue = self._queues[hash_]
        try:
            while queue:
                what, write = queue[0]
                try:
                    async with self._sending:
                        await self._driver.run(write())
                except Exception as error:  # noqa: BLE001 - `flush` raises it
                    error.add_note(f"{what} {hash_}")
                    self._errors.append(error)
                queue.popleft()
                self._places.release()
        finally:
            del self._queues[hash_]
            for _ in queue:
                self._places.release()
