"""Debian's nginx in front of a service: own files, own port, one process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from ports import free_port

_START_SECONDS_MAX = 60
# Long for a head or a body that a busy machine sends byte by byte; short between requests, so that tests end.
_CONFIG = """
{user}
daemon off;
master_process off;
pid {home}/pid;
error_log {home}/error.log error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  scgi_temp_path {home}/scgi;
  uwsgi_temp_path {home}/uwsgi;
  client_max_body_size 0;
  large_client_header_buffers 4 64k;
  client_header_timeout 40s;
  client_body_timeout 40s;
  keepalive_timeout 5s;
  upstream service {{ server {service}; keepalive 32; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location {at} {{
      proxy_pass http://service{stripped};
      proxy_http_version 1.1;
      proxy_request_buffering {buffering};
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
}}
"""


def needs_nginx() -> None:
    """Skip the test without nginx."""
    if find_nginx() is None:
        pytest.skip("nginx is not installed (Debian: apt-get install nginx-light)")


def find_nginx() -> str | None:
    """The program, if it is installed."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


# How a client reaches a service.
WAYS = ("direct", "nginx", "nginx without buffering")


@contextmanager
def reached(url: str, way: str, folder: Path) -> Generator[str]:
    """URL of the service at `url` for a client, by one of `WAYS`."""
    if way == "direct":
        yield url
        return
    with Nginx(folder, url, buffers_requests=way == "nginx") as proxy:
        yield proxy.url


class Nginx:
    """A reverse proxy for the service at `url`, which it serves under the path `at`; a context manager."""

    def __init__(self, folder: Path, url: str, *, buffers_requests: bool = True, at: str = "/") -> None:
        needs_nginx()
        self._home = folder
        folder.mkdir()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}{at.rstrip('/')}"
        config = _CONFIG.format(
            user="user root;" if os.geteuid() == 0 else "", home=folder, service=urlsplit(url).netloc, port=port,
            at=at, stripped="" if at == "/" else "/", buffering="on" if buffers_requests else "off",
        )  # fmt: skip
        (folder / "nginx.conf").write_text(config)

    def __enter__(self) -> Self:
        command = [find_nginx() or "nginx", "-p", str(self._home), "-c", str(self._home / "nginx.conf")]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        where = urlsplit(self.url)
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                socket.create_connection((where.hostname or "", where.port or 0)).close()
            except ConnectionError:
                assert time.monotonic() < deadline, (self._home / "error.log").read_text()
                assert self._process.poll() is None, (self._home / "error.log").read_text()
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=_START_SECONDS_MAX)
