"""nginx with the shipped files in front of services."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nginx import find_nginx, needs_nginx
from ports import free_port

FILES: Final = Path(__file__).parents[2] / "deploy" / "nginx"
_ONE_SERVICE: Final = "  server 127.0.0.1:8787;\n"


@contextmanager
def shipped_nginx(home: Path, *urls: str) -> Generator[str]:
    """The URL of nginx in front of the services at `urls`; its own files are in `home`. Without nginx skip the test."""
    needs_nginx()
    port, upstream = free_port(), (FILES / "upstream.conf").read_text()
    assert upstream.count(_ONE_SERVICE) == 1
    servers = "".join(f"  server {url.removeprefix('http://')};\n" for url in urls)
    (home / "upstream.conf").write_text(upstream.replace(_ONE_SERVICE, servers))
    (home / "muniment.conf").write_text((FILES / "muniment.conf").read_text())
    (home / "nginx.conf").write_text(_config(home, port))
    command = [find_nginx() or "nginx", "-p", home, "-c", home / "nginx.conf"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
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
        f" events {{}} http {{ access_log off; {folders} include {home}/upstream.conf; {server} }}"
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
