"""Programs of users are killed again and again: they go on where they were, and leave nothing out."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from facades_world import new_intent, signer

from muniment.client import Registry
from service import Service

PROGRAM = Path(__file__).parent / "dies.py"
INTENTS = 250
SECONDS_MAX = 120


@dataclass(frozen=True)
class Site:
    """A service, the key of an operator, and the intents of a user in their order."""

    url: str
    key: str
    user: str
    hashes: list[str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    user = signer().address
    with Service(tmp_path_factory.mktemp("killed") / "data") as service:
        key = service.operator_key()
        with Registry(service.url, operator_key=key) as registry:
            hashes = [str(registry.intents.put(new_intent(1 + n % 2, **user_of(n, user))).hash) for n in range(INTENTS)]
        yield Site(service.url, key, user, hashes)


def user_of(number: int, user: str) -> dict[str, str]:
    return {"feePayer": user} if number % 2 else {"user": user}


@contextmanager
def running(site: Site, mode: str, directory: Path) -> Generator[subprocess.Popen[bytes]]:
    """The program, until it is killed at the end of the block."""
    command = [sys.executable, str(PROGRAM), mode, site.url, site.key, site.user, str(directory)]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def killed_until(site: Site, mode: str, directory: Path, done: Callable[[], int]) -> int:
    """Kill the program at any time, until `done` counts all intents; how often."""
    chance, kills = random.Random(9), 0
    while done() < INTENTS:
        begun = done()
        steps = chance.randrange(1, 120)
        with running(site, mode, directory) as process:
            deadline = time.monotonic() + SECONDS_MAX
            while done() < min(begun + steps, INTENTS):
                assert process.poll() is None, "the program ended by itself"
                assert time.monotonic() < deadline
                time.sleep(0.005)
        kills += 1
    return kills


@pytest.mark.long
def test_a_follower_that_is_killed_handles_each_intent(site: Site, tmp_path: Path) -> None:
    handled = tmp_path / "handled"

    def lines() -> list[str]:
        return handled.read_text().splitlines() if handled.exists() else []

    kills = killed_until(site, "follow", tmp_path, lambda: len(set(lines()) & set(site.hashes)))
    assert kills >= 2
    whole = [line for line in lines() if line in set(site.hashes)]
    assert [*dict.fromkeys(whole)] == site.hashes, "the first time each, in order"
    assert len(whole) <= INTENTS + kills * 100, "after a kill, one page comes again"


@pytest.mark.long
def test_a_solver_that_is_killed_offers_once_for_each_intent(site: Site, tmp_path: Path) -> None:
    # It counts what is stored, and proves nothing, so that it counts often.
    with Registry(site.url, verify=False) as registry:

        def offered() -> int:
            return sum(1 for intent in registry.intents.list(user=site.user) if intent.proposals and intent.logs)

        kills = killed_until(site, "offer", tmp_path, offered)
        assert kills >= 1
        for intent in registry.intents.list(user=site.user):
            assert (len(intent.proposals), len(intent.logs)) == (1, 1)
