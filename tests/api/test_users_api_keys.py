"""API keys: one per address and generation, altered ones refused, and how they are rotated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from builders import Bundle, Wallet, api_key_of, log_in
from conftest import Clock
from muniment.protocol.evm.address import Address
from muniment.service.auth.caller import api_key
from muniment.service.auth.secrets import RingFile, ring_of
from muniment.service.context import Context

OWNER = Wallet(41)

Unchanged = Callable[[], Any]


async def rotate(client: httpx2.AsyncClient, token: str, body: dict[str, Any] | None = None) -> str:
    response = await client.post("/users/api-key/rotate", json=body, headers={"x-auth-token": token})
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    return response.json()["apiKey"]


async def use(client: httpx2.AsyncClient, key: str) -> httpx2.Response:
    """Deploy a bundle: the operation that needs a key. The same bytes again are the first record again."""
    return await client.post("/functions", files=Bundle().files, headers={"x-api-key": key})


async def refuse(client: httpx2.AsyncClient, key: str) -> None:
    response = await use(client, key)
    assert response.status_code == 403, response.text
    assert response.json()["code"] == "invalid-api-key"


async def test_the_key_is_shown_again_at_every_call_and_never_cached(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, OWNER)
    answers = [await client.get("/users/api-key", headers={"x-auth-token": token}) for _ in range(3)]
    assert answers[0].json() == answers[1].json() == answers[2].json()
    assert list(answers[0].json()) == ["address", "apiKey"]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


async def test_twenty_simultaneous_first_calls_get_one_key(client: httpx2.AsyncClient, context: Context) -> None:
    token = await log_in(client, OWNER)
    await context.database.write(lambda tx: tx.execute("DELETE FROM users"))  # as after a restored backup
    headers = {"x-auth-token": token}
    answers = await asyncio.gather(*[client.get("/users/api-key", headers=headers) for _ in range(20)])
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["apiKey"] for answer in answers}) == 1
    assert (await use(client, answers[0].json()["apiKey"])).status_code == 200


async def test_each_address_has_its_own_key(client: httpx2.AsyncClient) -> None:
    first, second = await api_key_of(client, Wallet(1)), await api_key_of(client, Wallet(2))
    assert first != second
    assert (await use(client, first)).json()["creator"] == Wallet(1).address


@pytest.mark.one_engine
async def test_a_missing_key_is_401(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        response = await client.post("/functions", files=Bundle().files)
    assert response.status_code == 401
    assert response.json()["code"] == "missing-credential"
    assert "www-authenticate" in response.headers


@pytest.mark.one_engine
async def test_a_key_in_the_query_string_is_ignored(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    key = await api_key_of(client, OWNER)
    async with nothing_stored():
        for name in ("x-api-key", "apiKey", "api_key", "key"):
            response = await client.post("/functions", files=Bundle().files, params={name: key})
            assert response.status_code == 401, name


async def test_a_token_does_not_serve_as_a_key_nor_a_key_as_a_token(
    client: httpx2.AsyncClient, nothing_stored: Unchanged
) -> None:
    token, key = await log_in(client, OWNER), await api_key_of(client, OWNER)
    async with nothing_stored():
        await refuse(client, token)
        assert (await client.get("/users/api-key", headers={"x-auth-token": key})).status_code == 401


# mnk_<8 hex>_<40 hex>_1_<64 hex>: every place of a key of the first generation.
@pytest.mark.one_engine
async def test_a_key_altered_at_any_place_is_403(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    key = await api_key_of(client, OWNER)
    assert len(key) == 4 + 9 + 41 + 2 + 64
    async with nothing_stored():
        for place, now in enumerate(key):
            other = "0" if now != "0" else "1"
            for spoiled in (key[:place] + other + key[place + 1 :], key[:place] + key[place + 1 :], key[:place]):
                await refuse(client, spoiled)
            if now.isalpha():
                await refuse(client, key[:place] + now.upper() + key[place + 1 :])


SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper case": lambda key: key.upper(),
    "a digit more": lambda key: key + "0",
    "leading zero": lambda key: key.replace("_1_", "_01_"),
    "generation 0": lambda key: key.replace("_1_", "_0_"),
    "generation to come": lambda key: key.replace("_1_", "_2_"),
    "generation above 2^63": lambda key: key.replace("_1_", "_9999999999999999999_"),
    "generation of 18 digits": lambda key: key.replace("_1_", "_999999999999999999_"),
    "negative generation": lambda key: key.replace("_1_", "_-1_"),
    "two in one field": lambda key: f"{key}, {key}",
    "empty": lambda _: "",
    "20 KB": lambda _: "x" * 20_000,
    "SQL": lambda _: "' OR 1=1 --",
    "prefix as hex": lambda key: key.replace("mnk", b"mnk".hex()),
}


@pytest.mark.one_engine
async def test_another_spelling_of_a_key_is_403(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    key = await api_key_of(client, OWNER)
    async with nothing_stored():
        for row, spell in SPELLINGS.items():
            with subtests.test(row):
                await refuse(client, spell(key))


@pytest.mark.one_engine
async def test_a_key_in_latin_1_is_403(client: httpx2.AsyncClient) -> None:
    response = await client.post("/functions", files=Bundle().files, headers=[(b"x-api-key", b"mnk_\xe9\xff")])
    assert response.status_code == 403


async def test_a_key_of_an_address_never_seen_is_403(client: httpx2.AsyncClient, context: Context) -> None:
    for generation in (1, 2):
        await refuse(client, api_key(ring_of(context.secrets()).newest, Address.parse(OWNER.address), generation))


async def test_rotating_gives_a_new_key_that_is_the_current_one(client: httpx2.AsyncClient) -> None:
    token, old = await log_in(client, OWNER), await api_key_of(client, OWNER)
    new = await rotate(client, token)
    assert new != old
    assert await api_key_of(client, OWNER) == new
    assert (await use(client, new)).status_code == 200


async def test_the_previous_key_is_good_until_its_grace_ends(client: httpx2.AsyncClient, clock: Clock) -> None:
    asked: list[tuple[dict[str, Any] | None, int]] = [
        (None, 86_400), ({}, 86_400), ({"graceSeconds": 1}, 1), ({"graceSeconds": 7_776_000}, 7_776_000),
    ]  # fmt: skip
    for number, (body, grace_s) in enumerate(asked, 51):
        token, old = await log_in(client, Wallet(number)), await api_key_of(client, Wallet(number))
        new = await rotate(client, token, body)
        clock.advance(seconds=grace_s - 0.001)
        assert (await use(client, old)).status_code == 200, body
        clock.advance(seconds=0.001)
        await refuse(client, old)
        assert (await use(client, new)).status_code == 200, body


async def test_a_grace_of_0_ends_the_previous_key_immediately(client: httpx2.AsyncClient) -> None:
    token, old = await log_in(client, OWNER), await api_key_of(client, OWNER)
    new = await rotate(client, token, {"graceSeconds": 0})
    await refuse(client, old)
    assert (await use(client, new)).status_code == 200


async def test_only_the_previous_key_is_ever_in_grace(client: httpx2.AsyncClient) -> None:
    token, first = await log_in(client, OWNER), await api_key_of(client, OWNER)
    second = await rotate(client, token)
    third = await rotate(client, token)
    await refuse(client, first)
    assert (await use(client, second)).status_code == 200
    fourth = await rotate(client, token, {"graceSeconds": 0})
    for gone in (first, second, third):
        await refuse(client, gone)
    assert (await use(client, fourth)).status_code == 200


async def test_simultaneous_rotations_are_each_counted(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, OWNER)
    keys = await asyncio.gather(*[rotate(client, token) for _ in range(10)])
    assert len(set(keys)) == 10
    assert await api_key_of(client, OWNER) in keys


@pytest.mark.one_engine
async def test_a_grace_out_of_range_is_400_and_rotates_nothing(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    token, key = await log_in(client, OWNER), await api_key_of(client, OWNER)
    async with nothing_stored():
        for grace in (-1, 7_776_001, "60", 1.5, True, None, 10**30, [0]):
            with subtests.test(repr(grace)):
                asked = {"graceSeconds": grace}
                refused = await client.post("/users/api-key/rotate", json=asked, headers={"x-auth-token": token})
                assert refused.status_code == 400
                assert [fault["pointer"] for fault in refused.json()["errors"]] == ["/graceSeconds"]
    assert (await use(client, key)).status_code == 200


async def test_rotating_for_one_address_leaves_the_others_alone(client: httpx2.AsyncClient) -> None:
    other = await api_key_of(client, Wallet(42))
    await rotate(client, await log_in(client, OWNER), {"graceSeconds": 0})
    assert (await use(client, other)).status_code == 200


async def test_a_key_of_a_replaced_secret_is_good_until_that_secret_is_retired(
    client: httpx2.AsyncClient, context: Context
) -> None:
    ring, old = RingFile(context.settings.data_dir), await api_key_of(client, OWNER)
    ring.rotate()
    assert (await use(client, old)).status_code == 200
    new = await api_key_of(client, OWNER)
    assert new != old
    ring.retire()
    await refuse(client, old)
    assert (await use(client, new)).status_code == 200


async def test_a_rotation_during_an_upload_lets_it_finish(client: httpx2.AsyncClient) -> None:
    token, old = await log_in(client, OWNER), await api_key_of(client, OWNER)
    upload = client.build_request("POST", "/functions", files=Bundle().files, headers={"x-api-key": old})
    body = upload.read()

    async def chunks() -> AsyncIterator[bytes]:
        yield body[:100]
        await rotate(client, token, {"graceSeconds": 0})
        await refuse(client, old)
        yield body[100:]

    headers = {"x-api-key": old, "content-type": upload.headers["content-type"]}
    response = await client.post("/functions", content=chunks(), headers=headers)
    assert response.status_code == 200
    assert (await client.get(f"/functions/{response.json()['CID']}")).json()["creator"] == OWNER.address
