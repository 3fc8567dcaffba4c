"""The CPU of a proved page at the client, beside the least that such a page needs. Also runs alone.

The page has a hundred triggers, whose function's manifest the client has read before. The least is the same page by a
bare GET of httpx2, not decoded, and a hundred recoveries by libsecp256k1 of given digests. Both sides take turns. The
service is a process of its own, and its CPU does not count.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx2
import msgspec

from muniment.client import Registry
from muniment.protocol.evm.signature import is_by
from muniment.protocol.triggers.types import NewTrigger
from muniment.protocol.wire import decode_text
from samples import signed_triggers
from server import deploy, muniment, register
from verification import bare_recovery

LISTED: Final = 100
PROVED, BARE_GET, RECOVERIES = "triggers.list(limit=100)", "bare GET of the page", "100 bare recoveries"
UNPROVED, CHECKS = "triggers.list(limit=100), verify=False", "100 times is_by"
LEAST: Final = "a proved page of 100 triggers at the client / (bare GET + 100 recoveries)"
_TARGET: Final = f"/triggers?sort=1&limit={LISTED}"
_ROUNDS: Final = 25
_TURNS: Final = 8
Micros = dict[str, list[float]]


def measure() -> Micros:
    """CPU microseconds of one of each, by round."""
    found: Micros = {name: [] for name in (PROVED, UNPROVED, BARE_GET, RECOVERIES, CHECKS)}
    with (
        tempfile.TemporaryDirectory() as folder,
        muniment(Path(folder)) as service,
        httpx2.Client(base_url=service.url) as client,
    ):
        bodies = signed_triggers(range(LISTED), deploy(client))
        register(service, bodies)
        works = _works(service.url, client, bodies)
        for turn in range(_ROUNDS + 1):
            for name, work in works.items():
                micros = _micros(work)
                if turn:  # the first round warms up
                    found[name].append(micros)
    return found


def of_client(found: Micros) -> dict[str, list[float]]:
    """The ratio of each round."""
    least = zip(found[BARE_GET], found[RECOVERIES], strict=True)
    return {LEAST: [ours / sum(parts) for ours, parts in zip(found[PROVED], least, strict=True)]}


def show(found: Micros) -> None:
    """Print the medians, the least and the most."""
    print("\nA page at the client, CPU microseconds")
    for name, micros in found.items():
        print(f"{name:44}{statistics.median(micros):9.0f}  ({min(micros):.0f} … {max(micros):.0f})")


def _works(url: str, client: httpx2.Client, bodies: list[bytes]) -> dict[str, Callable[[], object]]:
    given = [msgspec.json.decode(body, type=NewTrigger, dec_hook=decode_text) for body in bodies]
    recover, inputs = bare_recovery(given)
    digests = [(new.signer, hashed, new.sig) for new, (_, _, hashed) in zip(given, inputs, strict=True)]
    proved, unproved = (Registry(url, verify=verify) for verify in (True, False))

    def page(registry: Registry) -> None:
        assert len(next(registry.triggers.list(limit=LISTED).pages())) == LISTED

    return {
        PROVED: lambda: page(proved),
        UNPROVED: lambda: page(unproved),
        BARE_GET: lambda: client.get(_TARGET).content,
        RECOVERIES: lambda: [recover(each) for each in inputs],
        CHECKS: lambda: [is_by(*each) for each in digests],
    }


def _micros(work: Callable[[], object]) -> float:
    started = time.process_time_ns()
    for _ in range(_TURNS):
        work()
    return (time.process_time_ns() - started) / 1_000 / _TURNS


if __name__ == "__main__":
    measured = measure()
    show(measured)
    for name, values in of_client(measured).items():
        print(f"{name:80}{statistics.median(values):6.2f}  ({min(values):.2f} … {max(values):.2f})")
