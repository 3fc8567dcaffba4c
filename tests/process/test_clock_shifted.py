"""The clock of one of two services of one PostgreSQL jumps three hours ahead and back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, cron, deploy, log_in, register
from service import SHARED_SECRET, Service

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
PROGRAM = str(Path(__file__).parent / "shifted.py")
HOUR_MS = 3_600_000
# A process that was not let onto a processor for seconds still finds the step in doubt.
STEADY_SECONDS = 10.0
OWNER = Wallet(41)
# This ends a hang.
SECONDS_MAX = 120

pytestmark = pytest.mark.skipif(
    not LIBRARIES and "CI" not in os.environ, reason="Debian's libfaketime is not installed (apt-get install faketime)"
)


class Machine:
    """The time of day of one service, which a file moves while it runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.shift("+0")

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(LIBRARIES[0]), "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1", "FAKETIME_TIMESTAMP_FILE": str(self._file), "NO_FAKE_STAT": "1",
        }  # fmt: skip

    def shift(self, by: str) -> None:
        """In one step: a process may read the file at any moment."""
        new = self._file.with_suffix(".new")
        new.write_text(by + "\n")
        new.replace(self._file)


@contextmanager
def two_services(tmp_path: Path, machine: Machine, postgres_url: str) -> Generator[tuple[str, str]]:
    """The URLs of one whose clock is that of `machine`, and of one whose clock is right."""
    common = {
        "MUNIMENT_DATABASE_URL": postgres_url, "MUNIMENT_SECRET": SHARED_SECRET, "STEADY_SECONDS": str(STEADY_SECONDS)
    }  # fmt: skip
    shifted = Service(tmp_path / "shifted", program=[PROGRAM], environment={**common, **machine.environment})
    right = Service(tmp_path / "right", program=[PROGRAM], environment=common)
    with right, shifted:
        yield shifted.url, right.url


@pytest.mark.long
def test_a_clock_that_jumps_ahead_for_a_while_changes_nothing_for_good(tmp_path: Path, postgres_url: str) -> None:
    machine = Machine(tmp_path / "shift")
    with two_services(tmp_path, machine, postgres_url) as (shifted, right):
        asyncio.run(_jump(machine, shifted, right))


async def _jump(machine: Machine, shifted_url: str, right_url: str) -> None:
    async with httpx2.AsyncClient(base_url=shifted_url) as shifted, httpx2.AsyncClient(base_url=right_url) as right:
        ends = cron(endDate=_now_ms() + 2 * HOUR_MS)
        draft = TriggerDraft(await deploy(right), OWNER, config=ends)
        lasting = await register(shifted, draft)
        used = await _signed_login(shifted)
        assert (await shifted.post("/users/authenticate", json=used)).status_code == 200

        machine.shift("+3h")
        reason = await _until(shifted, 503)
        # Once the clock is steady the comparison with the database's gives the reason.
        assert "the clock stepped by +3 h" in reason or " ahead of the database's clock" in reason
        await _check_while_wrong(shifted, right, draft, lasting)
        while " ahead of the database's clock" not in reason:  # steady, at the wrong time: now the comparison finds it
            reason = await _until(shifted, 503)
        await _check_while_wrong(shifted, right, replace(draft, version="3.0.0"), lasting)

        machine.shift("+0")
        await _until(shifted, 200)
        for client in (shifted, right):
            assert (await client.post("/users/authenticate", json=used)).status_code == 401, "a nonce works once"
            await register(client, replace(draft, version="5.0.0" if client is right else "6.0.0"))
            active = ok(await client.get("/triggers", params={"active": "true", "limit": 100})).json()
            assert lasting in active
            assert all(abs(_created_ms(each) - _now_ms()) < 300_000 for each in active)
            others = ok(await client.get("/triggers", params={"active": "false"})).json()
            assert all("deactivateSig" in each for each in others)


async def _check_while_wrong(
    shifted: httpx2.AsyncClient, right: httpx2.AsyncClient, draft: TriggerDraft, lasting: dict[str, Any]
) -> None:
    refused = await shifted.post("/triggers", json=replace(draft, description="New", version="9.0.0").signed())
    assert (refused.status_code, refused.json()["code"]) == (503, "clock-in-doubt")
    await _until(right, 200)
    made = await register(right, replace(draft, version=f"2.{draft.version}".rpartition(".")[0]))
    assert abs(_created_ms(made) - _now_ms()) < 300_000
    for client in (shifted, right):
        assert await log_in(client, OWNER)
        active = ok(await client.get("/triggers", params={"active": "true", "limit": 100})).json()
        assert lasting in active
    gone = await register(right, replace(draft, version=f"7.{draft.version}".rpartition(".")[0], config=cron()))
    consent = {"triggerSigs": [gone["sig"]], "signature": OWNER.sign_deactivation([gone["sig"]])}
    assert (await shifted.post("/triggers/deactivate", json=consent)).status_code == 204


async def _until(client: httpx2.AsyncClient, status: int) -> str:
    """What `/readyz` says once its status is this one."""
    async with asyncio.timeout(SECONDS_MAX):
        while (answer := await client.get("/readyz")).status_code != status:
            await asyncio.sleep(0.05)
    return answer.text


async def _signed_login(client: httpx2.AsyncClient) -> dict[str, str]:
    nonce = ok(await client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    return {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _created_ms(trigger: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(trigger["createdAt"]).timestamp() * 1000)
