"""POST /users/nonce: accepted addresses, the answer, and that a request stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import Wallet
from conftest import Clock
from without_server import InProcess

OWNER = Wallet(5)
CHECKSUMMED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"  # EIP-55, section "Test Cases"

Unchanged = Callable[[], Any]


async def ask(client: httpx2.AsyncClient, address: str) -> str:
    response = await client.post("/users/nonce", json={"address": address})
    assert response.status_code == 200, response.text
    return response.json()["nonce"]


async def authenticate(client: httpx2.AsyncClient, wallet: Wallet, nonce: str) -> httpx2.Response:
    login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
    return await client.post("/users/authenticate", json=login)


async def test_answers_the_address_and_a_nonce_of_32_bytes(client: httpx2.AsyncClient) -> None:
    response = await client.post("/users/nonce", json={"address": CHECKSUMMED.lower()})
    body = response.json()
    assert list(body) == ["address", "nonce"]
    assert body["address"] == CHECKSUMMED
    assert len(bytes.fromhex(body["nonce"].removeprefix("0x"))) == 32
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.one_engine
async def test_every_valid_spelling_of_an_address_is_accepted(client: httpx2.AsyncClient) -> None:
    for spelled in (CHECKSUMMED, CHECKSUMMED.lower(), "0x" + CHECKSUMMED[2:].upper()):
        assert ok(await client.post("/users/nonce", json={"address": spelled})).json()["address"] == CHECKSUMMED


REFUSED: dict[str, tuple[object, str]] = {
    "39 digits": (CHECKSUMMED[:-1], "invalid-address"),
    "41 digits": (CHECKSUMMED + "d", "invalid-address"),
    "0X prefix": ("0X" + CHECKSUMMED[2:], "invalid-address"),
    "no prefix": (CHECKSUMMED[2:], "invalid-address"),
    "not hex": ("0x" + "g" * 40, "invalid-address"),
    "arabic digits": ("0x" + "١" * 40, "invalid-address"),
    "wrong checksum": (CHECKSUMMED.replace("aA", "Aa"), "invalid-address"),
    "line end after": (CHECKSUMMED + "\n", "invalid-address"),
    "nul after": (CHECKSUMMED + "\0", "invalid-address"),
    "space before": (" " + CHECKSUMMED, "invalid-address"),
    "ens name": ("vitalik.eth", "invalid-address"),
    "empty": ("", "invalid-address"),
    "null": (None, "invalid-body"),
    "integer of 49 digits": (int(CHECKSUMMED, 16), "invalid-body"),
    "integer": (5, "invalid-body"),
    "list": ([CHECKSUMMED], "invalid-body"),
}


@pytest.mark.one_engine
async def test_other_addresses_are_refused_with_a_pointer(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for row, (address, code) in REFUSED.items():
            with subtests.test(row):
                response = await client.post("/users/nonce", json={"address": address})
                assert (response.status_code, response.json()["code"]) == (400, code)
                assert [fault["pointer"] for fault in response.json()["errors"]] == ["/address"]


@pytest.mark.one_engine
async def test_a_missing_address_is_refused_with_a_pointer(
    client: httpx2.AsyncClient, nothing_stored: Unchanged
) -> None:
    bodies: list[dict[str, str]] = [{}, {"Address": CHECKSUMMED}, {"user": CHECKSUMMED}]
    async with nothing_stored():
        for body in bodies:
            response = await client.post("/users/nonce", json=body)
            assert response.status_code == 400, body
            assert response.json()["errors"] == [{"pointer": "/address", "detail": "address is required"}], body


@pytest.mark.one_engine
async def test_unknown_members_are_ignored(client: httpx2.AsyncClient) -> None:
    response = await client.post("/users/nonce", json={"address": CHECKSUMMED, "chainId": 1, "__proto__": {}})
    assert response.status_code == 200


@pytest.mark.long
async def test_a_thousand_requests_of_a_stranger_store_nothing_and_leave_the_owners_nonce_good(
    client: httpx2.AsyncClient, app: Any, nothing_stored: Unchanged
) -> None:
    nonce = await ask(client, OWNER.address)
    quick = httpx2.AsyncClient(transport=InProcess(app), base_url="http://test")
    async with nothing_stored(), quick:
        seen = {await ask(quick, OWNER.address) for _ in range(1_000)}
    assert len(seen) == 8, "a stranger learns the eight nonces of the window, which only the owner can sign"
    assert (await authenticate(client, OWNER, nonce)).status_code == 200


async def test_asking_for_many_addresses_stores_nothing(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        nonces = {await ask(client, Wallet(1000 + number).address) for number in range(60)}
    assert len(nonces) == 60


async def test_each_window_has_other_nonces(client: httpx2.AsyncClient, clock: Clock) -> None:
    first = {await ask(client, OWNER.address) for _ in range(20)}
    clock.advance(minutes=5)
    assert first.isdisjoint({await ask(client, OWNER.address) for _ in range(20)})


async def test_a_nonce_that_was_used_is_not_given_again(client: httpx2.AsyncClient) -> None:
    used = set[str]()
    for _ in range(8):
        nonce = await ask(client, OWNER.address)
        assert nonce not in used
        used.add(nonce)
        assert (await authenticate(client, OWNER, nonce)).status_code == 200


async def test_the_ninth_login_in_a_window_waits_for_the_next(
    client: httpx2.AsyncClient, clock: Clock, nothing_stored: Unchanged
) -> None:
    for _ in range(8):
        await authenticate(client, OWNER, await ask(client, OWNER.address))
    async with nothing_stored():
        response = await client.post("/users/nonce", json={"address": OWNER.address})
    assert response.status_code == 429
    assert response.json()["code"] == "too-many-logins"
    wait = int(response.headers["retry-after"])
    assert 0 < wait <= 300
    assert len(await ask(client, Wallet(6).address)) == 66  # others are not held up
    clock.advance(seconds=wait)
    assert (await authenticate(client, OWNER, await ask(client, OWNER.address))).status_code == 200
