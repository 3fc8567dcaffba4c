"""The PgBouncer files, with a PgBouncer: session mode works, and the service names transaction mode.

PgBouncer is the one that is installed, or the one that the variable PGBOUNCER names.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from programs import DEPLOY, installed, run

from builders import TriggerDraft, deploy, register
from ports import free_port
from postgres import Cluster, as_user, unprivileged
from service import Service, services_of

NAMED = "a connection pooler in transaction mode is in front of the database: set it to session mode"
WRITES = 30
PYTHON = Path(sys.executable)


def pgbouncer() -> Path:
    return Path(os.environ["PGBOUNCER"]) if "PGBOUNCER" in os.environ else installed("pgbouncer")


def wait_until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline, "PgBouncer does not start"
        time.sleep(0.02)


@contextmanager
def pooler(cluster: Cluster, **changes: str) -> Generator[str]:
    """The URL of the database `site` through PgBouncer with the file of `deploy/`, and `changes` of its lines."""
    user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer-"))
    if user is not None:
        shutil.chown(folder, user.pw_uid, user.pw_gid)
    port = free_port()
    ini = (DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text("utf-8")
    ini = ini.replace("port=5432 dbname=muniment", f"port={cluster.port} dbname=site user=muniment")
    ini += "unix_socket_dir =\n"
    lines = {"listen_port": str(port), "auth_type": "trust", "auth_file": str(folder / "users"), **changes}
    for name, value in lines.items():
        ini, count = re.subn(rf"^{name} = .*$", f"{name} = {value}" if value else "", ini, flags=re.MULTILINE)
        assert count == 1, name
    for name, text in {"users": '"muniment" ""\n', "pgbouncer.ini": ini}.items():
        (folder / name).write_text(text, "utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([pgbouncer(), "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log, **as_user(user))
    try:
        wait_until_it_listens(port)
        yield f"postgresql://muniment@127.0.0.1:{port}/muniment"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        shutil.rmtree(folder)


@pytest.fixture
def cluster() -> Generator[Cluster]:
    """A server with a migrated database, whose role has the settings of `role.sql`."""
    with Cluster(fsync=True) as cluster:
        asyncio.run(prepare(cluster))
        yield cluster


async def prepare(cluster: Cluster) -> None:
    url = await cluster.create_database("site")
    for sql in (DEPLOY / "pgbouncer" / "role.sql").read_text("utf-8").split(";"):
        if sql.strip():
            await cluster.execute(sql)
    done = run(PYTHON, "-m", "muniment", "migrate", MUNIMENT_DATABASE_URL=url)
    assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def client_of(service: Service) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
        yield client


async def write_and_read(services: list[Service]) -> None:
    """Let all processes write at once, and read every trigger from each of them."""
    async with client_of(services[0]) as client:
        cid = await deploy(client)

    async def write(service: Service, number: int) -> str:
        async with client_of(service) as client:
            return (await register(client, TriggerDraft(cid, version=f"1.{number}.0")))["sig"]

    writes = (write(services[number % len(services)], number) for number in range(WRITES))
    sigs = await asyncio.gather(*writes)
    for service in services:
        async with client_of(service) as client:
            reads = await asyncio.gather(*(client.get(f"/triggers/{sig}") for sig in sigs for _ in range(3)))
            assert {answer.status_code for answer in reads} == {200}
            assert len((await client.get("/triggers?limit=100&sort=1")).json()) == WRITES
            assert (await client.get("/readyz")).status_code == 200


@contextmanager
def two_services(folder: Path, url: str) -> Generator[list[Service]]:
    """Two services, which share the sessions of the pooler."""
    first, second = services_of(folder, url)
    with first, second:
        yield [first, second]


async def test_the_shipped_file_serves_in_session_mode(tmp_path: Path, cluster: Cluster) -> None:
    with pooler(cluster) as url:
        done = run(PYTHON, "-m", "muniment", "migrate", MUNIMENT_DATABASE_URL=url)
        assert done.returncode == 0, done.stderr
        with two_services(tmp_path, url) as services:
            await write_and_read(services)


async def test_a_pooler_in_transaction_mode_is_named_and_nothing_is_written(tmp_path: Path, cluster: Cluster) -> None:
    with Service(tmp_path / "data", environment={"MUNIMENT_DATABASE_URL": cluster.url("site")}) as service:
        async with client_of(service) as client:
            cid = await deploy(client)
    with pooler(cluster, pool_mode="transaction") as url:
        service = Service(tmp_path / "data", environment={"MUNIMENT_DATABASE_URL": url}).launch_and_listen()
        try:
            await requests_are_refused(service, cid)
            for command in ("doctor", "migrate"):
                done = run(PYTHON, "-m", "muniment", command, MUNIMENT_DATABASE_URL=url)
                assert done.returncode != 0
                assert NAMED in done.stdout + done.stderr
        finally:
            service.stop()
    assert await cluster.execute("SELECT 1 FROM triggers", "site") == []


async def requests_are_refused(service: Service, cid: str) -> None:
    """Send writes and reads at once: each is a 503 that names the pooler."""
    async with client_of(service) as client:
        bodies = [TriggerDraft(cid, version=f"1.{number}.0").signed() for number in range(WRITES)]
        asked = [client.post("/triggers", json=body) for body in bodies]
        asked += [client.get(path) for path in ("/readyz", "/triggers", "/functions") for _ in range(10)]
        for answer in await asyncio.gather(*asked):
            assert answer.status_code == 503, answer.text
            assert NAMED in answer.text
            assert int(answer.headers["retry-after"]) > 0
