"""Run turns of the integrator, each in a process of its own, which SIGKILL may end at one of its steps.

As a program: a line of standard input is a JSON object with the parameters of `Turns.take`; it prints the status
of each process as `waitstatus_to_exitcode` gives it: 0 where the turn was over before that step came.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from applications import wait_for_postgres
from limitless import unlimited_settings
from muniment.service.app import build_context
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.store import Overtaken
from muniment.service.storage.postgres import transaction as postgres_transaction
from muniment.service.storage.postgres.transaction import PostgresTransaction
from muniment.service.storage.sqlite.jobs import SqliteTransaction
from muniment.service.storage.sqlite.writer import Writer
from patience import wait_for_servers

KILLED: Final = -9
NEVER: Final = 1_000_000
# A file exists, and is empty, before `fdopen`; its content is whole from `fsync` on.
_FILE_STEPS: Final = ("fdopen", "fsync", "link", "replace", "unlink")


class Turns:
    """Processes that run turns."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def take(self, context: Context, steps: Sequence[int], *, count: int = 1) -> list[int]:
        """Let a process for each of `steps`, all at once, take `count` turns with the data of `context`.

        The result is the status of each; `KILLED` when its step came.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        settings = context.settings
        given = {
            "settings": {
                "data_dir": str(settings.data_dir), "database_url": settings.database_url,
                "tlog_name": settings.tlog_name, "tlog_key": settings.tlog_key, "log_level": "error",
            },
            "now_ms": context.clock.now_ms(), "steps": list(steps), "count": count,
        }  # fmt: skip
        print(json.dumps(given), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> str:
        """Standard error of all of them."""
        _, said = self._process.communicate(timeout=60)
        return said


def _die_at(step: int) -> None:
    """Kill this process before a step: a writing statement, either side of a commit, or a file."""
    left = iter(range(step))

    def maybe() -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any, **named: Any) -> Any:
            maybe()
            return real(*arguments, **named)

        return function

    for name in _FILE_STEPS:
        setattr(os, name, mortal(getattr(os, name)))
    for transaction in (SqliteTransaction, PostgresTransaction):
        transaction.execute = mortal(transaction.execute)
    commit, commit_there = Writer._make_durable, postgres_transaction._make_durable

    def commit_mortally(self: Writer) -> None:
        maybe()
        commit(self)
        maybe()

    async def commit_there_mortally(ending: Any) -> Any:
        maybe()
        answer = await commit_there(ending)
        maybe()
        return answer

    Writer._make_durable = commit_mortally
    postgres_transaction._make_durable = commit_there_mortally


async def _work(given: dict[str, Any]) -> None:
    settings = {**given["settings"], "data_dir": Path(given["settings"]["data_dir"])}
    context = build_context(unlimited_settings(**settings), now_ms=lambda: given["now_ms"])
    for _ in range(given["count"]):
        try:
            await Integrator(context).turn()
        except Overtaken:
            continue


def _child(given: dict[str, Any], step: int) -> int:
    """Start a process that takes the turns; its id."""
    if (child := os.fork()) != 0:
        return child
    try:
        _die_at(step)
        asyncio.run(_work(given))
    except BaseException:  # noqa: BLE001 - the status tells the parent
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _main() -> None:
    wait_for_servers()
    wait_for_postgres(pytest.MonkeyPatch())
    # What was written outlives SIGKILL, on the disk or not; waiting for the disk at every step would take minutes.
    os.fsync = lambda descriptor: None  # noqa: ARG005 - it takes what the real one takes
    for line in sys.stdin:
        given = json.loads(line)
        children = [_child(given, step) for step in given["steps"]]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    _main()
