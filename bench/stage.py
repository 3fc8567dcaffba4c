"""A service with the limits that hold by default, and processes of strangers that ask it at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2

from ours import deploy, register, serve_command
from samples import signed_triggers
from server import HERE, Server, get
from strangers import LAST_SECONDS_MAX, Plan, Seen

_REGISTERED = 200
# Of strangers that are not measured, so that those who are need not wait for them (nice(2)).
_LAST = 19


@dataclass(frozen=True)
class Stage:
    """The service, its directory, the function that is deployed, and requests of single triggers."""

    service: Server
    data: Path
    cid: str
    ones: list[str]

    @property
    def port(self) -> int:
        """Where the service listens."""
        return int(self.service.url.rpartition(":")[2])


@contextmanager
def serving(environment: Mapping[str, str] | None = None, *, descriptors: int | None = None) -> Generator[Stage]:
    """A service on SQLite with a few triggers, and a core for itself; at most so many open `descriptors`."""
    limited = ["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh"] if descriptors else []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        data = Path(folder)
        service = stack.enter_context(Server([*limited, *serve_command(data)], environment))
        with httpx2.Client(base_url=service.url) as client:
            cid = deploy(client)
        bodies = signed_triggers(range(_REGISTERED), cid)
        register(service, [*bodies])
        if len(cores := _cores()) > 1:
            stack.enter_context(service.confined(cores[0]))
        yield Stage(service, data, cid, [get(f"/triggers/{json.loads(body)['sig']}").decode() for body in bodies])


def together(measured: Plan, *others: Plan) -> list[Seen]:
    """What the strangers of each plan have seen, who begin at the same time; first those who are measured."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        started: list[subprocess.Popen[str]] = []
        for number, plan in enumerate((measured, *others)):
            file = Path(folder) / f"{number}.json"
            file.write_text(json.dumps(asdict(plan)), "utf-8")
            command = [sys.executable, str(HERE / "strangers.py"), str(file)]
            if number:
                command = ["nice", "-n", str(_LAST), *command]
            started.append(stack.enter_context(aside(command)))
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        seconds = max(plan.seconds for plan in (measured, *others)) + LAST_SECONDS_MAX + 60
        return [Seen(**json.loads(process.communicate(timeout=seconds)[0])) for process in started]


def aside(command: Sequence[str]) -> subprocess.Popen[str]:
    """A process on another core than the service's, if there is one."""
    confined = ["taskset", "-c", str(_cores()[-1]), *command]
    return subprocess.Popen(confined, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def millis(seen: Seen, *, status: int = 200, since: float = 0.0) -> list[float]:
    """Milliseconds of each answer of a status, in order; of those that came after `since` seconds."""
    taken = [1_000 * seconds for at, seconds, each, _ in seen.answers if each == status and at >= since]
    assert taken, f"nothing was answered with {status}"
    return sorted(taken)


def percentile(ordered: list[float], share: float) -> float:
    """The value below which this share of all lies."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))
