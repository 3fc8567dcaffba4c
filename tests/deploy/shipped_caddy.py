"""Caddy with the shipped Caddyfile."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from programs import DEPLOY, packaged

from ports import free_port

CADDYFILE = DEPLOY / "compose" / "Caddyfile"


@contextmanager
def caddy(
    home: Path, site: str, port: int, upstream: str, options: str = "", *, prefix: Sequence[str | Path] = ()
) -> Generator[None]:
    """Caddy with the shipped file, after `options`; its own files are in `home`. `prefix` is before the command."""
    (home / "Caddyfile").write_text(options + CADDYFILE.read_text("utf-8"), "utf-8")
    environment = {
        **os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home),
        "SITE": site, "UPSTREAM": upstream.replace(":", " "), "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
    }  # fmt: skip
    command = [*prefix, packaged("caddy"), "run", "--config", home / "Caddyfile", "--adapter", "caddyfile"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    try:
        _wait_for(port, home / "log")
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for(port: int, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return
