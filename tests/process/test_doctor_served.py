"""`muniment doctor` and `muniment ping` beside a service that runs, and after it has stopped."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import warm
from answers import until_ready
from breaking import breaks
from builders import deploy
from muniment.service.running.limits.limiter import PROXY_NOTE
from service import Service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that the tests of this module only look at."""
    with Service(tmp_path_factory.mktemp("served") / "data") as started:
        yield started


def muniment(service: Service, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warm.run(*words, data=service.data_dir, environment=environment)


def once_ready(service: Service) -> str:
    """The URL of a service that is ready: one that stood still for two seconds and a half says that it is not."""
    with httpx2.Client(base_url=service.url, trust_env=False) as client:
        until_ready(client)  # and then for two seconds more
    return service.url


def test_a_service_that_runs_is_found_in_order(served: Service) -> None:
    done = muniment(served, "doctor", "--json", "--url", once_ready(served))
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    for check in ("service", "TLS", "metrics", "body limit", "database", "rights", "secrets", "blocks"):
        assert found[check]["level"] == "ok", found[check]


@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24"])
def test_a_proxy_that_is_not_trusted_is_found_while_the_service_runs(tmp_path: Path, trusted: str) -> None:
    def proxies() -> tuple[str, str]:
        done = muniment(service, "doctor", "--json", MUNIMENT_TRUSTED_PROXIES=trusted, MUNIMENT_PORT=port)
        (found,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "proxies"]
        return found["level"], found["message"]

    with Service(tmp_path / "data", environment={"MUNIMENT_TRUSTED_PROXIES": trusted}) as service:
        port = once_ready(service).rpartition(":")[2]
        assert proxies() == ("ok", trusted or "none")
        assert httpx2.get(f"{service.url}/functions", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 200
        while "notes" not in httpx2.get(f"{service.url}/readyz").json():  # which may be up to a second old
            time.sleep(0.1)
        assert proxies() == ("warn", PROXY_NOTE)


@pytest.mark.timed
@breaks("database", "blocks", "service")
def test_the_examination_ends_within_ten_seconds_whatever_hangs(service: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        hanging = {
            "MUNIMENT_DATABASE_URL": f"postgresql://me:hidden@{address}/x",
            "MUNIMENT_DATABASE_READ_URLS": f"postgresql://me:hidden@{address}/y",
        }
        _ends_in_time(service, f"http://me:hidden@{address}", **hanging)
        hanging = {
            "MUNIMENT_BLOCKS_URL": "s3://blocks/x", "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hidden", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        asyncio.run(_deployed(service))
        found = _ends_in_time(service, f"http://{address}", **hanging)
        assert found["blocks"] == "the block store does not answer: the S3 server is too slow"
        assert found["signature"] == "no trigger is registered"


def _ends_in_time(service: Service, url: str, **hanging: str) -> dict[str, str]:
    """The messages of the examination by their checks."""
    began = time.monotonic()
    # In an interpreter of its own: the forked ones wait longer for the checks.
    done = muniment(service, "doctor", "--json", "--url", url, PYTHONPATH="", **hanging)
    assert time.monotonic() - began < 12  # ten seconds, and two for other tests that run beside this one
    assert done.returncode == 2, done.stderr
    assert "hidden" not in done.stdout + done.stderr
    found = {each["check"]: each["message"] for each in json.loads(done.stdout)["findings"]}
    assert found["service"].startswith("it does not answer: ")
    assert {"libraries", "secrets", "fsync"} <= found.keys()
    return found


async def _deployed(service: Service) -> None:
    async with httpx2.AsyncClient(base_url=service.url) as client:
        await deploy(client)


@pytest.mark.parametrize(("option", "state"), [([], "ready"), (["--alive"], "alive")])
def test_a_ping_has_status_0_while_the_service_runs_and_1_after(
    service: Service, option: list[str], state: str
) -> None:
    done = muniment(service, "ping", "--url", once_ready(service), *option)
    assert (done.returncode, done.stdout) == (0, f"{service.url} is {state}\n")
    service.stop()
    done = muniment(service, "ping", "--url", service.url, *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {service.url} does not answer: ")


def test_a_ping_without_a_url_asks_the_port_of_the_settings(served: Service) -> None:
    port = once_ready(served).rpartition(":")[2]
    everywhere = "0.0.0.0"  # noqa: S104 - nothing listens there: the ping goes to the loopback address
    done = muniment(served, "ping", MUNIMENT_PORT=port, MUNIMENT_HOST=everywhere)
    assert (done.returncode, done.stdout) == (0, f"http://127.0.0.1:{port} is ready\n")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://a b", "the host of the URL has an invalid character"),
        ("http://127.0.0.1:1/a b", "the path of the URL has an invalid character"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://127.0.0.1:99999", "Port out of range 0-65535"),
        ("ftp://127.0.0.1", "a URL has the form http://host or https://host"),
    ],
)
def test_a_url_that_cannot_be_asked_is_one_line(served: Service, url: str, reason: str) -> None:
    url = url.replace(":1/", f":{served.url.rpartition(':')[2]}/")
    done = muniment(served, "ping", "--url", url)
    assert (done.returncode, done.stderr) == (1, f"Error: {reason}\n")
    done = muniment(served, "doctor", "--json", "--url", url)
    found = {each["check"]: each["message"] for each in json.loads(done.stdout)["findings"]}
    assert (done.returncode, found["service"]) == (2, f"it does not answer: {reason}")
