"""A relayer beside strangers and nodes that attack it: an honest event runs in its turn, and no invented one ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from relayer_attacks import ATTACKS, NAMED_SECONDS_MAX, Attack, world
from relayer_site import SECONDS_MAX

pytestmark = pytest.mark.long
# The others take long; `make soak` has them, with how many times later an event runs.
SHORT = [
    each
    for each in ATTACKS
    if each.name
    in {
        "200 triggers on a busy contract", "2 nodes, one invents with receipts", "2 nodes, one omits",
        "3 nodes, one rests",
    }
]  # fmt: skip


@pytest.mark.parametrize("attack", SHORT, ids=lambda attack: attack.name)
def test_an_honest_event_runs_before_most_events_of_an_attack(attack: Attack, tmp_path: Path) -> None:
    with world(tmp_path, attack.nodes, has_silent=False) as made:
        attack.begin(made, attack.short)
        assert made.seconds_to_run(made.add_honest(), SECONDS_MAX) < float("inf"), made.site.log()[-5_000:]
        if made.events:
            runs = sum(len(made.site.runs(sig)) for sig in made.others)
            assert 4 * runs <= max(made.events, 400)
        if attack.short == attack.size:  # a smaller one may be within all limits
            made.site.wait_until(lambda: made.site.names(attack.cause), "nothing names the cause", NAMED_SECONDS_MAX)
        made.check()
        assert not (attack.is_disputed and made.runs(made.others[0]))
