"""`make soak`: honest clients beside each attack in turn, ATTACK_SECONDS (60) each; what they felt, as a table."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

import attacking
from attacked import LIMITS, prepare
from builders import TriggerDraft, Wallet
from postgres import Cluster
from service import Service

SECONDS = float(os.environ.get("ATTACK_SECONDS", "60"))
_ANSWER_SECONDS_MAX = 60
# The p99 of reads beside an attack, over the one beside nothing. What is quicker than this many milliseconds is well.
TIMES_AS_SLOW_MAX, SLOW_MS = 5, 50


@dataclass
class Felt:
    """What honest clients felt, and what the service took."""

    reads: list[float] = field(default_factory=list[float])
    refused: int = 0
    written: list[str] = field(default_factory=list[str])
    lost: int = 0
    mib: float = 0.0
    descriptors: int = 0

    def millis(self, share: float) -> float:
        times = sorted(self.reads) or [float("inf")]
        return 1_000 * times[int(len(times) * share)]

    def row(self, attack: str) -> str:
        return (
            f"| {attack} | {len(self.reads):,} | {self.millis(0.5):.1f} | {self.millis(0.99):.1f} | {self.refused} "
            f"| {len(self.written)} | {self.lost} | {self.mib:.0f} | {self.descriptors:,} |"
        )


HEAD = (
    "| beside | reads | p50, ms | p99, ms | refused | writes | lost | MiB at most | descriptors at most |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@contextmanager
def served(folder: Path, engine: str, workers: int) -> Generator[Service]:
    if engine == "sqlite":
        with Service(folder / "data", workers=workers, environment=LIMITS, sheds=True) as service:
            yield service
        return
    with Cluster(fsync=True) as cluster:
        environment = {
            "MUNIMENT_DATABASE_URL": asyncio.run(cluster.create_database("site")), "MUNIMENT_MIGRATE_AT_START": "true",
        }  # fmt: skip
        with Service(folder / "data", workers=workers, environment=LIMITS | environment, sheds=True) as service:
            yield service


@pytest.mark.parametrize(("engine", "workers"), [("sqlite", 1), ("sqlite", 2), ("postgres", 1)])
def test_honest_clients_are_served_beside_every_attack(tmp_path: Path, engine: str, workers: int) -> None:
    print(f"\n{engine}, {workers} process(es), {SECONDS:g} s each\n\n{HEAD}")
    with served(tmp_path, engine, workers) as service:
        cid, sig = asyncio.run(prepare(service.url))
        rows = {name: asyncio.run(_beside(service, name, cid, sig)) for name in ("nothing", *attacking.NAMES)}
    assert all(felt.lost == 0 and felt.written and felt.reads for felt in rows.values())
    bound = max(TIMES_AS_SLOW_MAX * rows["nothing"].millis(0.99), SLOW_MS)
    assert [name for name, felt in rows.items() if felt.millis(0.99) > bound] == []


async def _beside(service: Service, attack: str, cid: str, sig: str) -> Felt:
    felt = Felt()
    command = [sys.executable, attacking.__file__, attack, service.url.rpartition(":")[2], str(SECONDS)]
    attacker = None if attack == "nothing" else await asyncio.create_subprocess_exec(*command)
    tasks = [asyncio.create_task(each) for each in (_read(service.url, sig, felt), _write(service.url, cid, felt))]
    tasks.append(asyncio.create_task(_weigh(service, felt)))
    await asyncio.wait(tasks, timeout=SECONDS)
    for task in tasks:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if attacker is not None:
        await attacker.wait()
    async with httpx2.AsyncClient(base_url=service.url, timeout=_ANSWER_SECONDS_MAX, trust_env=False) as client:
        for written in felt.written:
            felt.lost += (await client.get(f"/triggers/{written}")).status_code != 200
    print(felt.row(attack), flush=True)
    return felt


async def _read(url: str, sig: str, felt: Felt) -> None:
    """A trigger by its signature, fifty times a second; what takes long delays none of what follows by more."""
    async with httpx2.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS_MAX, trust_env=False) as client:
        while True:
            began = time.monotonic()
            try:
                status = (await client.get(f"/triggers/{sig}")).status_code
            except httpx2.TransportError:
                status = 0
            if status == 200:
                felt.reads.append(time.monotonic() - began)
            else:
                felt.refused += 1
            await asyncio.sleep(max(0.0, began + 0.02 - time.monotonic()))


async def _write(url: str, cid: str, felt: Felt) -> None:
    """A trigger of a new wallet, five times a second."""
    async with httpx2.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS_MAX, trust_env=False) as client:
        for number in count(secrets.randbits(64)):
            body = TriggerDraft(cid, Wallet(number), inputs={"note": "string"}, input={"note": "short"}).signed()
            try:
                if (await client.post("/triggers", json=body)).status_code == 200:
                    felt.written.append(body["sig"])
            except httpx2.TransportError:
                felt.refused += 1
            await asyncio.sleep(0.2)


async def _weigh(service: Service, felt: Felt) -> None:
    """Resident memory and open descriptors of all processes (proc(5))."""
    while True:
        folders = [Path(f"/proc/{pid}") for pid in (service.pid, *service.worker_pids())]
        pages = sum(int((each / "statm").read_text().split()[1]) for each in folders)
        felt.mib = max(felt.mib, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        felt.descriptors = max(felt.descriptors, sum(len(list((each / "fd").iterdir())) for each in folders))
        await asyncio.sleep(0.2)
