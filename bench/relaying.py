"""The lateness of a relayer: triggers of a hundred wallets that are all due at one minute, each with one intent.

Usage: relaying.py [TRIGGERS], by default 1,000. Service (SQLite) and relayer are processes of this machine. The
function is that of `muniment demo`; a run asks no node. The lateness of a run is the time from its tick until the
registry has it. CPU time is that of the service, and that of the relayer with its sandbox.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import httpx2

from muniment.client import Bundle, KeySigner, Registry, TriggerDraft
from samples import KEYS, SIGNERS
from server import NO_LIMITS, Server, serve_command

_TRIGGERS: Final = 1_000
_INPUT: Final = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip
# The relayer has read all triggers when their minute comes.
_AHEAD_SECONDS: Final = 30
_SECONDS_MAX: Final = 600
_PAGE: Final = 100


def measure(triggers: int) -> None:
    """Print how late the runs of so many triggers were recorded."""
    with tempfile.TemporaryDirectory() as folder, Server(serve_command(Path(folder)), NO_LIMITS) as service:
        data = Path(folder)
        at = datetime.now(UTC) + timedelta(seconds=_AHEAD_SECONDS + triggers // 20)
        tick = at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        _register(service.url, triggers, f"{tick.minute} {tick.hour} * * *")
        before = sum(service.cpu_seconds().values())
        relayer = _relayer(data, service.url)
        try:
            runs = _recorded(service.url, triggers, tick)
        finally:
            relayer.terminate()
            relayer.wait(timeout=60)
        spent = sum(service.cpu_seconds().values()) - before
    _show(runs, tick, spent)


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


def _recorded(url: str, triggers: int, tick: datetime) -> list[dict[str, Any]]:
    """All runs, as the registry has them."""
    deadline = time.monotonic() + _SECONDS_MAX
    time.sleep(max(0.0, (tick - datetime.now(UTC)).total_seconds()))
    with httpx2.Client(base_url=url, timeout=60) as client:
        while True:
            runs: list[dict[str, Any]] = []
            while len(page := client.get(f"/executions?sort=1&limit={_PAGE}&offset={len(runs)}").json()) > 0:
                runs += page
            if len(runs) >= triggers:
                return runs
            assert time.monotonic() < deadline, f"{len(runs)} of {triggers} runs were recorded"
            time.sleep(1)


def _show(runs: list[dict[str, Any]], tick: datetime, service_s: float) -> None:
    late = sorted((datetime.fromisoformat(run["createdAt"]) - tick).total_seconds() for run in runs)
    results = {result: sum(run["result"] == result for run in runs) for result in {run["result"] for run in runs}}
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(runs)} runs due at once on {os.cpu_count()} CPUs: {results}")
    print(f"  seconds from the tick until a run is recorded: median {late[len(late) // 2]:.1f}, ", end="")
    print(f"99th percentile {late[len(late) * 99 // 100]:.1f}, last {late[-1]:.1f}")
    print(f"  CPU ms a run: service {1_000 * service_s / len(runs):.1f}, ", end="")
    print(f"relayer with sandbox {1_000 * (usage.ru_utime + usage.ru_stime) / len(runs):.1f}")


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else _TRIGGERS)
