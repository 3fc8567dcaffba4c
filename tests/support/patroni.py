"""Two PostgreSQL servers under Patroni and an etcd, on this machine, with `deploy/patroni/patroni.yml`.

All connections between two programs lead through proxies that can be cut, so a node can lose its network. The programs
come from the system: `patroni`, `patronictl`, `etcd`, and PostgreSQL from the directory in `PG_BIN`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from cuttable_proxy import CuttableProxy, cuttable_proxy
from ports import free_port
from postgres import as_user, unprivileged

CONFIG = Path(__file__).parents[2] / "deploy" / "patroni" / "patroni.yml"
# A start, a failover or a return on a busy machine.
CHANGE_SECONDS_MAX = 180.0
FOLLOW_SECONDS_MAX = 60.0
_PAUSE_SECONDS = 0.05
_PASSWORD = "only-on-loopback"
_SUPERUSER, _OWNER = "postgres", "muniment"


@dataclass(frozen=True)
class Programs:
    """Where the programs of the cluster are."""

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
            "PATRONI_SUPERUSER_PASSWORD": _PASSWORD,
            "PATRONI_REPLICATION_USERNAME": "replicator",
            "PATRONI_REPLICATION_PASSWORD": _PASSWORD,
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
        """End every process of the node, as a power cut would."""
        self._signal(signal.SIGKILL, self._pids())
        assert self._patroni is not None
        self._patroni.wait(CHANGE_SECONDS_MAX)

    def make_anew(self) -> None:
        """End the node, and start it without data: Patroni then copies the primary."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)
        self.start()

    def pause(self) -> None:
        """Stop every process of the node where it is."""
        self._paused = self._pids()
        self._signal(signal.SIGSTOP, self._paused)

    def resume(self) -> None:
        """Let the processes go on; PostgreSQL first, so that for a moment no Patroni watches it."""
        self._signal(signal.SIGCONT, self._paused[1:])
        time.sleep(1)
        self._signal(signal.SIGCONT, self._paused[:1])

    def cut(self, *, from_clients: bool) -> None:
        """Cut the node from etcd and from the other node, and perhaps from its clients."""
        for name, proxy in self.proxies.items():
            if from_clients or name != "clients":
                proxy.cut()

    def heal(self) -> None:
        """Join the node to the network again."""
        for proxy in self.proxies.values():
            proxy.heal()

    async def execute(self, sql: str, database: str = "postgres") -> list[Any]:
        """Run a statement as the superuser, past all proxies."""
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.ports.postgres, user=_SUPERUSER, password=_PASSWORD, database=database,
            timeout=3, command_timeout=5,
        )  # fmt: skip
        try:
            return await connection.fetch(sql)
        finally:
            connection.terminate()

    async def members(self) -> dict[str, tuple[str, str]]:
        """The role and the state of each member, as this node's Patroni tells them."""
        async with httpx2.AsyncClient(trust_env=False, timeout=3) as client:
            answer = await client.get(f"http://127.0.0.1:{self.ports.rest}/cluster")
        return {each["name"]: (each["role"], each["state"]) for each in answer.json()["members"]}


@dataclass
class PatroniCluster:
    """Two nodes; `primary` is the one that led when the cluster was last whole."""

    nodes: list[Node]
    programs: Programs
    primary: Node
    # Nodes that had to be copied anew.
    copied: list[str] = field(default_factory=list[str])

    @property
    def standby(self) -> Node:
        """The node that is to take over."""
        return next(node for node in self.nodes if node is not self.primary)

    @property
    def url(self) -> str:
        """The URL that names both nodes, for the service."""
        hosts = ",".join(f"127.0.0.1:{node.ports.clients}" for node in self.nodes)
        return f"postgresql://{_OWNER}:{_PASSWORD}@{hosts}/site?target_session_attrs=read-write"

    async def until_whole(self) -> None:
        """Wait until one node leads and the other one follows it synchronously.

        If the other node does not follow for `FOLLOW_SECONDS_MAX`, it is copied anew, as an operator would do.
        """
        for seconds_max in (FOLLOW_SECONDS_MAX, CHANGE_SECONDS_MAX):
            with suppress(TimeoutError):
                return await until(self._is_whole, seconds_max)
            await self._copy_anew()
        raise TimeoutError("no node follows the primary")

    async def _copy_anew(self) -> None:
        """Make the node that does not lead from the one that leads."""
        for node in self.nodes:
            with suppress(OSError, asyncpg.PostgresError):
                ((standby,),) = await node.execute("SELECT pg_is_in_recovery()")
                if not standby:
                    continue
            self.copied.append(node.name)
            node.make_anew()
            return

    async def _is_whole(self) -> bool:
        members = await self.nodes[0].members()
        for node in self.nodes:
            if members.get(node.name) == ("leader", "running"):
                self.primary = node
        return sorted(role for role, state in members.values() if state in {"running", "streaming"}) == [
            "leader",
            "sync_standby",
        ]

    async def until_it_takes_writes(self, node: Node) -> float:
        """Wait until `node` commits a write; the monotonic time of it."""

        async def writes() -> bool:
            ((standby,),) = await node.execute("SELECT pg_is_in_recovery()")
            if not standby:
                await node.execute("INSERT INTO probe DEFAULT VALUES")
            return not standby

        await until(writes)
        return time.monotonic()

    def switch_over(self) -> None:
        """Ask Patroni to make the standby the primary; returns when it is."""
        self._control("switchover", "muniment", "--leader", self.primary.name, "--candidate", self.standby.name)

    def _control(self, *words: str) -> None:
        """Run `patronictl` as an operator does."""
        done = subprocess.run(
            [self.programs.patronictl, "-c", CONFIG, *words, "--force"],
            env=self.primary.environment | {"LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, timeout=CHANGE_SECONDS_MAX, check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


async def until(holds: Callable[[], Awaitable[bool]], seconds_max: float = CHANGE_SECONDS_MAX) -> None:
    """Wait until it holds; a server that does not answer yet is asked again."""
    async with asyncio.timeout(seconds_max):
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, httpx2.HTTPError, KeyError):
                if await holds():
                    return
            await asyncio.sleep(_PAUSE_SECONDS)


@asynccontextmanager
async def patroni_cluster(programs: Programs) -> AsyncGenerator[PatroniCluster]:
    """A whole cluster with the empty database `site`; everything is stopped and removed at the end."""
    user = unprivileged()
    home = Path(tempfile.mkdtemp(prefix="patroni-"))
    if user is not None:
        shutil.chown(home, user.pw_uid, user.pw_gid)
    (home / "patroni.yml").write_text(CONFIG.read_text("utf-8"), "utf-8")  # where that user may read it
    async with AsyncExitStack() as stack:
        # KEEP stack.callback(shutil.rmtree, home, ignore_errors=True)
        etcd_port = _start_etcd(stack, programs.etcd, home)
        nodes = [Node(name, home, programs) for name in ("north", "south")]
        for node in nodes:
            for name, target in {"clients": "postgres", "peers": "postgres", "peers_rest": "rest"}.items():
                line = cuttable_proxy(getattr(node.ports, name), getattr(node.ports, target))
                node.proxies[name] = await stack.enter_async_context(line)
            node.proxies["etcd"] = await stack.enter_async_context(cuttable_proxy(node.ports.etcd, etcd_port))
            node.start()
            stack.callback(node.kill)
        cluster = PatroniCluster(nodes, programs, nodes[0])
        await cluster.until_whole()
        for sql in (
            f"CREATE ROLE {_OWNER} LOGIN PASSWORD '{_PASSWORD}'",
            f"CREATE DATABASE site OWNER {_OWNER}",
            "CREATE TABLE probe (number bigserial)",
        ):
            await cluster.primary.execute(sql)
        yield cluster


def _start_etcd(stack: AsyncExitStack, program: Path, home: Path) -> int:
    """Start one etcd; its port."""
    port, peers = free_port(), free_port()
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    with (home / "etcd.log").open("ab") as log:
        etcd = subprocess.Popen(
            [program, "--name", "only", "--data-dir", home / "etcd", "--listen-client-urls", client,
             "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"only={peer}", "--logger", "zap"],
            stdout=log, stderr=log, cwd=home, **as_user(unprivileged()),
        )  # fmt: skip

    def stop() -> None:
        etcd.kill()
        etcd.wait(CHANGE_SECONDS_MAX)

    stack.callback(stop)
    return port
