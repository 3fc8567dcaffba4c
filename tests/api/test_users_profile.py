"""The profile: a user reads and changes only their own, member by member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from answers import ok
from builders import Wallet, log_in
from muniment.cli.main import main
from muniment.protocol.evm.address import Address
from muniment.protocol.users.types import Email
from muniment.service.context import Context
from muniment.service.resources.users.store import set_email

OWNER = Wallet(5)
PATH = f"/users/{OWNER.address}/data"
EMPTY = {"userAddress": OWNER.address, "name": "", "intendedUse": "", "email": None}


@pytest.fixture
async def owner(client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """The client, logged in as the owner."""
    client.headers["x-auth-token"] = await log_in(client, OWNER)
    return client


async def test_the_first_login_makes_an_empty_profile(owner: httpx2.AsyncClient) -> None:
    response = await owner.get(PATH)
    assert response.json() == EMPTY
    assert response.headers["cache-control"] == "no-store"


async def test_an_update_changes_the_members_that_it_names_and_no_other(owner: httpx2.AsyncClient) -> None:
    first = await owner.post(PATH, json={"name": "Ada", "intendedUse": "Rebalancing"})
    assert first.json() == {**EMPTY, "name": "Ada", "intendedUse": "Rebalancing"}
    assert first.headers["cache-control"] == "no-store"
    assert (await owner.post(PATH, json={"intendedUse": ""})).json() == {**EMPTY, "name": "Ada"}
    assert (await owner.get(PATH)).json() == {**EMPTY, "name": "Ada"}


@pytest.mark.one_engine
async def test_ones_own_address_may_be_in_another_letter_case(owner: httpx2.AsyncClient) -> None:
    for spelled in (OWNER.address.lower(), "0x" + OWNER.address[2:].upper()):
        assert ok(await owner.get(f"/users/{spelled}/data")).json() == EMPTY, spelled


async def test_another_users_profile_is_403_whether_or_not_there_is_one(
    owner: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    await log_in(owner, Wallet(6))
    async with nothing_stored():
        answers = [
            answer
            for other in (Wallet(6), Wallet(7))
            for answer in (
                await owner.get(f"/users/{other.address}/data"),
                await owner.post(f"/users/{other.address}/data", json={"name": "Eve"}),
            )
        ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(403, "foreign-profile")] * 4
    details = {answer.json()["detail"] for answer in answers}
    assert details == {"only its own address may read or change a profile"}


WRONG: list[tuple[Any, str, str]] = [
    ({"email": "ada@example.org"}, "invalid-body", "/email"),
    ({"email": None}, "invalid-body", "/email"),
    ({"name": "Ada", "email": "ada@example.org"}, "invalid-body", "/email"),
    ({"intendedUse": "x" * 256}, "invalid-text", "/intendedUse"),
    ({"name": "x" * 101}, "invalid-text", "/name"),
    ({"name": "a\0b"}, "invalid-text", "/name"),
    ({"intendedUse": "\0"}, "invalid-text", "/intendedUse"),
    ({"name": 5}, "invalid-body", "/name"),
    ({"name": None}, "invalid-body", "/name"),
    ([], "invalid-body", ""),
]


@pytest.mark.one_engine
async def test_a_wrong_update_is_400_and_changes_nothing(
    owner: httpx2.AsyncClient, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for body, code, pointer in WRONG:
            with subtests.test(repr(body)[:60]):
                response = await owner.post(PATH, json=body)
                problem = response.json()
                assert (response.status_code, problem["code"], problem["errors"][0]["pointer"]) == (400, code, pointer)


@pytest.mark.one_engine
async def test_half_a_surrogate_pair_is_400(owner: httpx2.AsyncClient, nothing_stored: Callable[[], Any]) -> None:
    headers = {"content-type": "application/json"}
    async with nothing_stored():
        response = await owner.post(PATH, content=b'{"name":"\\ud800"}', headers=headers)
    assert (response.status_code, response.json()["code"]) == (400, "invalid-json")


async def test_a_text_is_kept_as_it_was_given(owner: httpx2.AsyncClient) -> None:
    for text in ("😀" * 255, "<script>alert(1)</script>", '=cmd("x")', "\u202eabc", "  "):
        update = {"intendedUse": text, "name": text[:100]}
        assert ok(await owner.post(PATH, json=update)).json() == {**EMPTY, **update}
        assert ok(await owner.get(PATH)).json() == {**EMPTY, **update}


async def test_an_empty_update_is_200_and_changes_nothing(
    owner: httpx2.AsyncClient, nothing_stored: Callable[[], Any]
) -> None:
    async with nothing_stored():
        assert (await owner.post(PATH, json={})).json() == EMPTY


async def test_simultaneous_updates_of_different_members_are_both_kept(owner: httpx2.AsyncClient) -> None:
    for number in range(8):
        await asyncio.gather(
            owner.post(PATH, json={"name": f"n{number}"}), owner.post(PATH, json={"intendedUse": f"u{number}"})
        )
        assert (await owner.get(PATH)).json() == {**EMPTY, "name": f"n{number}", "intendedUse": f"u{number}"}


@pytest.mark.one_engine
async def test_without_a_token_it_is_401(client: httpx2.AsyncClient) -> None:
    assert (await client.get(PATH)).status_code == 401
    assert (await client.post(PATH, json={})).status_code == 401


@pytest.mark.one_engine
async def test_a_malformed_address_is_400(owner: httpx2.AsyncClient) -> None:
    assert (await owner.get("/users/0x12/data")).json()["errors"][0]["parameter"] == "address"


async def test_an_email_that_an_operator_set_is_in_profile_and_login(
    owner: httpx2.AsyncClient, context: Context
) -> None:
    email = Email.parse("ada@example.org")
    assert await context.database.write(lambda tx: set_email(tx, Address(OWNER.address), email))
    assert (await owner.get(PATH)).json() == {**EMPTY, "email": email}
    nonce = (await owner.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    login = {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}
    assert (await owner.post("/users/authenticate", json=login)).json()["email"] == email
    assert (await owner.post(PATH, json={"name": "Ada"})).json()["email"] == email


async def test_the_command_sets_and_removes_an_email(owner: httpx2.AsyncClient, context: Context) -> None:
    data = ["--data-dir", str(context.settings.data_dir)]
    runner = CliRunner(env={"MUNIMENT_DATABASE_URL": context.settings.database_url})

    async def run(*arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(runner.invoke, main, ["users", "set-email", *data, *arguments])
        return result.exit_code, result.output

    assert await run(OWNER.address, "ada@example.org") == (0, f"{OWNER.address} has the email ada@example.org\n")
    assert (await owner.get(PATH)).json()["email"] == "ada@example.org"
    for wrong in ("ada", "ada@", "@example.org", "ada@example", "a b@example.org", "x" * 65 + "@example.org"):
        status, said = await run(OWNER.address, wrong)
        assert (status, "not an email address" in said) == (1, True)
    assert (await run(Wallet(9).address, "eve@example.org")) == (1, f"Error: {Wallet(9).address} has never logged in\n")
    assert (await owner.get(PATH)).json()["email"] == "ada@example.org"
    assert await run(OWNER.address) == (0, f"the email of {OWNER.address} is removed\n")
    assert (await owner.get(PATH)).json()["email"] is None
