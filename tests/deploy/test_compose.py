"""Dockerfile, Compose file and Caddyfile: each is read by the program that uses it."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest
import yaml
from programs import DEPLOY, packaged, run

from local_server import LocalServer
from ports import free_port

COMPOSE = DEPLOY / "compose" / "compose.yaml"
CADDYFILE = DEPLOY / "compose" / "Caddyfile"
SITE = {"SITE": "registry.example.org"}


def test_the_dockerfile_has_no_fault() -> None:
    done = run(packaged("hadolint"), "--failure-threshold", "info", DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_compose_takes_the_file() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", "--quiet", **SITE)
    assert (done.returncode, done.stderr) == (0, "")


def test_compose_asks_for_the_name_of_the_site() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", "--quiet")
    assert done.returncode != 0
    assert "SITE is missing a value: the name of the site" in done.stderr


def test_the_proxy_that_the_service_trusts_is_in_its_network() -> None:
    done = run(packaged("docker-compose"), "--file", COMPOSE, "config", **SITE)
    config = yaml.safe_load(done.stdout)
    trusted = config["services"]["muniment"]["environment"]["MUNIMENT_TRUSTED_PROXIES"]
    assert config["networks"]["front"]["ipam"]["config"] == [{"subnet": trusted}]
    assert [name for name, each in config["services"].items() if "front" in each["networks"]] == ["caddy", "muniment"]
    assert [name for name, each in config["services"].items() if "ports" in each] == ["caddy"]


class Recorder(BaseHTTPRequestHandler):
    """Answers everything with 200 and the request's path and X-Forwarded-For."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answer = f"{self.path} {self.headers['x-forwarded-for']}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        # As the service does, it reads the whole body first.
        while (size := int(self.rfile.readline(), 16)) > 0:
            self.rfile.read(size + 2)
        self.rfile.readline()
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Say nothing."""


@contextmanager
def recorder() -> Generator[int]:
    with LocalServer(("127.0.0.1", 0), Recorder) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Caddy with the shipped file, in front of a recorder. No certificate is asked for."""
    home = tmp_path_factory.mktemp("caddy")
    port = free_port()
    with recorder() as upstream:
        environment = {
            **os.environ, "HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_CONFIG_HOME": str(home),
            "SITE": f"http://127.0.0.1:{port}", "UPSTREAM": f"127.0.0.1:{upstream}",
            "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
        }  # fmt: skip
        command = [packaged("caddy"), "run", "--config", CADDYFILE, "--adapter", "caddyfile"]
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stderr=log)
        try:
            _wait_for(port, home / "log")
            yield port
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


def get(port: int, path: str, **fields: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in fields.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize("path", ["/metrics", "/metrics?a=b", "/METRICS", "/%6detrics", "//metrics", "/x/../metrics"])
def test_caddy_hides_metrics(proxy: int, path: str) -> None:
    assert get(proxy, path) == (404, "")


@pytest.mark.parametrize("path", ["/triggers?sort=1", "/readyz", "/ipfs/bafy?format=car"])
def test_caddy_passes_other_paths_on(proxy: int, path: str) -> None:
    status, text = get(proxy, path)
    assert (status, text.split()[0]) == (200, path)


def test_a_client_cannot_choose_its_address(proxy: int) -> None:
    assert get(proxy, "/", x_forwarded_for="203.0.113.9") == (200, "/ 127.0.0.1")


@pytest.mark.parametrize(("mebibytes", "status"), [(17, 200), (19, 413)])
def test_caddy_bounds_uploads_above_the_largest_function(proxy: int, mebibytes: int, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy, timeout=60)
    chunks = (b"\0" * 2**20 for _ in range(mebibytes))
    fields = {"transfer-encoding": "chunked"}
    with suppress(BrokenPipeError, ConnectionResetError):  # a refusal comes before the end of the body
        connection.request("POST", "/functions", body=chunks, encode_chunked=True, headers=fields)
    assert connection.getresponse().status == status
    connection.close()
