"""One node of a Patroni cluster, on this machine, with `deploy/patroni/patroni.yml`.

Its connections to other programs go through proxies that can be cut.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from cuttable_proxy import CuttableProxy
from ports import free_port
from postgres import as_user, unprivileged

CONFIG = Path(__file__).parents[2] / "deploy" / "patroni" / "patroni.yml"
# A start, a failover or a return on a busy machine.
CHANGE_SECONDS_MAX = 180.0
PASSWORD = "only-on-loopback"
_SUPERUSER, OWNER = "postgres", "muniment"


@dataclass(frozen=True)
class Programs:
    """Paths of the programs of the cluster."""

    patroni: Path
    patronictl: Path
    etcd: Path
    postgres: Path  # a directory


@dataclass(frozen=True)
class _Ports:
    """The ports of a node, and of the proxies in front of them."""

    postgres: int
    rest: int
    clients: int  # the proxy between the service and PostgreSQL
    peers: int  # the proxy between the other node and PostgreSQL
    peers_rest: int
    etcd: int  # the proxy between this Patroni and etcd


class Node:
    """One Patroni with its PostgreSQL."""

    def __init__(self, name: str, home: Path, programs: Programs) -> None:
        """Not started yet; `home` belongs to the user that runs it."""
        self.name = name
        self.ports = _Ports(*(free_port() for _ in range(6)))
        self.proxies: dict[str, CuttableProxy] = {}
        self._home = home
        self._programs = programs
        self._patroni: subprocess.Popen[Any] | None = None
        self._paused: list[int] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables of this node, as the docs list them."""
        ports = self.ports
        return {
            "PATH": os.environ.get("PATH", ""),
            "PATRONI_NAME": self.name,
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{ports.rest}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{ports.peers_rest}",
            "PATRONI_ETCD3_HOSTS": f"127.0.0.1:{ports.etcd}",
            "PATRONI_ETCD3_USE_PROXIES": "true",  # each node asks etcd through its own proxy
            "PATRONI_POSTGRESQL_LISTEN": f"127.0.0.1:{ports.postgres}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"127.0.0.1:{ports.peers}",
            "PATRONI_POSTGRESQL_DATA_DIR": str(self._data),
            "PATRONI_POSTGRESQL_PGPASS": str(self._home / f"{self.name}.pgpass"),
            "PATRONI_POSTGRESQL_BIN_DIR": str(self._programs.postgres),
            "PATRONI_SUPERUSER_USERNAME": _SUPERUSER,
            "PATRONI_SUPERUSER_PASSWORD": PASSWORD,
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": PASSWORD,
        }

    @property
    def _data(self) -> Path:
        return self._home / self.name

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL."""
        with (self._home / f"{self.name}.log").open("ab") as log:
            self._patroni = subprocess.Popen(
                [self._programs.patroni, self._home / "patroni.yml"],
                env=self.environment, stdout=log, stderr=log, cwd=self._home, **as_user(unprivileged()),
            )  # fmt: skip

    def _pids(self) -> list[int]:
        """Patroni, and every process of PostgreSQL: these work in the data directory."""
        assert self._patroni is not None
        pids = [self._patroni.pid]
        for process in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended
                if process.name.isdigit() and str((process / "cwd").readlink()).startswith(str(self._data)):
                    pids.append(int(process.name))
        return pids

    def _signal(self, number: signal.Signals, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill every process of the node, like a power cut."""
        self._signal(signal.SIGKILL, self._pids())
        assert self._patroni is not None
        self._patroni.wait(CHANGE_SECONDS_MAX)

    def make_anew(self) -> None:
        """Restart the node without data: Patroni then copies the primary."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)
        self.start()

    def pause(self) -> None:
        """Stop every process of the node where it is."""
        self._paused = self._pids()
        self._signal(signal.SIGSTOP, self._paused)

    def resume(self) -> None:
        """Resume the processes; PostgreSQL first, so that for a moment Patroni does not watch it."""
        self._signal(signal.SIGCONT, self._paused[1:])
        time.sleep(1)
        self._signal(signal.SIGCONT, self._paused[:1])

    def cut(self, *, from_clients: bool) -> None:
        """Cut the node from etcd and from the other node, and perhaps from its clients."""
        for name, proxy in self.proxies.items():
            if from_clients or name != "clients":
                proxy.cut()

    def heal(self) -> None:
        """Reconnect the node to the network."""
        for proxy in self.proxies.values():
            proxy.heal()

    async def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the superuser, past all proxies."""
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.ports.postgres, user=_SUPERUSER, password=PASSWORD, database=database,
            timeout=3, command_timeout=5,
        )  # fmt: skip
        try:
            return await connection.fetch(sql)
        finally:
            connection.terminate()

    async def members(self) -> dict[str, tuple[str, str]]:
        """Role and state of each member, as this node's Patroni reports them."""
        async with httpx2.AsyncClient(trust_env=False, timeout=3) as client:
            answer = await client.get(f"http://127.0.0.1:{self.ports.rest}/cluster")
        return {each["name"]: (each["role"], each["state"]) for each in answer.json()["members"]}
