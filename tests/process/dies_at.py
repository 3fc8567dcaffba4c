"""Runs `muniment` commands, each in a process that ends by SIGKILL at one of its steps towards the disk.

A line of standard input is `[step, words]`; the answer is a line with the status as `waitstatus_to_exitcode` gives it:
0 where the command was done before that step came.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from muniment.cli.main import main

STEPS = ("fsync", "link", "replace", "rmdir", "unlink")

for name in ("operate.backup", "operate.restore", "service.storage.sqlite.engine"):  # loaded once, for all commands
    import_module(f"muniment.{name}")
# What was written outlives SIGKILL, on the disk or not; waiting for the disk at every step would take minutes.
os.fsync = lambda descriptor: None  # noqa: ARG005 - it takes what the real one takes


def die_at(step: int) -> None:
    left = iter(range(step))

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def function(*arguments: Any, **named: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return function

    for name in STEPS:
        setattr(os, name, mortal(getattr(os, name)))


for line in sys.stdin:
    step, words = json.loads(line)
    if (child := os.fork()) == 0:
        os.dup2(2, 1)
        die_at(step)
        code: Any = 0
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        os._exit(code)  # to take the interpreter down takes longer than the command
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
