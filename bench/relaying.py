"""The lateness of a relayer: triggers of a hundred wallets that are all due at one minute, each with one intent.

Usage: relaying.py [TRIGGERS], by default 1,000. Service (SQLite) and relayer are processes of this machine. The
function is that of `muniment demo`; a run asks no node. The lateness of a run is the time from its tick until the
registry has its intent. CPU time is that from the tick until all are published: of the service, of the relayer, and of
its sandbox, which is the launcher with a child for each run. It tells more than lateness where others share the CPUs.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from muniment.client import Bundle, KeySigner, Registry, TriggerDraft
from samples import KEYS, SIGNERS
from server import NO_LIMITS, Server, cpu_seconds, serve_command

_TRIGGERS: Final = 1_000
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip
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
        return cls(sum(service.cpu_seconds().values()), cpu_seconds(relayer), in_sandbox)


def measure(triggers: int) -> None:
    """Print how late the runs of so many triggers were recorded."""
    with tempfile.TemporaryDirectory() as folder, Server(serve_command(Path(folder)), NO_LIMITS) as service:
        data = Path(folder)
        at = datetime.now(UTC) + timedelta(seconds=_AHEAD_SECONDS + triggers // 20)
        tick = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        _register(service.url, triggers, f"{tick.minute} {tick.hour} * * *")
        relayer = _relayer(data, service.url)
        try:
            time.sleep(max(0.0, (tick - datetime.now(UTC)).total_seconds()))
            before = Spent.by(service, relayer.pid)
            _wait(data, triggers)
            spent = [late - early for early, late in zip(before, Spent.by(service, relayer.pid), strict=True)]
        finally:
            relayer.terminate()
            relayer.wait(timeout=60)
        _show(_listed(service.url, "executions?"), _listed(service.url, "intents?generation=all&"), tick, Spent(*spent))


def _register(url: str, triggers: int, schedule: str) -> None:
    sample = files("muniment.cli") / "sample"
    bundle = Bundle((sample / "manifest.json").read_bytes(), (sample / "function.wasm").read_bytes())
    cid = ""
    for place, key in enumerate(KEYS):
        with Registry(url, signer=KeySigner(key)) as registry:
            if place == 0:
                registry.account.log_in()
                registry.account.api_key()
                cid = registry.functions.deploy(bundle).cid
            for number in range(place, triggers, len(KEYS)):
                draft = TriggerDraft.of(
                    cid, description=f"The benchmark's trigger {number}", input=_INPUT,
                    config={"type": 0, "schedule": schedule, "delta": "30m", "endDate": 0},
                    execution_fee_limit=str(number),
                )  # fmt: skip
                registry.triggers.create(draft)


def _relayer(data: Path, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "muniment", "operators", "add", "bench", "--data-dir", str(data)]
    key = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    file = data / "relayer.toml"
    signers = ", ".join(f'"{each}"' for each in SIGNERS)
    file.write_text(f'[relayer]\nregistry = "{url}"\nsigners = [{signers}]\nfunctions = ["*"]\nchains = ["*"]\n')
    environment = {**os.environ, "MUNIMENT_OPERATOR_KEY": key, "MUNIMENT_LOG_LEVEL": "error"}
    return subprocess.Popen(
        [sys.executable, "-m", "muniment", "relayer", "--config", str(file)], env=environment, stdout=sys.stderr
    )


def _wait(data: Path, triggers: int) -> None:
    """Wait until the relayer has published so many runs. Its journal tells; to ask the service would cost it time."""
    deadline = time.monotonic() + _SECONDS_MAX
    journal = sqlite3.connect(f"file:{data / 'relayer.db'}?mode=ro", uri=True)
    while True:
        ((count,),) = journal.execute("SELECT count(*) FROM journal_runs WHERE state = 2")
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


def _show(runs: list[dict[str, Any]], intents: list[dict[str, Any]], tick: datetime, spent: Spent) -> None:
    late = sorted((datetime.fromisoformat(each["createdAt"]) - tick).total_seconds() for each in intents)
    results = {result: sum(run["result"] == result for run in runs) for result in {run["result"] for run in runs}}
    print(f"{len(runs)} runs due at once on {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}: {results}")
    print(f"  seconds from the tick until an intent is recorded: median {late[len(late) // 2]:.1f}, ", end="")
    print(f"99th percentile {late[len(late) * 99 // 100]:.1f}, last {late[-1]:.1f}")
    each = [1_000 * seconds / len(runs) for seconds in (*spent, sum(spent))]
    print("  CPU ms a run: service {:.1f}, relayer {:.1f}, its sandbox {:.1f}, together {:.1f}".format(*each))


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else _TRIGGERS)
