"""The metrics of nodes and of the watcher: it is a process of its own, and the service answers for it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx2

import warm
from answers import ok
from chain import CHAIN_TESTS, LocalChain
from muniment.protocol.evm.address import Address
from scraped import Scraped
from service import START_SECONDS_MAX, Service
from watching_world import CHAIN_ID, chain, chains_file, settler

__all__ = ["chain", "settler"]  # the fixtures
pytestmark = CHAIN_TESTS

CHAIN = str(CHAIN_ID)


def watching(directory: Path, file: Path) -> warm.WarmProcess:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")},
        "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_LOG_LEVEL": "error",
    }  # fmt: skip
    words = ["intents", "watch", "--chains", str(file), "--data-dir", str(directory), "--interval", "0.1"]
    return warm.popen(words, environment, stdout=2)


def test_the_service_shows_how_far_the_watcher_is_and_how_its_nodes_answer(
    tmp_path: Path, chain: LocalChain, settler: Address
) -> None:
    dead = "http://127.0.0.1:9"  # nothing listens at discard
    file = chains_file(tmp_path, {CHAIN_ID: (settler, [dead, chain.url])})

    def scraped() -> Scraped:
        return Scraped(ok(httpx2.get(f"{service.url}/metrics")).text)

    def wait_until_followed(*, is_followed: bool) -> Scraped:
        deadline = time.monotonic() + START_SECONDS_MAX
        while ((found := scraped()).value("watcher_behind_blocks", chain=CHAIN) == 0) is not is_followed:
            assert time.monotonic() < deadline, found.lines
            time.sleep(0.2)
        return found

    with Service(tmp_path / "data") as service:
        watcher = watching(tmp_path / "data", file)
        try:
            found = wait_until_followed(is_followed=True)
        finally:
            watcher.kill()
            watcher.wait()
        answers = found.value("rpc_request_duration_seconds_count", chain=CHAIN) or 0
        assert answers > (found.value("rpc_errors_total", chain=CHAIN) or 0) >= 1
        assert found.labels("process_start_time_seconds", "worker") == {"serve-0", "watch-1"}
        gone = wait_until_followed(is_followed=False)
        assert gone.value("watcher_behind_blocks", chain=CHAIN) is None
        assert (gone.value("rpc_errors_total", chain=CHAIN) or 0) >= 1
