"""The limit of new records of one wallet in a time, and requests that do not count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from muniment.service.running.settings import Settings

OWNER, OTHER = Wallet(41), Wallet(42)


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", database_url=database_url, log_level="warning", rate_limit_owner="12/24h"
    )


def check_limited(response: httpx2.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (429, "rate-limited")
    problem, wait = response.json(), int(response.headers["retry-after"])
    assert (problem["policy"], problem["violated-policies"]) == ("owner", ["owner"])
    assert 0 < wait == problem["retryAfter"] <= 86_400
    assert response.headers["ratelimit-policy"] == '"owner";q=12;w=86400'
    assert response.headers["ratelimit"] == f'"owner";r=0;t={wait}'


async def test_a_wallet_adds_so_many_triggers_and_repeats_are_free(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client, wallet=OTHER)
    drafts = [TriggerDraft(cid, OWNER, version=f"{number}.0.0") for number in range(13)]
    first = await register(client, drafts[0])
    for _ in range(20):
        assert await register(client, drafts[0]) == first
    for draft in drafts[1:12]:
        await register(client, draft)
    async with nothing_stored():
        check_limited(await client.post("/triggers", json=drafts[12].signed()))
        assert await register(client, drafts[0]) == first
    await register(client, replace(drafts[12], wallet=OTHER))  # the limit of one wallet is no other's


async def test_a_wallet_adds_so_many_functions_and_known_bytes_are_free(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    one, other = Bundle(), Bundle(version="9.9.9")
    for _ in range(3):
        await deploy(client, one, OWNER)
    headers = {"x-api-key": await api_key_of(client, OWNER)}
    async with nothing_stored():
        check_limited(await client.post("/functions", files=other.files, headers=headers))
    await deploy(client, other, OTHER)
    await deploy(client, other, OWNER)


async def test_an_address_is_charged_for_the_bytes_of_all_its_wallets(
    client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    """Sixteen times the twelve units of a wallet, each 32 KiB: 6 MiB, whoever uploads them."""
    for number in range(1, 6):
        await deploy(client, large_bundle(number), Wallet(100 + number))
    headers = {"x-api-key": await api_key_of(client, OTHER)}
    async with nothing_stored():
        refused = await client.post("/functions", files=large_bundle(6).files, headers=headers)
    assert (refused.status_code, refused.json()["policy"]) == (429, "owner")
    assert refused.json()["quota"] == 16 * 12
    await deploy(client, large_bundle(1), OTHER)  # known bytes are not stored again
    await deploy(client, Bundle(version="9.0.0"), OTHER)


def large_bundle(number: int) -> Bundle:
    """A bundle of a megabyte, in a section that a module may have for anything."""
    section = bytes([number]) * (2**20 - 1)
    return Bundle(version=f"{number}.0.0", wasm=Bundle().wasm + b"\0\x80\x80\x40\0" + section)
