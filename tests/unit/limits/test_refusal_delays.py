"""How long refusals are delayed, and how many."""

from __future__ import annotations

import pytest

from each_row import each_row
from muniment.service.running.limits.overload import DelayedRefusals, delay_seconds


@each_row(
    ("wait_s", "chance", "seconds"),
    [(0.2, 0.0, 0.1), (0.2, 0.5, 0.2), (30, 0.0, 0.5), (30, 0.5, 1.0), (30, 0.999, 1.499)],
)
def test_a_refusal_is_delayed_for_at_most_a_second_and_a_half(wait_s: float, chance: float, seconds: float) -> None:
    assert delay_seconds(wait_s, lambda: chance) == pytest.approx(seconds)


def test_on_connections_of_a_proxy_a_client_has_eight_and_all_have_256() -> None:
    delayed = DelayedRefusals()
    entered = [delayed.enter("192.0.2.1", is_proxied=True, connections_max=1_000) for _ in range(600)]
    assert entered.count(True) == 8
    assert delayed.enter("192.0.2.2", is_proxied=True, connections_max=1_000)
    others = [delayed.enter(f"10.0.{n >> 8}.{n & 255}", is_proxied=True, connections_max=1_000) for n in range(600)]
    assert (others.count(True), delayed.count) == (247, 256)
    for _ in range(8):
        delayed.leave("192.0.2.1", is_proxied=True)
    assert delayed.enter("192.0.2.1", is_proxied=True, connections_max=1_000)


def test_elsewhere_a_quarter_of_the_connections_may_be_delayed() -> None:
    delayed = DelayedRefusals()
    entered = [delayed.enter("192.0.2.1", is_proxied=False, connections_max=400) for _ in range(400)]
    assert entered == [True] * 100 + [False] * 300
    delayed.leave("192.0.2.1", is_proxied=False)
    assert delayed.enter("192.0.2.1", is_proxied=False, connections_max=400)


def test_nothing_is_kept_of_clients_who_left() -> None:
    delayed = DelayedRefusals()
    for _ in range(3):
        assert delayed.enter("192.0.2.1", is_proxied=True, connections_max=1)
        delayed.leave("192.0.2.1", is_proxied=True)
    assert (delayed.count, dict(vars(delayed)["_proxied"])) == (0, {})
