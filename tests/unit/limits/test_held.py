"""Bodies on their way take bounded memory."""

from __future__ import annotations

import pytest

from muniment.protocol.errors import Overloaded
from muniment.service.running.limits.overload import HeldBodies


def test_a_client_holds_its_part_and_all_hold_what_there_is() -> None:
    held = HeldBodies(bytes_max=100, client_bytes_max=40)
    held.add(["a"], 30)
    held.add(["a"], 10)
    with pytest.raises(Overloaded):
        held.add(["a"], 1)
    held.add(["b"], 40)
    with pytest.raises(Overloaded):
        held.add(["c"], 21)
    assert held.held_bytes == 80
    held.remove(["a"], 40)
    held.add(["c"], 40)
    held.remove(["b"], 40)
    held.remove(["c"], 40)
    assert held.held_bytes == 0
    held.add(["a"], 40)


def test_the_clients_of_one_site_hold_four_times_the_part_of_a_client() -> None:
    held = HeldBodies(bytes_max=1_000, client_bytes_max=40)
    for client in "abcd":
        held.add([client, "site"], 40)
    with pytest.raises(Overloaded):
        held.add(["e", "site"], 1)
    held.add(["f", "another site"], 40)
    held.remove(["a", "site"], 40)
    held.add(["e", "site"], 40)
    assert held.held_bytes == 200
