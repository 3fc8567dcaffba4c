"""A container of an image, as its engine runs it: the image's user, variables and commands, a read-only root, a network
of its own, no capability, and the program as process 1. bubblewrap makes it: engines need control groups, which not
every machine gives them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from programs import run

# What `docker run --read-only --cap-drop=ALL --security-opt=no-new-privileges --tmpfs=/tmp` does.
ISOLATION = (
    "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try", "--as-pid-1",
    "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",  # noqa: S108 - the container's
)  # fmt: skip
# bubblewrap keeps root's name; the program takes the image's user, and loses these rights, before it starts.
TO_CHANGE_USER = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


class Container:
    """A running container. `config` is the image's (OCI image specification, "config")."""

    def __init__(self, root: Path, data: Path, config: dict[str, Any]) -> None:
        self._config = config
        self._user, self._group = config["User"].split(":")
        rights = [word for name in TO_CHANGE_USER for word in ("--cap-add", name)]
        variables = [word for each in config["Env"] for word in ("--setenv", *each.split("=", 1))]
        change = [
            "setpriv", f"--reuid={self._user}", f"--regid={self._group}", "--clear-groups", "--bounding-set=-all",
            "--no-new-privs",
        ]  # fmt: skip
        reading, writing = os.pipe()
        self.process = subprocess.Popen(
            [
                "bwrap", "--ro-bind", root, "/", *ISOLATION, "--bind", data, "/data", "--clearenv", *variables,
                "--cap-drop", "ALL", *rights, "--info-fd", str(writing), "--", *change, *config["Cmd"],
            ],
            pass_fds=[writing],
        )  # fmt: skip
        os.close(writing)
        with os.fdopen(reading) as info:
            self.pid = int(json.loads(info.read())["child-pid"])

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as its user, to the end of the command."""
        user = (f"--setuid={self._user}", f"--setgid={self._group}")
        spaces = ("--mount", "--ipc", "--pid", "--net", "--uts")
        return run(
            Path("/usr/bin/nsenter"), f"--target={self.pid}", *spaces, *user, "--", "/usr/bin/env", "-i",
            *self._config["Env"], *words,
        )  # fmt: skip

    def stop(self) -> int:
        """Send the image's signal to process 1; the exit status."""
        os.kill(self.pid, signal.Signals[self._config["StopSignal"]])
        return self.process.wait(timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            # Not only bubblewrap: process 1 has changed its user since, and so does not die with it (prctl(2)).
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait(timeout=60)
