"""`make soak`: honest clients beside each attack in turn, ATTACK_SECONDS (60) each; what they felt, as a table.

ATTACKS names those to do, by a regular expression; ATTACKED_PYTHON is the interpreter of another revision.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

import attacking
from attacked import LIMITS, furnish, prepare
from attacking_wallets import FILLING
from honest import HEAD, Felt, Honest
from mounts import mounted, needs_mounts
from ports import free_port
from postgres import Cluster
from service import START_SECONDS_MAX, Service

SECONDS = float(os.environ.get("ATTACK_SECONDS", "60"))
CHOSEN = re.compile(os.environ.get("ATTACKS", ""))
PYTHON = Path(os.environ.get("ATTACKED_PYTHON", sys.executable))
# Times as long as the others: its receivers need 15 seconds to be slow once.
LONGER = {"receivers that are slow by turns": 4}
# The p99 of reads beside an attack, over the one beside nothing. What is quicker than this many milliseconds is well:
# some hundred requests that come at once are answered one after the other, and take 20 to 40 of them.
TIMES_AS_SLOW_MAX, SLOW_MS = 5, 50
# Of several services on one database each is attacked at the same time, and each has limits of its own.
SERVICES_MAX = 3
NODE_PORTS = [str(free_port()) for _ in range(SERVICES_MAX)]
SILENT_NAMES = Path(attacking.__file__).with_name("silent_names.py")
# Whom the registry asks.
OPEN = {
    "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_LOG_LEVEL": "error",
    "MUNIMENT_TLOG_NAME": "soak.example", "MUNIMENT_TLOG_KEY": "11" * 32,
}  # fmt: skip
# While the attacks last, the last bundle of the log stays as long as it is.
STILL = {"MUNIMENT_TLOG_INTERVAL_S": "86400"}


@contextmanager
def served(folder: Path, environment: dict[str, str], count: int = 1) -> Generator[list[Service]]:
    """So many services, each with a directory of its own."""
    with ExitStack() as stack:
        services: list[Service] = []
        for number, port in enumerate(NODE_PORTS[:count]):
            chains = folder / f"chains-{number}.toml"
            chains.write_text(f'[[chains]]\nid = 8453\nrpc_urls = ["http://127.0.0.1:{port}"]\n')
            given = {**OPEN, "MUNIMENT_CHAINS_FILE": str(chains), **environment}
            service = Service(
                folder / f"data-{number}", program=(str(SILENT_NAMES),), python=PYTHON, environment=given, sheds=True
            )
            services.append(stack.enter_context(service))
        yield services


@contextmanager
def database_of(engine: str) -> Generator[str]:
    """The URL of a database on PostgreSQL; empty for SQLite."""
    if engine == "sqlite":
        yield ""
        return
    with Cluster(fsync=True) as cluster:
        yield asyncio.run(cluster.create_database("site"))


@pytest.mark.parametrize(("engine", "count"), [("sqlite", 1), ("postgres", 1), ("postgres", SERVICES_MAX)])
def test_honest_clients_are_served_beside_every_attack(tmp_path: Path, engine: str, count: int) -> None:
    with database_of(engine) as url:
        stored = {"MUNIMENT_DATABASE_URL": url, "MUNIMENT_MIGRATE_AT_START": "true"} if url else {}
        if count > 1:
            stored |= {"MUNIMENT_SECRET": "22" * 32}
        with served(tmp_path, stored) as (service,):
            cid, sig = asyncio.run(prepare(service.url))
            asyncio.run(furnish(service.url, service.data_dir, url, cid))
            keys = keys_of(service, stored, count)
        with served(tmp_path, LIMITS | stored | STILL, count) as services:
            print(f"\n{engine}, services: {count}, {SECONDS:g} s each\n\n{HEAD}")
            table = rows(services, [name for name in attacking.NAMES if CHOSEN.search(name)], keys, cid, sig)
    check(table, count)


@needs_mounts
def test_owners_are_served_beside_a_stranger_who_fills_the_disk(tmp_path: Path) -> None:
    """On SQLite, and a disk of 256 MiB."""
    if not any(map(CHOSEN.search, FILLING)):
        pytest.skip("this attack was not chosen")
    with mounted(tmp_path), served(tmp_path, LIMITS) as (service,):
        cid, sig = asyncio.run(prepare(service.url))
        print(f"\na disk of 256 MiB, {SECONDS:g} s each\n\n{HEAD}")
        table = rows([service], list(FILLING), keys_of(service, {}), cid, sig)
    (felt,) = (felt for name, felt in table.items() if name in FILLING)
    assert (felt.lost, felt.not_ended, felt.gone) == (0, 0, 0)


def keys_of(service: Service, stored: dict[str, str], attackers: int = 1) -> list[str]:
    """The keys of new operators, by the command of the release that serves: an honest one, three of each attacker."""
    return [_key_of(service, stored, f"operator-{number}") for number in range(1 + 3 * attackers)]


def _key_of(service: Service, stored: dict[str, str], name: str) -> str:
    command = [str(PYTHON), "-m", "muniment", "operators", "add", name, "--data-dir", str(service.data_dir)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    done = subprocess.run(
        command, env=inherited | stored | OPEN, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=True
    )
    return done.stdout.strip()


def rows(services: list[Service], names: list[str], keys: list[str], cid: str, sig: str) -> dict[str, Felt]:
    """Do it, and show each row as it is known. Honest clients ask the first service; each is attacked."""
    begin = first_position(services[0].url)
    table: dict[str, Felt] = {}
    for name in ("nothing", *names):
        honest = Honest(services[0], keys[0], cid, sig, begin)
        table[name] = asyncio.run(_beside(honest, services, name, keys[1:]))
        print(table[name].row(name, table["nothing"]), flush=True)
    return table


def first_position(url: str) -> str:
    """The one before the first event (`muniment.service.resources.feed.events`)."""
    newest = httpx2.get(f"{url}/events").links["next"]["url"].partition("cursor=")[2]
    epoch = base64.urlsafe_b64decode(newest + "=" * (-len(newest) % 4))[:11]
    return base64.urlsafe_b64encode(epoch + b"0").decode().rstrip("=")


async def _beside(honest: Honest, services: list[Service], attack: str, keys: list[str]) -> Felt:
    seconds = SECONDS * LONGER.get(attack, 1)
    with honest.hooked():
        await honest.prepare(seconds)
        attackers = [
            await _attack(attack, service, seconds, NODE_PORTS[number], keys[3 * number : 3 * number + 3])
            for number, service in enumerate(services)
            if attack != "nothing"
        ]
        return await honest.felt_beside(attackers, seconds)


async def _attack(
    attack: str, service: Service, seconds: float, node_port: str, keys: list[str]
) -> asyncio.subprocess.Process:
    """An attacker who has begun."""
    command = [sys.executable, attacking.__file__, attack, service.url.rpartition(":")[2], str(seconds)]
    environment = {**os.environ, "ATTACK_NODE_PORT": node_port, "ATTACK_OPERATOR_KEYS": ",".join(keys)}
    attacker = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    assert attacker.stdout is not None
    assert await attacker.stdout.readline() == b"begun\n"
    return attacker


def check(table: dict[str, Felt], count: int) -> None:
    """What must hold beside each attack; `count` services share the machine."""
    bound = count * max(TIMES_AS_SLOW_MAX * table["nothing"].millis(0.99), SLOW_MS)
    faults = [
        (name, fault)
        for name, felt in table.items()
        for fault, holds in {
            "reads": felt.millis(0.99) <= bound,
            "writes": felt.written and not felt.lost,
            "deactivations": felt.ended and not felt.not_ended,
            "410": not felt.gone,
            "events": not felt.not_polled and not felt.not_delivered,
            "stream": felt.stream_s < float("inf"),
        }.items()
        if not holds
    ]
    assert faults == []
