"""The tasks in which requests are answered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine

if sys.version_info >= (3, 12):

    def begin(serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin to answer a request eagerly: most requests finish without waiting."""
        return asyncio.Task(serving, loop=asyncio.get_running_loop(), eager_start=True)

else:

    def begin(serving: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin to answer a request in the next turn of the event loop: Python 3.11 has no eager tasks."""
        return asyncio.Task(serving, loop=asyncio.get_running_loop())
