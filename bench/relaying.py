"""The lateness of a relayer: triggers of a hundred wallets that are all due at one minute, each with one intent.

Also runs alone: relaying.py [TRIGGERS] [--hostile], by default 1,000 triggers. Service (SQLite) and relayer are
processes of this machine. The function is that of `muniment demo`; a run asks no node. The lateness of a run is the
time from its tick until the registry has its intent. CPU time is that from the tick until all are published: of the
service, of the relayer, and of its sandbox, which is the launcher with a child for each run. It tells more than
lateness where others share the CPUs.

With `--hostile` the relayer serves any signer, and all triggers are due in each of four minutes. In the second and the
fourth, hostile functions are due too, each of a signer of its own, who signs until the signature puts the run ahead of
most others. Lateness is that of the other triggers.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from hostile_functions import bundles
from muniment.client import Bundle, KeySigner, Registry, TriggerDraft
from samples import KEYS, SIGNERS
from server import NO_LIMITS, Server, cpu_seconds, serve_command

TRIGGERS: Final = 1_000
TRIGGERS_QUICK: Final = 60
LAST: Final = "relayer: seconds until the last run of those due at once is recorded"
RATE: Final = "relayer: runs per second of CPU time, all processes"
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip
# The minutes of `--hostile`.
_ROUNDS: Final = 4
_MINUTE: Final = timedelta(minutes=1)
# What is due at once is looked at in the order of the signatures.
_AHEAD_OF_MOST: Final = "0x08"
# The relayer has read all triggers when their minute comes.
_AHEAD_SECONDS: Final = 30
_SECONDS_MAX: Final = 600
_PAGE: Final = 100


class Spent(NamedTuple):
    """CPU seconds."""

    service: float
    relayer: float
    sandbox: float

    @classmethod
    def by(cls, service: Server, relayer: int) -> Spent:
        """What the processes have spent until now; `relayer` is a process id, and its only child the launcher."""
        (launcher,) = Path(f"/proc/{relayer}/task/{relayer}/children").read_text("ascii").split()
        # proc_pid_stat(5): children that ended, in ticks.
        ended = sum(map(int, Path(f"/proc/{launcher}/stat").read_text("utf-8").rpartition(")")[2].split()[13:15]))
        in_sandbox = cpu_seconds(int(launcher)) + ended / os.sysconf("SC_CLK_TCK")
        return cls(service.cpu_seconds(), cpu_seconds(relayer), in_sandbox)


class Relayed(NamedTuple):
    """The runs that were due at one tick: seconds from it until each intent was recorded, and CPU seconds of all."""

    late: list[float]
    spent: Spent
    results: dict[str, int]


def measure(triggers: int) -> Relayed:
    """How late the runs of so many triggers were recorded."""
    with tempfile.TemporaryDirectory() as folder, Server(serve_command(Path(folder)), NO_LIMITS) as service:
        data, tick = Path(folder), _first_tick(triggers)
        _register(service.url, triggers, _at([tick]))
        with _relaying(data, service.url, SIGNERS) as relayer:
            time.sleep(max(0.0, (tick - datetime.now(UTC)).total_seconds()))
            before = Spent.by(service, relayer)
            _wait(data, triggers, tick)
            spent = [late - early for early, late in zip(before, Spent.by(service, relayer), strict=True)]
        runs, intents = _listed(service.url, "executions?"), _listed(service.url, "intents?generation=all&")
    results = {result: sum(run["result"] == result for run in runs) for result in {run["result"] for run in runs}}
    return Relayed(sorted(_late(each, tick) for each in intents), Spent(*spent), results)


def of_relayer(found: Relayed) -> dict[str, list[float]]:
    """The lateness of the last run, and the rate of all."""
    return {LAST: [found.late[-1]], RATE: [len(found.late) / sum(found.spent)]}


def compare(triggers: int) -> None:
    """Print how late the runs of so many triggers were recorded without and with hostile functions beside them."""
    with tempfile.TemporaryDirectory() as folder, Server(serve_command(Path(folder)), NO_LIMITS) as service:
        ticks = [_first_tick(triggers) + number * _MINUTE for number in range(_ROUNDS)]
        _register(service.url, triggers, _at(ticks))
        names = _register_hostile(service.url, _at(ticks[1::2]))
        with _relaying(Path(folder), service.url, ["*"]):
            _wait(Path(folder), triggers + len(names), ticks[-1])
        runs, intents = _listed(service.url, "executions?"), _listed(service.url, "intents?generation=all&")
    ran = {run["hash"]: datetime.fromtimestamp(run["timestamp"] / 1_000, UTC) for run in runs}
    late = [
        sorted(_late(each, tick) for each in intents if (tick := ran[each["executionHash"]]) in part)
        for part in (ticks[::2], ticks[1::2])
    ]
    print(f"{triggers} runs due at once on {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}", end="")
    print(f"; in turns without and with {len(names)} hostile ones")
    for name, part in zip(("without", "with"), late, strict=True):
        print(f"  {name}: {len(part)} intents, seconds until one is recorded: {_percentiles(part)}")
    medians, last = ([_at_share(part, percent) for part in late] for percent in (50, 99))
    print(f"  ratio: median {medians[1] / medians[0]:.2f}, 99th percentile {last[1] / last[0]:.2f}")
    for run in runs:
        if run["triggerSig"] in names:
            told = run.get("reason", {}).get("code", run["result"])
            print(f"  {names[run['triggerSig']]}: {told}, {_late(run, ran[run['hash']]):.1f} s after its tick")


def _first_tick(triggers: int) -> datetime:
    at = datetime.now(UTC) + timedelta(seconds=_AHEAD_SECONDS + triggers // 20)
    return at.replace(second=0, microsecond=0) + _MINUTE


def _at(ticks: Sequence[datetime]) -> str:
    """The schedule that is due at these minutes."""
    return f"{','.join(map(str, sorted(tick.minute for tick in ticks)))} * * * *"


def _register(url: str, triggers: int, schedule: str) -> None:
    sample = files("muniment.cli") / "sample"
    bundle = Bundle((sample / "manifest.json").read_bytes(), (sample / "function.wasm").read_bytes())
    cid = ""
    for place, key in enumerate(KEYS):
        with Registry(url, signer=KeySigner(key)) as registry:
            if place == 0:
                cid = _deploy(registry, bundle)
            for number in range(place, triggers, len(KEYS)):
                registry.triggers.create(_draft(cid, number, schedule, _INPUT))


def _register_hostile(url: str, schedule: str) -> dict[str, str]:
    """Triggers of hostile functions, each of a signer of its own; their names by signature."""
    names: dict[str, str] = {}
    for place, (name, bundle) in enumerate(bundles().items()):
        with Registry(url, signer=KeySigner((1_000 + place).to_bytes(32))) as registry:
            cid, tries = _deploy(registry, bundle), count(place * 1_000)
            while (signed := registry.triggers.sign(_draft(cid, next(tries), schedule, {}))).sig > _AHEAD_OF_MOST:
                pass
            names[registry.triggers.create(signed).sig] = name
    return names


def _deploy(registry: Registry, bundle: Bundle) -> str:
    registry.account.log_in()
    registry.account.api_key()
    return registry.functions.deploy(bundle).cid


def _draft(cid: str, number: int, schedule: str, given: Mapping[str, Any]) -> TriggerDraft:
    return TriggerDraft.of(
        cid, description=f"The benchmark's trigger {number}", input=given,
        config={"type": 0, "schedule": schedule, "delta": "30m", "endDate": 0}, execution_fee_limit=str(number),
    )  # fmt: skip


@contextmanager
def _relaying(data: Path, url: str, signers: Sequence[str]) -> Generator[int]:
    """Run a relayer as a process until the end of the block; its id."""
    command = [sys.executable, "-m", "muniment", "operators", "add", "bench", "--data-dir", str(data)]
    key = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    file = data / "relayer.toml"
    served = ", ".join(f'"{each}"' for each in signers)
    file.write_text(f'[relayer]\nregistry = "{url}"\nsigners = [{served}]\nfunctions = ["*"]\nchains = ["*"]\n')
    environment = {**os.environ, "MUNIMENT_OPERATOR_KEY": key, "MUNIMENT_LOG_LEVEL": "error"}
    relayer = subprocess.Popen(
        [sys.executable, "-m", "muniment", "relayer", "--config", str(file)], env=environment, stdout=sys.stderr
    )
    try:
        yield relayer.pid
    finally:
        relayer.terminate()
        relayer.wait(timeout=60)


def _wait(data: Path, triggers: int, tick: datetime) -> None:
    """Wait until the relayer has published so many runs of a tick.

    Its journal tells; to ask the service would cost it time.
    """
    time.sleep(max(0.0, (tick - datetime.now(UTC)).total_seconds()))
    deadline = time.monotonic() + _SECONDS_MAX
    journal = sqlite3.connect(f"file:{data / 'relayer.db'}?mode=ro", uri=True)
    while True:
        ((count,),) = journal.execute(
            "SELECT count(*) FROM journal_runs WHERE state = 2 AND timestamp_ms = ?", (tick.timestamp() * 1_000,)
        )
        if count >= triggers:
            journal.close()
            return
        assert time.monotonic() < deadline, f"{count} of {triggers} runs were published"
        time.sleep(0.5)


def _listed(url: str, what: str) -> list[dict[str, Any]]:
    """All runs or intents, as the registry has them."""
    found: list[dict[str, Any]] = []
    with httpx2.Client(base_url=url, timeout=60) as client:
        while len(page := client.get(f"/{what}sort=1&limit={_PAGE}&offset={len(found)}").json()) > 0:
            found += page
    return found


def _late(recorded: Mapping[str, Any], tick: datetime) -> float:
    return (datetime.fromisoformat(recorded["createdAt"]) - tick).total_seconds()


def _at_share(late: Sequence[float], percent: int) -> float:
    return late[len(late) * percent // 100]


def _percentiles(late: Sequence[float]) -> str:
    return f"median {_at_share(late, 50):.1f}, 99th percentile {_at_share(late, 99):.1f}, last {late[-1]:.1f}"


def show(found: Relayed) -> None:
    """Print the lateness, and the CPU time of a run."""
    runs = sum(found.results.values())
    print(f"\n{runs} runs due at once on {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}: {found.results}")
    print(f"  seconds from the tick until an intent is recorded: {_percentiles(found.late)}")
    each = [1_000 * seconds / runs for seconds in (*found.spent, sum(found.spent))]
    print("  CPU ms a run: service {:.1f}, relayer {:.1f}, its sandbox {:.1f}, together {:.1f}".format(*each))


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each != "--hostile"]
    triggers = int(given[0]) if given else TRIGGERS
    if "--hostile" in sys.argv:
        compare(triggers)
    else:
        show(measure(triggers))
