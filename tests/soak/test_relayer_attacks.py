"""`make soak`: an honest event beside each attack on a relayer, as a table.

ATTACK_ROUNDS (7) says how often, ATTACKS which, by a regular expression.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from statistics import median

import pytest

from relayer_attacks import ATTACKS, NAMED_SECONDS_MAX, Attack, World, world

ROUNDS = int(os.environ.get("ATTACK_ROUNDS", "7"))
CHOSEN = re.compile(os.environ.get("ATTACKS", ""))
TIMES_AS_LATE_MAX = 3
# An event that has not run by then does not count as run.
SECONDS_MAX = 90


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_honest_event_runs_beside_an_attack(attack: Attack, tmp_path: Path) -> None:
    if not CHOSEN.search(attack.name):
        pytest.skip("this attack was not chosen")
    alone, beside, named = list[float](), list[float](), ""
    for number in range(ROUNDS):
        (tmp_path / f"{number}").mkdir()
        with world(tmp_path / f"{number}", attack.nodes, is_timed=True) as made:
            alone.append(made.seconds_to_run(made.add_honest(), SECONDS_MAX))
            attack.begin(made, attack.size)
            beside.append(made.seconds_to_run(made.add_honest(), SECONDS_MAX))
            if not number:
                named = _named(attack, made)
            made.check()
            assert not (attack.is_disputed and made.runs(made.others[0]))
    ratio = median(beside) / median(alone)
    print(
        f"\n{attack.name:34} alone {median(alone):5.1f} s, beside {median(beside):5.1f} s, {ratio:4.1f} times; {named}"
    )
    # While one of two nodes rests, reading waits.
    assert ratio < (float("inf") if attack.nodes == 2 else TIMES_AS_LATE_MAX), (alone, beside)
    assert named


def _named(attack: Attack, made: World) -> str:
    """What names the cause within a minute of the attack, which has begun already."""
    until = time.monotonic() + NAMED_SECONDS_MAX
    while not (line := made.site.names(attack.cause)) and time.monotonic() < until:
        time.sleep(1)
    return line[:160]
