"""Programs for Node.js that the tests of a process ask again and again: each is started once."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

NODE: Final = shutil.which("node")
# Only ends a program that hangs.
_SECONDS_MAX: Final = 60


class NodeProgram:
    """A script that answers each line of its standard input by a line: both are JSON."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()

    def ask(self, given: Any) -> Any:
        """The answer; a program that ends instead says why on the standard error of this process."""
        with self._turn:
            process = self._started()
            assert process.stdin
            assert process.stdout
            end = threading.Timer(_SECONDS_MAX, process.kill)
            end.start()
            try:
                process.stdin.write(f"{json.dumps(given)}\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            finally:
                end.cancel()
        assert answer, f"{self._script.name} ended, or did not answer for {_SECONDS_MAX} s"
        return json.loads(answer)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [NODE or "node", str(self._script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                encoding="utf-8",
            )  # fmt: skip
            atexit.register(_end, self._process)
        return self._process


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()
