"""The Litestream file, with the service and a wallet's writes: the replica has every acknowledged write."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2
from programs import DEPLOY, packaged, run

from builders import TriggerDraft, deploy, register
from service import Service

CONFIG = DEPLOY / "litestream" / "litestream.yml"
SETTINGS = {"MUNIMENT_BLOCKS_URL": "database:", "MUNIMENT_SECRET": "5e" * 32}
TRIGGERS = 50


async def test_a_restored_replica_has_every_trigger_and_is_verified(tmp_path: Path) -> None:
    replica = tmp_path / "replica"
    with Service(tmp_path / "data", environment=SETTINGS) as service:
        variables = {
            "DATABASE": str(service.data_dir / "muniment.db"),
            "REPLICA_URL": replica.as_uri(),
        }
        with (tmp_path / "log").open("wb") as log:
            litestream = subprocess.Popen(
                [packaged("litestream"), "replicate", "-config", CONFIG],
                env={**os.environ, **variables}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
                cid = await deploy(client)
                for number in range(TRIGGERS):
                    await register(client, TriggerDraft(cid, version=f"1.0.{number}"))
            _wait_for_copy(replica, tmp_path / "log")
        finally:
            litestream.terminate()  # it copies the last changes before it ends
            litestream.wait(timeout=60)
    restored = tmp_path / "restored"
    restored.mkdir()
    words = ("restore", "-o", restored / "muniment.db", replica.as_uri())
    done = run(packaged("litestream"), *words)
    assert done.returncode == 0, done.stderr
    done = run(Path(sys.executable), "-m", "muniment", "verify", "--data-dir", restored, **SETTINGS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"triggers: {TRIGGERS} checked" in done.stdout


def _wait_for_copy(replica: Path, log: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(each.is_file() for each in replica.rglob("*")):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
