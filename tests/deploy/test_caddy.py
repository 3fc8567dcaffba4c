"""Caddy with the shipped Caddyfile: in front of a recorder for single rules, and with TLS in front of the service."""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import httpx2
import pytest
from name_server import name_server
from programs import ROOT, run
from shipped_caddy import caddy

from answers import ok
from local_server import LocalServer
from mounts import needs_mounts
from ports import free_port
from service import Service

# The certificate of `localhost` is by Caddy's own authority. This machine does not learn to trust it, and its port 80
# is not taken.
OWN_AUTHORITY = "{\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"


class Recorder(BaseHTTPRequestHandler):
    """Answers everything with 200, the request's path and X-Forwarded-For, and where it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        answer = f"{self.path} {self.headers['x-forwarded-for']}".encode()
        self.send_response(200)
        self.send_header("x-asked", self.connection.getsockname()[0])
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        # As the service does, it reads the whole body first.
        while line := self.rfile.readline():  # nothing: the proxy has ended the connection
            if int(line, 16) == 0:
                self.rfile.readline()
                self.do_GET()
                break
            self.rfile.read(int(line, 16) + 2)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Closing(Recorder):
    """Keeps no connection, so that nothing is left of it when it has ended."""

    protocol_version = "HTTP/1.0"


@contextmanager
def recorder(address: str = "127.0.0.1", port: int = 0, kind: type[Recorder] = Recorder) -> Generator[int]:
    with LocalServer((address, port), kind) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Caddy in front of a recorder, without TLS."""
    port = free_port()
    home = tmp_path_factory.mktemp("caddy")
    with recorder() as upstream, caddy(home, f"http://127.0.0.1:{port}", port, f"127.0.0.1:{upstream}"):
        yield port


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of the service behind Caddy with TLS, and the certificate of Caddy's authority."""
    home, port = tmp_path_factory.mktemp("tls"), free_port()
    url = f"https://localhost:{port}"
    with (
        Service(home / "data", environment={"MUNIMENT_TRUSTED_PROXIES": "127.0.0.1"}) as service,
        caddy(home, url, port, service.url.removeprefix("http://"), OWN_AUTHORITY),
    ):
        yield url, _authority(home)


def _authority(home: Path) -> Path:
    """The certificate, when Caddy has made it."""
    path = home / "caddy/pki/authorities/local/root.crt"
    deadline = time.monotonic() + 30
    while not (home / "caddy/certificates/local/localhost/localhost.crt").exists():
        assert time.monotonic() < deadline, (home / "log").read_text("utf-8")
        time.sleep(0.05)
    return path


def test_a_client_does_its_work_through_tls(site: tuple[str, Path]) -> None:
    """It uploads 16 MiB, the largest module."""
    client = Path(__file__).with_name("one_client.py")
    done = run(Path(sys.executable), client, *site, PYTHONPATH=str(ROOT / "tests" / "support"))
    assert done.returncode == 0, done.stderr


def test_metrics_are_hidden_behind_tls(site: tuple[str, Path]) -> None:
    url, authority = site
    with httpx2.Client(base_url=url, verify=ssl.create_default_context(cafile=authority), trust_env=False) as client:
        assert [client.get(path).status_code for path in ("/readyz", "/metrics")] == [200, 404]


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
    with connection.getresponse() as response:
        assert response.status == status
    connection.close()


@needs_mounts
def test_caddy_asks_every_service_of_the_name_and_passes_over_one_that_is_gone(tmp_path: Path) -> None:
    hosts, port = [f"127.0.0.{number}" for number in (2, 3, 4)], free_port()
    upstream, url = free_port(), f"http://127.0.0.1:{port}"

    def asked(client: httpx2.Client, method: str) -> set[str]:
        bodies = [iter([b"x"]) if method == "POST" else None for _ in range(12)]
        answers = [ok(client.request(method, "/triggers", content=body)) for body in bodies]
        return {answer.headers["x-asked"] for answer in answers}

    with ExitStack() as stack:
        names = stack.enter_context(name_server(tmp_path, "muniment", hosts[:2]))
        gone = ExitStack()
        stack.enter_context(gone)
        gone.enter_context(recorder(hosts[0], upstream, Closing))
        for host in hosts[1:]:
            stack.enter_context(recorder(host, upstream))
        stack.enter_context(caddy(tmp_path, url, port, f"muniment:{upstream}", prefix=names.prefix))
        with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
            assert asked(client, "GET") == set(hosts[:2])
            gone.close()
            assert asked(client, "GET") == asked(client, "POST") == {hosts[1]}
            names.addresses["muniment"] = hosts[1:]
            deadline = time.monotonic() + 60
            while asked(client, "GET") != set(hosts[1:]):  # after five seconds Caddy asks for the name again
                assert time.monotonic() < deadline
