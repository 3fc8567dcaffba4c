"""nginx with the shipped locations in front of a service."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from programs import DEPLOY, installed

from ports import free_port

_LOCATIONS: Final = DEPLOY / "nginx" / "muniment.conf"


@contextmanager
def shipped_nginx(home: Path, service_url: str) -> Generator[str]:
    """The URL of nginx; its own files are in `home`."""
    port, locations = free_port(), _LOCATIONS.read_text()
    assert locations.count("http://127.0.0.1:8787;") == 2
    (home / "muniment.conf").write_text(locations.replace("http://127.0.0.1:8787", service_url))
    (home / "nginx.conf").write_text(_config(home, port))
    process = subprocess.Popen([installed("nginx"), "-p", home, "-c", home / "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _config(home: Path, port: int) -> str:
    user = "user root;" if os.geteuid() == 0 else ""
    folders = " ".join(
        f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "scgi", "uwsgi")
    )
    server = f"server {{ listen 127.0.0.1:{port}; include {home}/muniment.conf; }}"
    return (
        f"{user} daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;"
        f" events {{}} http {{ access_log off; {folders} {server} }}"
    )


def _wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
