"""The journal of a relayer that is killed at any step: every run is published, always with the same bytes."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import warm

WRITER = Path(__file__).with_name("journal_writer.py")
# In a long run; `make soak` kills it a hundred times.
KILLS = int(os.environ.get("SOAK_ROUNDS", "30"))


def killed_until_done(directory: Path, *, kills: int, ticks: int, seed: int) -> dict[int, set[str]]:
    """What was published for each tick, after `kills` kills at random steps and a last start that ends by itself."""
    dice, published = random.Random(seed), directory / "published"
    program, words = (str(WRITER),), (str(directory / "relayer.db"), str(published), str(ticks))
    for _ in range(kills):
        process = warm.popen(words, os.environ, program)
        assert process.stdout is not None
        process.stdout.read(dice.randint(1, 12))
        process.kill()
        process.communicate()
    assert warm.run(*words, program=program).returncode == 0
    found: dict[int, set[str]] = {}
    for line in published.read_text().splitlines():
        tick, body = line.split()
        found.setdefault(int(tick), set()).add(body)
    return found


def check(found: dict[int, set[str]], ticks: int) -> None:
    assert sorted(found) == [*range(1, ticks + 1)]
    assert {tick: bodies for tick, bodies in found.items() if len(bodies) != 1} == {}


def test_every_run_is_published_once_after_five_kills(tmp_path: Path) -> None:
    check(killed_until_done(tmp_path, kills=5, ticks=20, seed=1), 20)


@pytest.mark.long
def test_every_run_is_published_once_after_many_kills(tmp_path: Path) -> None:
    check(killed_until_done(tmp_path, kills=KILLS, ticks=3 * KILLS, seed=2), 3 * KILLS)
