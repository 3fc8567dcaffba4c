"""How long a nonce is good when the clock jumps; random signatures are refused and cause no error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from builders import Wallet
from conftest import NOW_MS, Clock
from muniment.service.app import Application, build_context
from muniment.service.auth.nonces import WINDOW_MS
from muniment.service.running.settings import Settings
from without_server import InProcess

OWNER = Wallet(21)
WINDOW_START_MS = NOW_MS - NOW_MS % WINDOW_MS

Unchanged = Callable[[], Any]


async def signed_nonce(client: httpx2.AsyncClient) -> dict[str, str]:
    nonce = (await client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    return {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}


async def status_of(client: httpx2.AsyncClient, login: dict[str, str]) -> int:
    return (await client.post("/users/authenticate", json=login)).status_code


USES = {
    "a clock behind": (-1, 200),
    "one window back": (-WINDOW_MS, 200),
    "two windows back": (-WINDOW_MS - 1, 401),
    "last moment of the next window": (2 * WINDOW_MS - 1, 200),
    "two windows on": (2 * WINDOW_MS, 401),
    "an hour back": (-3_600_000, 401),
    "an hour on": (3_600_000, 401),
}


@pytest.mark.parametrize("asked_after_ms", [0, WINDOW_MS - 1], ids=["window-begins", "window-ends"])
async def test_a_nonce_is_good_in_its_window_and_in_those_beside_it(
    client: httpx2.AsyncClient, clock: Clock, asked_after_ms: int, subtests: pytest.Subtests
) -> None:
    for row, (used_at_ms, status) in USES.items():
        clock.now_ms = WINDOW_START_MS + asked_after_ms
        login = await signed_nonce(client)
        clock.now_ms = WINDOW_START_MS + used_at_ms
        with subtests.test(row):
            assert await status_of(client, login) == status


async def test_a_clock_that_was_an_hour_ahead_leaves_no_eternal_nonce(client: httpx2.AsyncClient, clock: Clock) -> None:
    login = await signed_nonce(client)
    clock.advance(hours=-1)
    assert await status_of(client, login) == 401
    assert await status_of(client, await signed_nonce(client)) == 200
    clock.advance(hours=1)
    assert await status_of(client, login) == 200, "back in its window it is a fresh nonce"
    for _ in range(6):
        clock.advance(hours=1)
        assert await status_of(client, login) == 401


async def test_a_clock_at_the_ends_of_time_does_no_harm(client: httpx2.AsyncClient, clock: Clock) -> None:
    for now_ms in (0, 1, 8_640_000_000_000_000):
        clock.now_ms = now_ms
        assert await status_of(client, await signed_nonce(client)) == 200, now_ms


async def test_a_used_nonce_stays_used_while_it_could_be_accepted(client: httpx2.AsyncClient, clock: Clock) -> None:
    clock.now_ms = WINDOW_START_MS
    login = await signed_nonce(client)
    assert await status_of(client, login) == 200
    for _ in range(10):
        clock.advance(minutes=1)
        assert await status_of(client, login) == 401
        if clock.now_ms % WINDOW_MS == 0:  # a login in each window, which clears rows away
            assert await status_of(client, await signed_nonce(client)) == 200


@pytest.mark.long
@pytest.mark.one_engine
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(raw=st.binary(min_size=65, max_size=65) | st.binary(min_size=64, max_size=64).map(lambda rs: rs + b"\x1b"))
def test_random_signatures_are_refused_and_cause_no_error(raw: bytes, tmp_path: Path) -> None:
    async def answer() -> httpx2.Response:
        context = build_context(Settings(data_dir=tmp_path, log_level="warning"), now_ms=Clock())
        await context.database.migrate()
        transport = InProcess(Application(context))
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                login = {"address": OWNER.address, "signature": "0x" + raw.hex()}
                return await client.post("/users/authenticate", json=login)
        finally:
            await context.database.close()

    response = asyncio.run(answer())
    assert response.status_code in {400, 401}
    assert response.json()["code"] in {"invalid-signature", "login-failed"}
