"""The transparency log of a registry whose service is killed."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from builders import Bundle, deploy
from muniment.protocol.log.checkpoints import open_checkpoint
from muniment.protocol.log.notes import parse_note, parse_verifier_key
from muniment.protocol.log.tree import complete_hash, leaf_hash, root_hash
from service import Service

SECONDS_MAX = 60.0


def tail_of(data_dir: Path) -> tuple[str, str, list[bytes]] | None:
    """The key, the checkpoint that is shown, and the entries of a log without a full bundle."""
    with closing(sqlite3.connect(data_dir / "muniment.db")) as connection:
        sql = "SELECT vkeys, note FROM tlog_epochs WHERE state = 'open' AND note IS NOT NULL"
        rows = connection.execute(sql).fetchall()
        entries = connection.execute("SELECT entry FROM tlog_tail ORDER BY leaf_index").fetchall()
    return (rows[0][0].split("\n")[0], rows[0][1], [entry for (entry,) in entries]) if rows else None


def root_of(entries: list[bytes]) -> bytes:
    """The root over entries, from nothing else."""
    hashes = [leaf_hash(entry) for entry in entries]
    return root_hash(len(hashes), lambda node: complete_hash(hashes[node.n << node.level : (node.n + 1) << node.level]))


def wait_for(data_dir: Path, size: int) -> None:
    """Wait until the log shows `size` entries, and check that it shows their root."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        found = tail_of(data_dir)
        checkpoint = open_checkpoint(parse_note(found[1].encode()), parse_verifier_key(found[0])) if found else None
        if found and checkpoint and checkpoint.size == size:
            assert checkpoint.root == root_of(found[2][:size])
            return
        assert time.monotonic() < deadline, checkpoint
        time.sleep(0.1)


@pytest.mark.long
async def test_the_log_goes_on_after_a_kill(tmp_path: Path) -> None:
    settings = {"MUNIMENT_TLOG_NAME": "registry.example", "MUNIMENT_TLOG_INTERVAL_S": "1"}
    for turn in range(2):
        with Service(tmp_path / "data", environment=settings) as service:
            async with httpx2.AsyncClient(base_url=service.url) as client:
                wait_for(tmp_path / "data", 2 + 2 * turn)
                for n in range(2):
                    await deploy(client, Bundle(version=f"{turn}.{n}.0"))
            wait_for(tmp_path / "data", 4 + 2 * turn)
            service.kill()
