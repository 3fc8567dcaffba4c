"""What strangers can do to others, with the limits that hold by default: a flood, a surge, greed, no descriptors left.

Also alone, one bar or several, six seconds for each part: `overload.py flood surge half_load greedy`.

Addresses of 127.0.0.0/8 stand for clients of their own. Each bar has a service of its own, and ends after some seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import descriptors
from ours import NO_LIMITS, register
from ratios import Ratios
from samples import SIGNERS, consent, signed_triggers
from scale import Scale
from server import HERE, post
from stage import Stage, aside, millis, percentile, serving, together
from strangers import Plan, Seen

FLOOD_P50, FLOOD_P99 = (f"a good client beside a flood / without it, {name}" for name in ("p50", "p99"))
FIRST_P99, FIRST_LAST = (f"first answers of 900 new connections, {name}, ms" for name in ("p99", "last"))
FIRST_MISSING = "900 new connections: without an answer"
HALF_LOAD = "GET /triggers/{sig} beside half load, p99, ms"
GOODPUT = "creates of 320 greedy connections / of 32, by the clock"
ACCEPTED_P99 = "accepted creates of 320 greedy connections / of 32, p99"
STOPPED_P99 = "deactivations beside 320 greedy connections / beside 32, p99"
LOST = "greedy creates: acknowledged writes lost"
DESCRIPTORS = "descriptors used up: what fails"

_GOOD, _GOOD_PER_SECOND, _GOOD_CONNECTIONS = "127.0.0.3", 500, 16
_FLOOD, _FLOOD_CONNECTIONS = "127.0.0.2", 320
# Until it has used up the burst that each client may have, a flood is served like anybody: it floods so many times
# as long beforehand, until something is refused; in the first second of the measured one it uses up what came back.
_BURSTS_MAX, _BURST_SECONDS, _SETTLING_SECONDS = 10, 2, 1
_SURGE_CONNECTIONS = 900
_PROBES_PER_SECOND = 200
_GREEDY = [f"127.0.2.{number}" for number in range(1, 17)]
_FEW, _MANY = 32, 320
_CREATES_PER_SECOND_MAX = 9_000
# So many that each deactivates less than an address may in a minute.
_OWNERS = [f"127.0.3.{number}" for number in range(1, 17)]
_STOPS_PER_SECOND = 60
# Triggers that no other part makes; a multiple of the number of signers.
_FIRST_STOPPED = 10**9


Bar = Callable[[int], Mapping[str, float]]


def measure(scale: Scale) -> Ratios:
    """Every bar, round by round."""
    found: Ratios = defaultdict(list)
    for _ in range(scale.bar_rounds):
        for bar in _named().values():
            for name, value in bar(scale.bar_seconds).items():
                found[name].append(value)
        failures = descriptors.use_up()
        print("".join(f"  {DESCRIPTORS}: {failure}\n" for failure in failures), end="")
        found[DESCRIPTORS].append(len(failures))
    return dict(found)


def _named() -> dict[str, Bar]:
    return {bar.__name__.strip("_"): bar for bar in (_flood, _surge, _half_load, _greedy)}


def _flood(seconds: int) -> Mapping[str, float]:
    """One address floods while another asks 500 times a second."""
    with serving() as stage:
        [without] = together(_steady(stage, _GOOD, _GOOD_CONNECTIONS, _GOOD_PER_SECOND, seconds))
        longer = seconds + _SETTLING_SECONDS
        flood = Plan(
            port=stage.port, addresses=[_FLOOD], connections=_FLOOD_CONNECTIONS, seconds=longer, requests=stage.ones,
            repeats=True,
        )  # fmt: skip
        for _ in range(_BURSTS_MAX):
            [flooded] = together(replace(flood, seconds=_BURST_SECONDS))
            if any(status != 200 for _, _, status, _ in flooded.answers):
                break
        beside, flooded = together(_steady(stage, _GOOD, _GOOD_CONNECTIONS, _GOOD_PER_SECOND, longer), flood)
    before, during = millis(without), millis(beside, since=_SETTLING_SECONDS)
    _say("the flood", flooded)
    _say("the good client", beside)
    print(f"  its p50 and p99: {_both(before)} ms without the flood, {_both(during)} ms beside it")
    return {
        FLOOD_P50: percentile(during, 0.5) / percentile(before, 0.5),
        FLOOD_P99: percentile(during, 0.99) / percentile(before, 0.99),
    }


def _steady(stage: Stage, address: str, connections: int, per_second: float, seconds: float) -> Plan:
    """Readings of single triggers at a rate."""
    return Plan(
        port=stage.port, addresses=[address], connections=connections, seconds=seconds, requests=stage.ones,
        repeats=True, per_second=per_second,
    )  # fmt: skip


def _surge(seconds: int) -> Mapping[str, float]:
    """Nine hundred new connections of 16 addresses at once, which ask a few times each."""
    with serving() as stage:
        path = stage.ones[0].split(" ")[1]
        command = [sys.executable, str(HERE / "surge.py"), str(stage.port), str(_SURGE_CONNECTIONS), path]
        with aside(command) as surge:
            said, _ = surge.communicate(timeout=60 + seconds)
    first = sorted(1_000 * each for each in json.loads(said))
    missing = _SURGE_CONNECTIONS - len(first)
    return {FIRST_P99: percentile(first, 0.99), FIRST_LAST: first[-1], FIRST_MISSING: missing}


def _half_load(seconds: int) -> Mapping[str, float]:
    """A client beside another that asks for half of what the service can answer, which no limit would let it."""
    with serving(NO_LIMITS) as stage:
        most = stage.service.load([each.encode() for each in stage.ones] * 25).per_wall_second
        load = _steady(stage, _FLOOD, _FEW, most / 2, seconds)
        probed, loaded = together(_steady(stage, _GOOD, 1, _PROBES_PER_SECOND, seconds), load)
    reached = len(loaded.answers) / seconds / most
    print(f"  beside {reached:.2f} of {most:,.0f} requests a second: p50 and p99 {_both(millis(probed))} ms")
    return {HALF_LOAD: percentile(millis(probed), 0.99)}


def _greedy(seconds: int) -> Mapping[str, float]:
    """Creates of 16 addresses as fast as they are answered, over 32 connections and then over 320."""
    (few_made, few_ended, few_lost), (made, ended, lost) = (_creates(each, seconds) for each in (_FEW, _MANY))
    return {
        GOODPUT: _per_second(made, seconds) / _per_second(few_made, seconds),
        ACCEPTED_P99: percentile(millis(made), 0.99) / percentile(millis(few_made), 0.99),
        STOPPED_P99: percentile(millis(ended, status=204), 0.99) / percentile(millis(few_ended, status=204), 0.99),
        LOST: few_lost + lost,
    }


def _creates(connections: int, seconds: int) -> tuple[Seen, Seen, int]:
    """What those saw who created, what those who deactivated, and how many acknowledged writes are not stored."""
    with serving() as stage:
        numbers = range(_FIRST_STOPPED, _FIRST_STOPPED + seconds * _STOPS_PER_SECOND * len(SIGNERS), len(SIGNERS))
        stopped = signed_triggers(numbers, stage.cid)
        register(stage.service, stopped)
        first = _FIRST_STOPPED // 2
        created = signed_triggers(range(first, first + seconds * _CREATES_PER_SECOND_MAX), stage.cid)
        stops = Plan(
            port=stage.port, addresses=_OWNERS, connections=len(_OWNERS), seconds=seconds,
            requests=[post("/triggers/deactivate", consent(body)).decode() for body in stopped],
            per_second=_STOPS_PER_SECOND,
        )  # fmt: skip
        creates = Plan(
            port=stage.port, addresses=_GREEDY, connections=connections, seconds=seconds,
            requests=[post("/triggers", body).decode() for body in created],
        )  # fmt: skip
        ended, made = together(stops, creates)
        os.kill(stage.service.pid, signal.SIGKILL)  # what was acknowledged is on the disk, whatever happens then
        os.waitid(os.P_PID, stage.service.pid, os.WEXITED | os.WNOWAIT)
        lost = _not_stored(stage.data, created, made, 200) + _not_stored(stage.data, stopped, ended, 204)
    _say(f"creates over {connections} connections", made)
    _say("deactivations beside them", ended)
    print(
        f"  p50 and p99: {_both(millis(made))} ms of accepted creates, {_both(millis(ended, status=204))} ms of "
        f"deactivations; {_per_second(made, seconds):,.0f} creates a second"
    )
    return made, ended, lost


def _not_stored(data: Path, bodies: list[bytes], seen: Seen, status: int) -> int:
    """How many of the triggers that were answered with `status` are not in the database in the state that it says."""
    with closing(sqlite3.connect(data / "muniment.db")) as connection:
        rows = connection.execute("SELECT sig FROM triggers WHERE deactivated = ?", (status == 204,)).fetchall()
    stored = {f"0x{sig.hex()}" for (sig,) in rows}
    acknowledged = {json.loads(bodies[number])["sig"] for _, _, each, number in seen.answers if each == status}
    return len(acknowledged - stored)


def _per_second(seen: Seen, seconds: int) -> float:
    """Accepted creates; those answered after the end do not count, and it ends with the last request."""
    times = [at for at, _, status, _ in seen.answers if status == 200 and at <= seconds]
    return len(times) / max(times)


def _both(ordered: list[float]) -> str:
    return f"{percentile(ordered, 0.5):.1f} and {percentile(ordered, 0.99):.1f}"


def _say(who: str, seen: Seen) -> None:
    by_status = sorted(Counter(status for _, _, status, _ in seen.answers).items())
    answers = ", ".join(f"{count:,} × {status}" for status, count in by_status)
    print(f"  {who}: {answers}; {seen.refused_connections} connections refused or ended")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        for found, value in _named()[each](6).items():
            print(f"{found:70}{value:8.2f}")
