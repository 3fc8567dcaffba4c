"""What a watcher tells about itself: its readiness, and the metrics that alerts ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from muniment.operate.watch.follower import Step
from muniment.operate.watch.heartbeat import Heartbeat
from muniment.service.running.metrics.exposition import render
from muniment.service.running.metrics.recorder import Metrics
from scraped import Scraped


@dataclass
class Watched:
    """A heartbeat whose clock stands still."""

    monotonic: int = 1_000_000
    metrics: Metrics = field(default_factory=Metrics)

    def heartbeat(self, interval_s: float = 4) -> Heartbeat:
        clock = SimpleNamespace(monotonic_ms=lambda: self.monotonic, now_ms=lambda: 1_795_204_080_500)
        context: Any = SimpleNamespace(clock=clock, metrics=self.metrics)
        heartbeat = Heartbeat(context, interval_s)
        heartbeat.fault = ""
        return heartbeat

    def value(self, name: str, chain: str) -> float | None:
        return Scraped(render(self.metrics).decode()).value(name, chain=chain)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_watcher_is_ready_while_each_chain_is_read_and_names_those_that_are_not(watched: Watched) -> None:
    heartbeat = watched.heartbeat()
    for chain_id in (10, 137, 8453):
        heartbeat.begin(chain_id)
    watched.monotonic += 60_000
    assert heartbeat.trouble == ""
    heartbeat.beat(Step(137, next_block=9, head=8))
    watched.monotonic += 1
    assert heartbeat.trouble == "not read for a minute or more: chain 10, chain 8453"
    heartbeat.beat(Step(10, next_block=9, head=8))
    heartbeat.beat(Step(8453, next_block=9, head=8))
    assert heartbeat.trouble == ""


def test_a_watcher_that_asks_seldom_is_given_three_of_its_pauses(watched: Watched) -> None:
    heartbeat = watched.heartbeat(interval_s=600)
    heartbeat.begin(10)
    watched.monotonic += 1_800_000
    assert heartbeat.trouble == ""
    watched.monotonic += 1
    assert heartbeat.trouble


def test_a_watcher_that_cannot_ask_for_the_lease_says_why(watched: Watched) -> None:
    heartbeat = watched.heartbeat()
    heartbeat.fault = "the database does not answer"
    assert heartbeat.trouble == "the database does not answer"


def test_a_step_is_shown_with_its_time_until_another_process_follows_the_chain(watched: Watched) -> None:
    heartbeat = watched.heartbeat()
    heartbeat.begin(10)
    assert watched.value("watcher_behind_blocks", "10") is None
    for next_block, behind in ((5, 4), (9, 0), (12, 0)):  # a node may show a lower head than another
        heartbeat.beat(Step(10, next_block=next_block, head=8))
        assert watched.value("watcher_behind_blocks", "10") == behind
        assert watched.value("watcher_step_timestamp_seconds", "10") == 1_795_204_080.5
    heartbeat.end(10)
    assert watched.value("watcher_behind_blocks", "10") is None
    assert watched.value("watcher_step_timestamp_seconds", "10") is None
    watched.monotonic += 10**9
    assert heartbeat.trouble == ""
