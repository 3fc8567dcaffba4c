"""The Litestream file, beside a service that takes writes: the restored replica has every acknowledged trigger."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from programs import DEPLOY, packaged, run

import s3_server
from builders import TriggerDraft, deploy, register
from service import Service

CONFIG = DEPLOY / "litestream" / "litestream.yml"
SETTINGS = {"MUNIMENT_BLOCKS_URL": "database:", "MUNIMENT_SECRET": "5e" * 32}
WRITERS = 8
TRIGGERS_OF_A_WRITER = 100
FIRST_COPY_SECONDS_MAX = 60  # this ends a hang


@pytest.fixture(params=["file", "s3"])
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables that lead Litestream to a place for the copy: a directory, or a bucket."""
    if request.param == "file":
        yield {"REPLICA_URL": (tmp_path / "replica").as_uri()}
        return
    (tmp_path / "s3").mkdir()
    with s3_server.s3_server(tmp_path / "s3") as (port, _):
        where = f"?endpoint=http://127.0.0.1:{port}&region=us-east-1&forcePathStyle=true"
        # Litestream refuses certificates of its own beside an endpoint, and this server has no TLS.
        yield {"REPLICA_URL": f"s3://blocks/muniment{where}", **s3_server.environment(port), "AWS_CA_BUNDLE": ""}


@contextmanager
def replicating(database: Path, log: Path, replica: dict[str, str]) -> Generator[None]:
    """Litestream, from its first copy to its last one. Ended before the first copy, it would leave nothing."""
    program = packaged("litestream")
    with log.open("wb") as output:
        litestream = subprocess.Popen(
            [program, "replicate", "-config", CONFIG],
            env={**os.environ, **replica, "DATABASE": str(database)}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + FIRST_COPY_SECONDS_MAX
        # The first line is the heading of the list of files.
        while len(run(program, "ltx", replica["REPLICA_URL"], **replica).stdout.splitlines()) < 2:
            assert litestream.poll() is None, log.read_text("utf-8")
            assert time.monotonic() < deadline, log.read_text("utf-8")
            time.sleep(0.1)
        yield
        assert litestream.poll() is None, log.read_text("utf-8")
    finally:
        litestream.terminate()  # it copies the last changes before it ends
        litestream.wait(timeout=60)


async def write(client: httpx2.AsyncClient, cid: str, writer: int) -> set[str]:
    """The signatures of the triggers that the service acknowledged."""
    drafts = (TriggerDraft(cid, version=f"{writer}.0.{number}") for number in range(TRIGGERS_OF_A_WRITER))
    return {(await register(client, draft))["sig"] for draft in drafts}


async def listed(client: httpx2.AsyncClient) -> set[str]:
    """The signatures of all triggers, page by page."""
    found: set[str] = set()
    while page := (await client.get("/triggers", params={"offset": len(found), "limit": 100})).json():
        found |= {each["sig"] for each in page}
    return found


async def test_a_restored_replica_has_every_acknowledged_trigger(tmp_path: Path, replica: dict[str, str]) -> None:
    with Service(tmp_path / "data", environment=SETTINGS) as service:
        database = service.data_dir / "muniment.db"
        with replicating(database, tmp_path / "log", replica):
            async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
                cid = await deploy(client)
                began = time.monotonic()
                sets = await asyncio.gather(*(write(client, cid, writer) for writer in range(WRITERS)))
                seconds = time.monotonic() - began
            service.kill()
    acknowledged = set[str]().union(*sets)
    assert len(acknowledged) == WRITERS * TRIGGERS_OF_A_WRITER
    print(f"\n{len(acknowledged)} triggers, {len(acknowledged) / seconds:.0f} in a second")
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o700)
    words = ("restore", "-o", restored / "muniment.db", replica["REPLICA_URL"])
    done = run(packaged("litestream"), *words, **replica)
    assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text("utf-8")
    done = run(Path(sys.executable), "-m", "muniment", "verify", "--data-dir", restored, **SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    with Service(restored, environment=SETTINGS) as service:
        async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
            assert await listed(client) == acknowledged
