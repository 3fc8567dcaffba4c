"""Clients that ask for long answers and read nothing: their memory is bounded, and their connections are ended."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

import attacking
from attacked import LIMITS, prepare
from service import Service

MIB = 2**20
GROWTH_BYTES_MAX = 300 * MIB
ATTACK_SECONDS = 40  # longer than an answer may stand still
FALL_SECONDS_MAX = 60


def resident_bytes(service: Service) -> int:
    return int(Path(f"/proc/{service.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(service: Service) -> int:
    return len(list(Path(f"/proc/{service.pid}/fd").iterdir()))


@pytest.mark.timed
async def test_a_thousand_that_never_read_take_bounded_memory_and_are_ended(tmp_path: Path) -> None:
    with Service(tmp_path / "data", environment=LIMITS) as service:
        _, sig = await prepare(service.url)
        before, held = resident_bytes(service), descriptors(service)
        command = [sys.executable, attacking.__file__, "1,000 that never read", service.url.rpartition(":")[2]]
        attacker = await asyncio.create_subprocess_exec(*command, str(ATTACK_SECONDS))
        most = crowd = 0
        statuses: Counter[int] = Counter()
        async with httpx2.AsyncClient(base_url=service.url, timeout=60, trust_env=False) as client:
            while attacker.returncode is None:
                most, crowd = max(most, resident_bytes(service)), max(crowd, descriptors(service))
                statuses[(await client.get(f"/triggers/{sig}")).status_code] += 1
                await asyncio.sleep(0.1)
        assert crowd - held > 500  # they were there
        assert statuses.keys() == {200}, statuses
        assert most - before < GROWTH_BYTES_MAX
        deadline = time.monotonic() + FALL_SECONDS_MAX
        # Half of what is allowed at the height: the allocator keeps some pages for the next answers.
        while descriptors(service) > held + 2 or resident_bytes(service) - before > GROWTH_BYTES_MAX / 2:
            assert time.monotonic() < deadline, (descriptors(service), resident_bytes(service) - before)
            await asyncio.sleep(0.5)
