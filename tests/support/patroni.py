"""Two PostgreSQL servers under Patroni and an etcd, on this machine.

The programs come from the system: `patroni`, `patronictl`, `etcd`, and PostgreSQL from the directory in `PG_BIN`.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx2

from cuttable_proxy import cuttable_proxy
from patroni_node import CHANGE_SECONDS_MAX, CONFIG, OWNER, PASSWORD, Node, Programs
from ports import free_port
from postgres import as_user, unprivileged

FOLLOW_SECONDS_MAX = 60.0
_PAUSE_SECONDS = 0.05
_SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@dataclass
class PatroniCluster:
    """Two nodes; `primary` led when the cluster was last complete."""

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
        """URL with both nodes, for the service."""
        hosts = ",".join(f"127.0.0.1:{node.ports.clients}" for node in self.nodes)
        return f"postgresql://{OWNER}:{PASSWORD}@{hosts}/site?target_session_attrs=read-write"

    async def until_whole(self) -> None:
        """Wait until one node leads and the other follows it synchronously.

        If the other node does not follow for `FOLLOW_SECONDS_MAX`, reinitialise it, as an operator would.
        """
        for seconds_max in (FOLLOW_SECONDS_MAX, CHANGE_SECONDS_MAX):
            with suppress(TimeoutError):
                return await until(self._is_whole, seconds_max)
            await self._copy_anew()
        raise TimeoutError("no node follows the primary")

    async def _copy_anew(self) -> None:
        """Reinitialise the standby from the leader; do nothing without a leader."""
        for node in self.nodes:
            with suppress(OSError, httpx2.HTTPError, KeyError):
                members = await node.members()
                leader = next((name for name, (role, _) in members.items() if role == "leader"), None)
                if leader is not None:
                    other = next(each for each in self.nodes if each.name != leader)
                    self.copied.append(other.name)
                    other.make_anew()
                    return

    async def _is_whole(self) -> bool:
        """Whether etcd names a synchronous standby, and the primary itself has it."""
        members = await self.nodes[0].members()
        if sorted(role for role, _ in members.values()) != ["leader", "sync_standby"]:
            return False
        self.primary = next(node for node in self.nodes if members[node.name][0] == "leader")
        ((standbys,),) = await self.primary.execute(
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        )
        ((is_standby,),) = await self.standby.execute("SELECT pg_is_in_recovery()")
        return standbys == 1 and is_standby

    async def until_it_takes_writes(self, node: Node) -> float:
        """Wait until `node` commits a write; its monotonic time."""

        async def writes() -> bool:
            ((standby,),) = await node.execute("SELECT pg_is_in_recovery()")
            if not standby:
                await node.execute("INSERT INTO probe DEFAULT VALUES")
            return not standby

        await until(writes)
        return time.monotonic()

    def switch_over(self) -> None:
        """Switch over to the standby, and wait for it."""
        self._control("switchover", "muniment", "--leader", self.primary.name, "--candidate", self.standby.name)

    def _control(self, *words: str) -> None:
        """Run `patronictl`."""
        done = subprocess.run(
            [self.programs.patronictl, "-c", CONFIG, *words, "--force"],
            env=self.primary.environment | {"LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, timeout=CHANGE_SECONDS_MAX, check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


async def until(holds: Callable[[], Awaitable[bool]], seconds_max: float = CHANGE_SECONDS_MAX) -> None:
    """Wait until the condition holds; ask again while a server does not answer."""
    async with asyncio.timeout(seconds_max):
        while True:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, httpx2.HTTPError, KeyError):
                if await holds():
                    return
            await asyncio.sleep(_PAUSE_SECONDS)


@asynccontextmanager
async def patroni_cluster(programs: Programs) -> AsyncGenerator[PatroniCluster]:
    """A complete cluster with the empty database `site`; stopped and removed at the end."""
    user = unprivileged()
    home = Path(tempfile.mkdtemp(prefix="patroni-"))
    if user is not None:
        shutil.chown(home, user.pw_uid, user.pw_gid)
    (home / "patroni.yml").write_text(CONFIG.read_text("utf-8"), "utf-8")  # where that user may read it
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
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
            f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'",
            f"CREATE DATABASE site OWNER {OWNER}",
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
