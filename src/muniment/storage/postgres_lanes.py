"""A few connections and what waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from muniment.storage.postgres_line import Line

G = TypeVar("G")


class Lanes(Generic[G]):
    """Serves groups of what waits, on as many connections as it was given.

    A connection takes a group in the next turn of the event loop, so what arrives in one turn travels together; then
    whatever has gathered, until nothing waits.
    """

    def __init__(
        self, lines: list[Line], next_group: Callable[[], G | None], serve: Callable[[Line, G], Awaitable[None]]
    ) -> None:
        """`next_group` takes what waits, None when nothing does; `serve` never raises."""
        self._lines = lines
        self._idle = list(lines)
        self._next_group = next_group
        self._serve = serve
        self._starting = False
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Something waits. One connection sets off for it at a time."""
        if self._idle and not self._starting:
            self._starting = True
            task = asyncio.get_running_loop().create_task(self._run(self._idle.pop()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, line: Line) -> None:
        self._starting = False
        try:
            while (group := self._next_group()) is not None:
                await self._serve(line, group)
        finally:
            self._idle.append(line)

    async def close(self) -> None:
        """Serve what waits, then close the connections."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for line in self._lines:
            await line.close()
