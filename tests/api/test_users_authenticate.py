"""POST /users/authenticate: logins that get a token, and the one answer to all others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import jwt
import pytest
from trigger_world import check_refusal

from answers import ok
from applications import client_of
from builders import Wallet
from conftest import Clock
from muniment.service.app import Application
from muniment.service.context import Context

OWNER, STRANGER = Wallet(11), Wallet(12)
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

Unchanged = Callable[[], Any]


async def ask(client: httpx2.AsyncClient, wallet: Wallet = OWNER) -> str:
    response = await client.post("/users/nonce", json={"address": wallet.address})
    assert response.status_code == 200, response.text
    return response.json()["nonce"]


async def send(client: httpx2.AsyncClient, signature: str, address: str = OWNER.address) -> httpx2.Response:
    return await client.post("/users/authenticate", json={"address": address, "signature": signature})


def parts(signature: str) -> tuple[int, int, int]:
    raw = bytes.fromhex(signature[2:])
    return int.from_bytes(raw[:32]), int.from_bytes(raw[32:64]), raw[64]


def spelled(r: int, s: int, v: int) -> str:
    return f"0x{r:064x}{s:064x}{v:02x}"


async def test_answers_address_and_token_and_leaves_email_out(client: httpx2.AsyncClient) -> None:
    response = await send(client, OWNER.sign_text(await ask(client)), OWNER.address.lower())
    assert response.status_code == 200
    assert list(response.json()) == ["address", "token"]
    assert response.json()["address"] == OWNER.address
    assert response.headers["cache-control"] == "no-store"


async def test_answers_the_email_that_an_operator_has_set(client: httpx2.AsyncClient, context: Context) -> None:
    await send(client, OWNER.sign_text(await ask(client)))
    email = "owner@example.org"
    await context.database.write(lambda tx: tx.execute("UPDATE users SET email = ?", (email,)))
    assert ok(await send(client, OWNER.sign_text(await ask(client)))).json()["email"] == email


async def test_the_token_names_its_user_its_issuer_and_its_lifetime(client: httpx2.AsyncClient, clock: Clock) -> None:
    tokens = [ok(await send(client, OWNER.sign_text(await ask(client)))).json()["token"] for _ in range(2)]
    first, second = (jwt.decode(token, options={"verify_signature": False}) for token in tokens)
    now_s = clock.now_ms // 1000
    assert {**first, "jti": "-"} == {
        "iss": "muniment", "aud": "muniment", "sub": OWNER.address,
        "iat": now_s, "nbf": now_s, "exp": now_s + 86_400, "jti": "-",
    }  # fmt: skip
    assert first["jti"] != second["jti"]
    header = jwt.get_unverified_header(tokens[0])
    assert header == {"alg": "EdDSA", "typ": "JWT", "kid": header["kid"]}


async def send_asking(client: httpx2.AsyncClient, signature: str, lifetime: object) -> httpx2.Response:
    body = {"address": OWNER.address, "signature": signature, "lifetimeSeconds": lifetime}
    return await client.post("/users/authenticate", json=body)


async def test_a_token_lives_as_long_as_its_user_asks(client: httpx2.AsyncClient, clock: Clock) -> None:
    for asked, given in ((60, 60), (3_600, 3_600), (86_400, 86_400), (None, 86_400)):
        answer = ok(await send_asking(client, OWNER.sign_text(await ask(client)), asked))
        headers = {"x-auth-token": answer.json()["token"]}
        clock.now_ms = (clock.now_ms // 1_000 + given) * 1_000 - 1
        assert (await client.get("/users/api-key", headers=headers)).status_code == 200, asked
        clock.now_ms += 1
        assert (await client.get("/users/api-key", headers=headers)).status_code == 401, asked


@pytest.mark.one_engine
async def test_another_lifetime_is_refused_and_the_nonce_stays_good(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    signature = OWNER.sign_text(await ask(client))
    async with nothing_stored():
        for asked in (0, 59, -60, 86_401, 2**53, 10**30, 60.5, "60", True, [60]):
            with subtests.test(repr(asked)):
                response = await send_asking(client, signature, asked)
                check_refusal(response, 400, "invalid-body", pointer="/lifetimeSeconds")
    assert (await send(client, signature)).status_code == 200


async def test_the_longest_lifetime_is_that_of_the_settings(context: Context, nothing_stored: Unchanged) -> None:
    short = replace(context, settings=replace(context.settings, token_lifetime_s=120))
    async with client_of(Application(short)) as client:
        signature = OWNER.sign_text(await ask(client))
        async with nothing_stored():
            refused = await send_asking(client, signature, 121)
        problem = check_refusal(refused, 400, "invalid-body", pointer="/lifetimeSeconds")
        assert "at most 120 seconds" in problem["detail"]
        token = (await send(client, signature)).json()["token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 120


async def test_a_nonce_is_good_for_one_login(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    signature = OWNER.sign_text(await ask(client))
    assert (await send(client, signature)).status_code == 200
    async with nothing_stored():
        assert (await send(client, signature)).status_code == 401


async def test_text_and_bytes_of_one_nonce_are_one_login(client: httpx2.AsyncClient) -> None:
    nonce = await ask(client)
    assert (await send(client, OWNER.sign_text(nonce))).status_code == 200
    assert (await send(client, OWNER.sign_bytes(bytes.fromhex(nonce[2:])))).status_code == 401


async def test_every_cause_of_a_failed_login_has_the_same_answer(
    client: httpx2.AsyncClient, clock: Clock, nothing_stored: Unchanged
) -> None:
    used = OWNER.sign_text(await ask(client))
    await send(client, used)
    foreign = OWNER.sign_text(await ask(client, STRANGER))
    stale = OWNER.sign_text(await ask(client))
    clock.advance(minutes=11)
    failures = {
        "used and expired": (used, OWNER.address),
        "expired": (stale, OWNER.address),
        "nonce of another address": (foreign, OWNER.address),
        "never issued": (OWNER.sign_text("0x" + "ab" * 32), OWNER.address),
        "no nonce at all": (OWNER.sign_text("log me in"), OWNER.address),
        "address never seen": (OWNER.sign_text(await ask(client)), Wallet(4711).address),
        "another key": (STRANGER.sign_text(await ask(client)), OWNER.address),
        "no point of the curve": (spelled(5, 1, 27), OWNER.address),
    }
    async with nothing_stored():
        answers = {cause: await send(client, *failure) for cause, failure in failures.items()}
    bodies = {cause: {**answer.json(), "requestId": ""} for cause, answer in answers.items()}
    assert {answer.status_code for answer in answers.values()} == {401}
    assert all(body == bodies["expired"] for body in bodies.values()), bodies
    headers = [{**answer.headers, "x-request-id": ""} for answer in answers.values()]
    assert all(each == headers[0] for each in headers), headers
    assert headers[0]["www-authenticate"].startswith("Bearer ")


async def test_five_devices_log_in_at_the_same_time(client: httpx2.AsyncClient) -> None:
    nonces = [await ask(client) for _ in range(5)]
    answers = [await send(client, OWNER.sign_text(nonce)) for nonce in nonces]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.json()["token"] for answer in answers}) == 5


async def test_five_devices_log_in_one_after_the_other(client: httpx2.AsyncClient, clock: Clock) -> None:
    for _ in range(5):
        assert (await send(client, OWNER.sign_text(await ask(client)))).status_code == 200
        clock.advance(seconds=12)


def high_s(signature: str) -> str:
    r, s, v = parts(signature)
    return spelled(r, ORDER - s, 55 - v)


def changed(**given: int) -> Callable[[str], str]:
    def change(signature: str) -> str:
        r, s, v = parts(signature)
        return spelled(given.get("r", r), given.get("s", s), given.get("v", v))

    return change


NOT_CANONICAL: dict[str, Callable[[str], Any]] = {
    "high-s twin": high_s,
    **{f"v={v}": changed(v=v) for v in (2, 26, 29, 37, 255)},
    "r=0": changed(r=0),
    "s=0": changed(s=0),
    "r=n": changed(r=ORDER),
    "r=2^256-1": changed(r=2**256 - 1),
    "s=n": changed(s=ORDER),
    "64 bytes": lambda signature: signature[:-2],
    "66 bytes": lambda signature: signature + "00",
    "odd digits": lambda signature: signature[:-1],
    "no 0x": lambda signature: signature[2:],
    "0X": lambda signature: "0X" + signature[2:],
    "line end": lambda signature: signature + "\n",
    "empty": lambda _: "",
    "null": lambda _: None,
    "number": lambda signature: int(signature[:20], 16),
}


@pytest.mark.one_engine
async def test_a_signature_that_is_not_canonical_is_400_and_the_nonce_stays_good(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    signature = OWNER.sign_text(await ask(client))
    async with nothing_stored():
        for row, spoil in NOT_CANONICAL.items():
            with subtests.test(row):
                response = await send(client, spoil(signature))
                assert response.status_code == 400
                assert [fault["pointer"] for fault in response.json()["errors"]] == ["/signature"]
    assert (await send(client, signature)).status_code == 200


@pytest.mark.one_engine
async def test_v_0_and_1_are_lifted(client: httpx2.AsyncClient) -> None:
    signed: list[tuple[Wallet, str]] = []
    for wallet in map(Wallet, range(40, 104)):  # nonces are random, so v is that of a tossed coin
        signed.append((wallet, wallet.sign_text(await ask(client, wallet))))
        if {parts(signature)[2] for _, signature in signed} == {27, 28}:
            break
    assert {parts(signature)[2] for _, signature in signed} == {27, 28}
    for wallet, signature in signed:
        r, s, v = parts(signature)
        assert (await send(client, spelled(r, s, v - 27), wallet.address)).status_code == 200
        assert (await send(client, spelled(r, s, v), wallet.address)).status_code == 401, "the same login twice"


async def test_a_signature_in_upper_case_is_the_same(client: httpx2.AsyncClient) -> None:
    signature = OWNER.sign_text(await ask(client))
    assert (await send(client, "0x" + signature[2:].upper())).status_code == 200


async def test_the_nonce_may_be_signed_as_text_or_as_bytes(client: httpx2.AsyncClient) -> None:
    assert (await send(client, OWNER.sign_text(await ask(client)))).status_code == 200
    raw = bytes.fromhex((await ask(client))[2:])
    assert (await send(client, OWNER.sign_bytes(raw))).status_code == 200


@pytest.mark.one_engine
async def test_another_form_of_the_nonce_is_refused(client: httpx2.AsyncClient) -> None:
    nonce = await ask(client)
    for form in (nonce.upper(), nonce[2:], nonce + " "):
        assert (await send(client, OWNER.sign_text(form))).status_code == 401, form


async def test_the_signature_of_another_wallet_leaves_the_owners_nonce_good(
    client: httpx2.AsyncClient, nothing_stored: Unchanged
) -> None:
    nonce = await ask(client)
    async with nothing_stored():
        assert (await send(client, STRANGER.sign_text(nonce))).status_code == 401
    assert (await send(client, OWNER.sign_text(nonce))).status_code == 200
