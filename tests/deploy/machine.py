"""A Debian that runs under systemd beside this machine, with a network of its own that has the loopback alone."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Self

from debian import SHARED, make
from programs import ROOT

CLONE = "/srv/muniment"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Neither systemd nor D-Bus of this machine is asked: there may be none. The filter of nspawn lacks Landlock's calls,
# which a machine has.
_NSPAWN = (
    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit",
    "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
)  # fmt: skip


class Machine:
    """A machine in `folder`, with a clone of this repository. `with machine:` boots it, and turns it off."""

    def __init__(self, folder: Path) -> None:
        self.folder = make(folder, "systemd-sysv,dbus,ca-certificates")
        _clone(folder / CLONE.lstrip("/"))
        (folder / "etc/hosts").write_text("127.0.0.1 localhost\n", "utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._init = 0

    def prepare(self, commands: str) -> None:
        """Run commands before the machine is booted, with the network of this machine."""
        command = [
            *_NSPAWN, f"--directory={self.folder}", *(f"--bind-ro={path}" for path in SHARED),
            "--setenv=SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "--setenv=DEBIAN_FRONTEND=noninteractive",
            f"--chdir={CLONE}", "--pipe", "/bin/sh", "-e", "-c", commands,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]

    def run(self, commands: str, *, status: int = 0) -> str:
        """What commands write to standard output, in the clone, on the booted machine."""
        done = subprocess.run(
            [
                "nsenter", f"--target={self._init}", "--all", "env", "-i", _PATH, "HOME=/root",
                "sh", "-c", f"set -e; cd {CLONE}; {commands}",
            ],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def reach(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the network of the other."""
        return subprocess.run(
            ["nsenter", f"--target={self._init}", "--net", *command],
            capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environment},
        )  # fmt: skip

    def __enter__(self) -> Self:
        command = [*_NSPAWN, f"--directory={self.folder}", "--private-network", "--boot"]
        with (self.folder.parent / "console").open("wb") as console:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        try:
            self._wait_for_systemd()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_systemd(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline, (self.folder.parent / "console").read_text("utf-8", "replace")
            time.sleep(0.2)
            if not self._init:
                self._init = self._find_init()
                continue
            if self._state() == "running":
                return

    def _state(self) -> str:
        """What systemd says of itself: `starting`, `running`, or nothing before it listens."""
        command = ["nsenter", f"--target={self._init}", "--all", "systemctl", "is-system-running"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()

    def _find_init(self) -> int:
        """The machine's process 1, as this machine numbers it; 0 while it has not begun."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text("ascii").split()
        return int(children[0]) if children else 0

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()  # nspawn asks the machine to turn off
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=60)


def _clone(folder: Path) -> None:
    """A clone of this repository, with the changes that are not committed yet."""
    git = ("git", "-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run([*git, "clone", "--quiet", ROOT, folder], check=True)
    changes = subprocess.run([*git, "diff", "--binary", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    if changes:
        subprocess.run([*git, "apply"], cwd=folder, check=True, input=changes)
        subprocess.run([*git, "commit", "--quiet", "--all", "--message=changes"], cwd=folder, check=True)
