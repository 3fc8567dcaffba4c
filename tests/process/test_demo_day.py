"""The demo as somebody starts it, twice on the same data: the day of sample data that it begins with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm
from answers import ok
from muniment.protocol.intents.lifecycle import INTENT_MOVES, PROPOSAL_MOVES
from ports import free_port

SECONDS_MAX = 300
WALKED = ["wallet", "login", "API key", "deploy", "preview", "signature", "trigger", "list", "deactivate", "list"]


def start(data: Path) -> warm.WarmProcess:
    environment = {
        **os.environ, "MUNIMENT_PUBLIC_URL": "https://registry.example.org",  # where it is not
        "PYTHONPATH": str(warm.UNHURRIED),  # for the service that it starts
    }  # fmt: skip
    words = ["demo", "--data-dir", str(data), "--port", str(free_port())]
    return warm.popen(words, environment, stderr=subprocess.PIPE)


@contextmanager
def demo(data: Path, stop: signal.Signals) -> Generator[tuple[str, str]]:
    """A demo on this data, until it is stopped: its URL, and what it said. It takes no record of yesterday for new."""
    process = start(data)
    assert process.stdout is not None
    try:
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, (said, process.communicate())
            said += line
        yield said.partition("listens on ")[2].split()[0], said
    finally:
        process.send_signal(stop)
        _, errors = process.communicate(SECONDS_MAX)
    assert process.returncode == 0
    # A slow machine may make records some seconds late, and say so.
    assert [late for late in re.findall(r"came late.*seconds=(\d+)", errors) if int(late) > SECONDS_MAX] == []


def steps_of(said: str) -> list[str]:
    return [line.split("  ")[1] for line in said.split("\n\n", maxsplit=1)[0].splitlines() if line.startswith("  ")]


def everything(url: str, path: str, **filters: Any) -> list[dict[str, Any]]:
    """All records of a listing, the oldest first: what is recorded meanwhile moves none."""
    found, asked = list[dict[str, Any]](), {**filters, "sort": 1, "limit": 100}
    while page := ok(httpx2.get(f"{url}{path}", params={**asked, "offset": len(found)})).json():
        found += page
    return found


def counted(url: str, before_ms: int) -> dict[str, Counter[Any]]:
    """What the registry has. The relayer of the demo adds runs and intents meanwhile, all later than `before_ms`."""
    intents = everything(url, "/intents", generation="all", createdBefore=before_ms)
    return {
        "functions": Counter(each["name"] for each in everything(url, "/functions")),
        "triggers": Counter(
            (each["config"]["type"], "deactivateSig" in each, 0 < each["endDate"] < before_ms)
            for each in everything(url, "/triggers")
        ),
        "intents": Counter((each["generation"], each["status"]) for each in intents),
        "proposals": Counter(proposal["status"] for each in intents for proposal in each["proposals"]),
        "logs": Counter(line["level"] for each in intents for line in each["logs"]),
        "runs": Counter(
            (each["relayer"], each["status"])
            for each in everything(url, "/executions") if each["createdAt"] < iso(before_ms)
        ),
    }  # fmt: skip


def iso(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000))


def wait_for_proof(url: str, sig: str) -> None:
    """Wait until the transparency log has the trigger, and with it all that was registered before."""
    until = time.monotonic() + SECONDS_MAX
    while httpx2.get(f"{url}/triggers/{sig}/proof").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.05)


def check_filled(counts: dict[str, Counter[Any]]) -> None:
    assert set(counts["intents"]) == set(product((1, 2), INTENT_MOVES))
    assert len(counts["functions"]) > 2
    kinds = {kind for kind, is_ended, is_past in counts["triggers"] if not (is_ended or is_past)}
    assert kinds == {0, 1, 2}
    assert any(is_ended for _, is_ended, _ in counts["triggers"])
    assert any(is_past for _, _, is_past in counts["triggers"])
    assert set(counts["proposals"]) == set(PROPOSAL_MOVES)
    assert {"info", "warning", "error"} <= set(counts["logs"])
    ((relayer, status),) = counts["runs"]
    assert (int(relayer, 16) != 0, status) == (True, "valid")  # an operator with an address


def test_a_demo_begins_with_a_day_of_sample_data_and_a_second_start_adds_nothing(tmp_path: Path) -> None:
    with demo(tmp_path / "data", signal.SIGINT) as (url, said):
        assert ok(httpx2.get(f"{url}/healthz"))
        assert steps_of(said) == [*WALKED, "left active"]
        assert "test accounts whose keys everybody knows" in said
        (newest, *_) = ok(httpx2.get(f"{url}/triggers?active=true")).json()
        assert (newest["config"]["schedule"], newest["description"]) == ("* * * * *", "Every minute, for a day")
        assert f"{url}/console/triggers/{newest['sig']}\n" in said
        assert said.index(f"{url}/console\n") < said.index(f"{url}/console/triggers/") < said.index("  wallet ")
        for path in ("console", "console/account", "console/find?q=x", "console/nothing", "docs", "errors/invalid-hex"):
            page = httpx2.get(f"{url}/{path}", headers={"accept": "text/html"}).text
            assert "Sample data, public wallets" in page, path
        # A log-in names this registry, and anybody can stop the trigger that is left.
        nonce = ok(httpx2.post(f"{url}/users/nonce", json={"address": newest["signer"]})).json()
        assert nonce["publicUrl"] == url
        before_ms = round(datetime.fromisoformat(newest["createdAt"]).timestamp() * 1000)
        first = counted(url, before_ms)
        check_filled(first)
        wait_for_proof(url, newest["sig"])
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/healthz")
    with demo(tmp_path / "data", signal.SIGTERM) as (url, said):
        assert steps_of(said) == ["left active"]
        assert f"{url}/console/triggers/{newest['sig']}\n" in said
        assert counted(url, before_ms) == first
        (command,) = re.findall(r"  (MUNIMENT_PRIVATE_KEY=.* triggers deactivate .*)", said)
        stopped = subprocess.run(
            ["sh", "-c", command], env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        assert "the trigger is deactivated" in stopped.stderr, stopped
        assert "deactivateSig" in ok(httpx2.get(f"{url}/triggers/{newest['sig']}")).json()


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def test_a_demo_that_was_stopped_while_it_filled_its_registry_fills_it_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    written = data / "sample-day" / "muniment.db-wal"
    moments: list[tuple[signal.Signals, Callable[[], object]]] = [
        (signal.SIGKILL, (data / "sample-day").exists),
        (signal.SIGINT, lambda: size_of(written) > 100_000),
        (signal.SIGKILL, lambda: size_of(written) > 1_000_000),
        (signal.SIGINT, (data / "blocks").exists),
        (signal.SIGKILL, lambda: (data / "blocks").exists() and size_of(data / "muniment.db-wal") > 500_000),
    ]
    for stop, is_moment in moments:
        process = start(data)
        # If the moment was missed, the demo is stopped later.
        while not (is_moment() or (data / "relayer").exists()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        os.killpg(process.pid, stop)  # as a terminal does at Ctrl-C
        _, errors = process.communicate(SECONDS_MAX)
        assert "Traceback" not in errors
    with demo(data, signal.SIGINT) as (url, _):
        (newest, *_) = ok(httpx2.get(f"{url}/triggers?active=true")).json()
        check_filled(counted(url, round(datetime.fromisoformat(newest["createdAt"]).timestamp() * 1000)))


def text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def test_a_demo_that_is_stopped_while_its_service_starts_says_so_and_ends(tmp_path: Path) -> None:
    process = start(tmp_path / "data")
    # The lock of the directory names the demo while it fills the registry, and then the service.
    while text_of(tmp_path / "data" / "serving") in ("", str(process.pid)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
    said, errors = process.communicate(SECONDS_MAX)
    assert (process.returncode, "Stopping." in said) == (0, True), errors
