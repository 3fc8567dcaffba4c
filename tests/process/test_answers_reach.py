"""Clients that send all of a large body before they read: the refusal reaches them, also through a proxy."""

from __future__ import annotations

import http.client
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nginx import WAYS, reached
from service import Service

BODY = b'{"a":"' + b"a" * 20_000_000 + b'"}'
TRIES = 4
# Method, target, header fields, and what is answered to them.
REFUSED = [
    ("POST", "/users/nonce", {"content-type": "application/json"}, 413),
    ("POST", "/functions", {"content-type": "multipart/form-data; boundary=x"}, 401),
    ("POST", "/users/nonce", {"content-type": "application/json", "content-encoding": "gzip"}, 415),
    ("POST", "/users/nonce", {"content-type": "application/json", "x-long": "x" * 40_000}, 431),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("refusals") / "data") as started:
        yield started


@pytest.fixture(params=WAYS)
def url(request: pytest.FixtureRequest, service: Service, tmp_path: Path) -> Iterator[str]:
    with reached(service.url, request.param, tmp_path / "nginx") as found:
        yield found


@pytest.mark.parametrize(("method", "target", "fields", "status"), REFUSED, ids=lambda each: str(each)[:12])
def test_a_refusal_reaches_a_client_that_sends_everything_first(
    url: str, method: str, target: str, fields: dict[str, str], status: int
) -> None:
    seen: list[int] = []
    for _ in range(TRIES):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request(method, target, BODY, fields)
        answer = connection.getresponse()
        answer.read()
        seen.append(answer.status)
        connection.close()
    assert seen == [status] * TRIES


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_refusal_reaches_curl(url: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/json"]
    done = subprocess.run(
        [*command, "--data-binary", f"@{tmp_path / 'body'}", f"{url}/users/nonce"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"413")
