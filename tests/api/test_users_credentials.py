"""How a token is sent, requests with two tokens, and a check of a token with the published keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import jwt
import pytest

from builders import Wallet, api_key_of, log_in
from muniment.service.auth.secrets import RingFile
from muniment.service.context import Context

Unchanged = Callable[[], Any]
Headers = list[tuple[str, str]]


@pytest.mark.one_engine
async def test_bearer_is_the_same_as_x_auth_token(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, Wallet(1))
    for headers in (
        {"authorization": f"Bearer {token}"},
        {"authorization": f"bearer {token}"},
        {"authorization": f"Bearer {token}", "x-auth-token": token},
        {"authorization": "Basic dXNlcjpwYXNz", "x-auth-token": token},
    ):
        response = await client.get("/users/api-key", headers=headers)
        assert response.status_code == 200, headers
        assert response.json()["address"] == Wallet(1).address


@pytest.mark.one_engine
async def test_another_scheme_is_not_accepted_as_a_credential(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, Wallet(1))
    response = await client.get("/users/api-key", headers={"authorization": f"Basic {token}"})
    assert response.status_code == 401
    assert response.json()["code"] == "missing-credential"


TWO_TOKENS: dict[str, Callable[[str, str], Headers]] = {
    "both, different": lambda a, b: [("x-auth-token", a), ("authorization", f"Bearer {b}")],
    "x-auth-token twice, different": lambda a, b: [("x-auth-token", a), ("x-auth-token", b)],
    "x-auth-token twice, equal": lambda a, _: [("x-auth-token", a), ("x-auth-token", a)],
    "x-auth-token twice, one empty": lambda a, _: [("x-auth-token", a), ("x-auth-token", "")],
    "bearer twice": lambda a, _: [("authorization", f"Bearer {a}")] * 2,
    "one of them no token": lambda a, _: [("x-auth-token", a), ("authorization", "Bearer x")],
}


@pytest.mark.one_engine
async def test_two_tokens_are_400(
    client: httpx2.AsyncClient, nothing_stored: Unchanged, subtests: pytest.Subtests
) -> None:
    first, second = await log_in(client, Wallet(1)), await log_in(client, Wallet(2))
    async with nothing_stored():
        for row, carry in TWO_TOKENS.items():
            with subtests.test(row):
                response = await client.get("/users/api-key", headers=carry(first, second))
                assert response.status_code == 400
                assert response.json()["code"] == "conflicting-credentials"


@pytest.mark.one_engine
async def test_an_api_key_sent_twice_is_400(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    first, other = await api_key_of(client, Wallet(1)), await api_key_of(client, Wallet(2))
    async with nothing_stored():
        for second in (first, other):
            response = await client.post("/functions", headers=[("x-api-key", first), ("x-api-key", second)])
            assert response.status_code == 400
            assert response.json()["code"] == "conflicting-credentials"


@pytest.mark.one_engine
async def test_a_token_in_the_query_string_is_ignored(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, Wallet(1))
    for where in ("token", "x-auth-token", "access_token", "authorization"):
        response = await client.get("/users/api-key", params={where: token})
        assert response.status_code == 401, where
        assert response.json()["code"] == "missing-credential"


async def test_the_published_keys_suffice_to_check_a_token(client: httpx2.AsyncClient, context: Context) -> None:
    ring = RingFile(context.settings.data_dir)
    old = await log_in(client, Wallet(1))
    ring.rotate()
    new = await log_in(client, Wallet(2))
    response = await client.get("/.well-known/jwks.json")
    assert response.headers["cache-control"] == "public, max-age=60"
    keys = jwt.PyJWKSet.from_dict(response.json())
    for token, wallet in ((old, Wallet(1)), (new, Wallet(2))):
        key = keys[jwt.get_unverified_header(token)["kid"]]
        # The clock of the tests stands in a time of its own, which PyJWT does not know.
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
        claims = jwt.decode(token, key, algorithms=["EdDSA"], audience="muniment", issuer="muniment", options=options)
        assert claims["sub"] == wallet.address
    ring.retire()
    left = (await client.get("/.well-known/jwks.json")).json()["keys"]
    assert [key["kid"] for key in left] == [jwt.get_unverified_header(new)["kid"]]


@pytest.mark.one_engine
async def test_the_published_keys_hold_nothing_private(client: httpx2.AsyncClient) -> None:
    (key,) = (await client.get("/.well-known/jwks.json")).json()["keys"]
    assert set(key) == {"kty", "crv", "alg", "use", "kid", "x"}
