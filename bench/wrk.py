"""A second load generator, `wrk`, on a core of its own while the server has another: single reads and creates."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Mapping

from samples import signed_triggers
from scale import Scale
from server import CONNECTIONS, HERE, Load, Server
from traffic import Loads

ONE, CREATE = "GET /triggers/{sig}, by wrk", "POST /triggers, by wrk"
# More than any server creates in a second on one core.
_CREATES_PER_SECOND_MAX = 12_000
# Triggers that no other part makes.
_FIRST_NUMBER = 200_000_000


def why_not() -> str:
    """What is missing to measure with it; empty when nothing is."""
    if shutil.which("wrk") is None:
        return "wrk is not installed (Debian has it)"
    return "" if len(os.sched_getaffinity(0)) > 1 else "there is one core"


def take_turns(servers: Mapping[str, Server], scale: Scale, cid: str, seeded: list[bytes]) -> Loads:
    """Rounds of A B A B …; the first one warms up and is not counted."""
    loads: Loads = defaultdict(lambda: defaultdict(list))
    if why_not():
        return loads
    ones = [f"GET /triggers/{json.loads(body)['sig']}".encode() for body in seeded]
    count = _CREATES_PER_SECOND_MAX * scale.wrk_seconds
    for number in range(scale.rounds + 1):
        first = _FIRST_NUMBER + number * count
        creates = [b"POST /triggers " + body for body in signed_triggers(range(first, first + count), cid)]
        for operation, lines in ((ONE, ones), (CREATE, creates)):
            for name, server in servers.items():
                if (operation, name) == (CREATE, "bare"):  # it verifies nothing: no more can be signed than it takes
                    continue
                load = _load(server, lines, scale.wrk_seconds)
                if number:
                    loads[operation][name].append(load)
    return loads


def _load(server: Server, lines: list[bytes], seconds: int) -> Load:
    """Send for some seconds, on as many connections as the other load generator has; no answer may be an error."""
    ours, theirs, *_ = sorted(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as file, server.confined(ours):
        file.write(b"\n".join(lines) + b"\n")
        file.flush()
        before = server.cpu_seconds()
        command = [
            "wrk", "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds}s", "--timeout", "10s",
            "-s", str(HERE / "wrk.lua"), server.url,
        ]  # fmt: skip
        done = subprocess.run(
            ["taskset", "-c", str(theirs), *command], check=True, stdout=subprocess.PIPE, timeout=seconds + 60,
            env={**os.environ, "BENCH_REQUESTS": file.name},
        )  # fmt: skip
        spent = server.spent_since(before)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["failed"] == 0, said
    return Load(said["requests"], said["micros"] / 1e6, sum(spent), max(spent))
