"""`muniment doctor` and `muniment ping` beside a service that runs, and after it has stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from service import Service


def muniment(service: Service, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    command = [sys.executable, "-m", "muniment", *words, "--data-dir", str(service.data_dir)]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_service_that_runs_is_found_in_order(service: Service) -> None:
    done = muniment(service, "doctor", "--json", "--url", service.url)
    found = {each["check"]: each for each in json.loads(done.stdout)["findings"]}
    for check in ("service", "TLS", "metrics", "body limit", "database", "rights", "secrets", "blocks"):
        assert found[check]["level"] == "ok", found[check]


@pytest.mark.parametrize(("option", "state"), [([], "ready"), (["--alive"], "alive")])
def test_a_ping_has_status_0_while_the_service_runs_and_1_after(
    service: Service, option: list[str], state: str
) -> None:
    done = muniment(service, "ping", "--url", service.url, *option)
    assert (done.returncode, done.stdout) == (0, f"{service.url} is {state}\n")
    service.stop()
    done = muniment(service, "ping", "--url", service.url, *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {service.url} does not answer: ")


def test_a_ping_without_a_url_asks_the_port_of_the_settings(service: Service) -> None:
    port = service.url.rpartition(":")[2]
    everywhere = "0.0.0.0"  # noqa: S104 - nothing listens there: the ping goes to the loopback address
    done = muniment(service, "ping", MUNIMENT_PORT=port, MUNIMENT_HOST=everywhere)
    assert (done.returncode, done.stdout) == (0, f"http://127.0.0.1:{port} is ready\n")
