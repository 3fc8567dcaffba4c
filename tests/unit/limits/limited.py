"""Shared by tests of rate limits: a clock that stands still, and a limiter."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from muniment.service.running.limits.limiter import Limiter
from muniment.service.running.limits.policies import parse_policies

SECOND_NS = 1_000_000_000
# Uptime of a machine, as `time.monotonic_ns` tells it on Linux.
UPTIME_NS = 3_600 * SECOND_NS


@dataclass
class Clock:
    """The injected monotonic time; a test moves it."""

    now_ns: int = UPTIME_NS

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS)


def make_limiter(clock: Clock, *, client: str = "100/10s", stop: str = "10/10s", exempt: str = "") -> Limiter:
    policies = parse_policies({"client": client, "login": "50/10s", "owner": "30/10s", "stop": stop})
    networks = [ip_network(exempt)] if exempt else []
    return Limiter(policies, clock, exempt=networks)
