"""The endpoint of `muniment intents watch`: its health, and the metrics of nodes and of the watcher."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx2

import warm
from answers import ok
from chain import CHAIN_TESTS, SECONDS_MAX, LocalChain
from migrated import migrated_directory
from muniment.protocol.evm.address import Address
from ports import free_port
from scraped import Scraped
from watching_world import CHAIN_ID, chain, chains_file, settler

__all__ = ["chain", "settler"]  # the fixtures
pytestmark = CHAIN_TESTS

CHAIN = str(CHAIN_ID)


def watching(directory: Path, file: Path, *options: str) -> warm.WarmProcess:
    migrated_directory(directory)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
        "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true",
        "MUNIMENT_LOG_LEVEL": "error",
    }
    words = ["intents", "watch", "--chains", str(file), "--data-dir", str(directory), "--interval", "0.1"]
    return warm.popen([*words, *options], environment, stdout=2)


def answer(url: str) -> tuple[int, str]:
    try:
        found = httpx2.get(url)
    except httpx2.TransportError:  # it has not begun
        return 0, ""
    return found.status_code, found.text


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_watcher_shows_how_far_it_is_how_its_nodes_answer_and_whether_it_is_ready(
    tmp_path: Path, chain: LocalChain, settler: Address
) -> None:
    dead = "http://127.0.0.1:9"  # nothing listens at discard
    file, port = chains_file(tmp_path, {CHAIN_ID: (settler, [dead, chain.url])}), free_port()
    url = f"http://127.0.0.1:{port}"
    watcher = watching(tmp_path / "data", file, "--health", f"127.0.0.1:{port}")
    try:
        until(lambda: answer(f"{url}/readyz") == (200, "ok\n"))
        until(lambda: scraped(url).value("watcher_behind_blocks", chain=CHAIN) == 0)
        found = scraped(url)
    finally:
        watcher.kill()
        watcher.wait()
    answers = found.value("rpc_request_duration_seconds_count", chain=CHAIN) or 0
    assert answers > (found.value("rpc_errors_total", chain=CHAIN) or 0) >= 1
    assert 0 <= time.time() - (found.value("watcher_step_timestamp_seconds", chain=CHAIN) or 0) < SECONDS_MAX
    assert found.value("commit_duration_seconds_count") not in {None, 0}


def scraped(url: str) -> Scraped:
    return Scraped(ok(httpx2.get(f"{url}/metrics")).text)


def test_a_watcher_of_a_machine_that_has_one_takes_the_next_port_and_waits(
    tmp_path: Path, chain: LocalChain, settler: Address
) -> None:
    file, port = chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])}), free_port()
    watchers: list[warm.WarmProcess] = []
    try:
        for number in range(2):
            watchers.append(watching(tmp_path / "data", file, "--health", f"127.0.0.1:{port}"))
            until(lambda at=port + number: answer(f"http://127.0.0.1:{at}/readyz") == (200, "ok\n"))
        assert scraped(f"http://127.0.0.1:{port + 1}").value("watcher_behind_blocks", chain=CHAIN) is None
    finally:
        for each in watchers:
            each.kill()
            each.wait()


def test_a_watcher_without_an_endpoint_follows_too(tmp_path: Path, chain: LocalChain, settler: Address) -> None:
    file = chains_file(tmp_path, {CHAIN_ID: (settler, [chain.url])})
    for options in (["--health", "off", "--once"], ["--once"]):
        assert watching(tmp_path / "data", file, *options).wait(SECONDS_MAX) == 0
