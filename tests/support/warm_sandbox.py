"""Sandboxes of this process whose launcher is forked, as `warm.py` forks commands: starting it takes half a second.

`tests/unit/guest` shows the launcher that Muniment starts, in an interpreter of its own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import warm
from muniment.guest import children

# Its name is for `warm_server.py`, which loads it before the first is forked.
_WORDS, _PROGRAM = ("launcher",), ("-c", "from muniment.guest.launcher import main\nmain(0)")


class _Launcher:
    """The used part of `asyncio.subprocess.Process`."""

    def __init__(self, process: warm.WarmProcess) -> None:
        self._process = process

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait)

    def kill(self) -> None:
        self._process.kill()


async def _launched(descriptor: int) -> _Launcher:
    with Path(os.devnull).open("wb") as nothing:
        output = nothing.fileno()
        return _Launcher(warm.popen(_WORDS, {}, _PROGRAM, stdin=descriptor, stdout=output, stderr=output))


@pytest.fixture
def warm_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sandboxes that this process opens have a forked launcher."""
    if hasattr(os, "pidfd_open"):
        monkeypatch.setattr(children, "_launched", _launched)
