"""The token of a login, on the routes that need one: good tokens are accepted, every other is 401."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from builders import Wallet, log_in
from conftest import Clock
from muniment.service.auth.secrets import RingFile, Secret, ring_of
from muniment.service.context import Context

OWNER = Wallet(31)

Unchanged = Callable[[], Any]


@pytest.fixture
def secret(context: Context) -> Secret:
    return ring_of(context.secrets()).newest


@pytest.fixture
def claims(clock: Clock) -> dict[str, Any]:
    """Those of a token that is taken."""
    now_s = clock.now_ms // 1000
    return {
        "iss": "muniment", "aud": "muniment", "sub": OWNER.address,
        "iat": now_s, "nbf": now_s, "exp": now_s + 60, "jti": "1",
    }  # fmt: skip


def segment(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def token_of(secret: Secret, claims: dict[str, Any], **header: Any) -> str:
    """A token signed with the service's own key; `header` changes its header."""
    signed = f"{segment({'alg': 'EdDSA', 'typ': 'JWT', 'kid': secret.id, **header})}.{segment(claims)}"
    return f"{signed}.{segment(secret.signing_key.sign(signed.encode()))}"


async def status_of(client: httpx2.AsyncClient, token: str) -> int:
    return (await client.get("/users/api-key", headers={"x-auth-token": token})).status_code


async def refuse(client: httpx2.AsyncClient, token: str) -> None:
    response = await client.get("/users/api-key", headers={"x-auth-token": token})
    assert response.status_code == 401, response.text
    assert response.json()["code"] == "invalid-token"
    assert response.headers["www-authenticate"].startswith("Bearer ")
    assert "apiKey" not in response.json()


async def test_a_token_made_here_is_taken(client: httpx2.AsyncClient, secret: Secret, claims: dict[str, Any]) -> None:
    assert await status_of(client, token_of(secret, claims)) == 200


@pytest.mark.one_engine
async def test_without_a_token_the_routes_are_closed(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    async with nothing_stored():
        for method, path in (("GET", "/users/api-key"), ("POST", "/users/api-key/rotate")):
            response = await client.request(method, path)
            assert response.status_code == 401, path
            assert response.json()["code"] == "missing-credential"
            assert response.headers["www-authenticate"].startswith("Bearer ")


def unsigned(secret: Secret, claims: dict[str, Any]) -> str:
    return f"{segment({'alg': 'none', 'kid': secret.id})}.{segment(claims)}."


def hmac_with_public_key(form: Callable[[Ed25519PrivateKey], bytes]) -> Callable[[Secret, dict[str, Any]], str]:
    def forge(secret: Secret, claims: dict[str, Any]) -> str:
        signed = f"{segment({'alg': 'HS256', 'kid': secret.id})}.{segment(claims)}"
        return f"{signed}.{segment(hmac.digest(form(secret.signing_key), signed.encode(), hashlib.sha256))}"

    return forge


def public_raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def public_pem(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def signed_by_another(**header: Any) -> Callable[[Secret, dict[str, Any]], str]:
    def forge(secret: Secret, claims: dict[str, Any]) -> str:
        other = Secret.derived_from(b"\7" * 32)
        return token_of(other, claims, **{"kid": secret.id, **header})

    return forge


ANOTHERS_JWK = {"kty": "OKP", "crv": "Ed25519", "x": segment(public_raw(Secret.derived_from(b"\7" * 32).signing_key))}


def with_header(**header: Any) -> Callable[[Secret, dict[str, Any]], str]:
    return lambda secret, claims: token_of(secret, claims, **header)


FORGED: dict[str, Callable[[Secret, dict[str, Any]], str]] = {
    "alg none": unsigned,
    "HS256 with the public key": hmac_with_public_key(public_raw),
    "HS256 with the public key as PEM": hmac_with_public_key(public_pem),
    "another key": signed_by_another(),
    "another key, alg none": signed_by_another(alg="none"),
    "jwk": signed_by_another(jwk=ANOTHERS_JWK),
    "jku": signed_by_another(jku="http://127.0.0.1/jwks.json"),
    "x5u": signed_by_another(x5u="http://127.0.0.1/chain.pem"),
    "x5c": signed_by_another(x5c=[segment(b"certificate")]),
    **{
        f"kid {kid!r:.24}": with_header(kid=kid)
        for kid in (
            "00000000", "../../secrets", "/dev/null", "' OR '1'='1", "0' UNION SELECT x'00' --", "", None, 0,
            ["a"], {"a": 1}, "k" * 1000, "\0",
        )
    },
    **{
        f"alg {alg!r}": with_header(alg=alg)
        for alg in ("none", "None", "nOnE", "eddsa", "HS256", "ES256", "RS256", "Ed25519", "", None, 1, ["EdDSA"])
    },
    "b64 false": with_header(b64=False, crit=["b64"]),
}  # fmt: skip


@pytest.mark.one_engine
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # the other engine has sockets of its own
async def test_bad_input_13_forged_tokens_are_401_and_nothing_is_fetched(
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    secret: Secret,
    claims: dict[str, Any],
    nothing_stored: Unchanged,
    subtests: pytest.Subtests,
) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *where, **_: fetched.append(where))
    monkeypatch.setattr(socket.socket, "connect", lambda _, where: fetched.append(where))
    async with nothing_stored():
        for row, forge in FORGED.items():
            with subtests.test(row):
                await refuse(client, forge(secret, claims))
                assert fetched == []


@pytest.mark.one_engine
async def test_keys_named_in_the_header_of_a_good_token_are_ignored(
    client: httpx2.AsyncClient, secret: Secret, claims: dict[str, Any]
) -> None:
    for header in ("jwk", "jku", "x5u"):
        value = ANOTHERS_JWK if header == "jwk" else "http://127.0.0.1/key"
        assert await status_of(client, token_of(secret, claims, **{header: value})) == 200, header


WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "expired long ago": {"exp": 0},
    "exp as string": {"exp": "9999999999"},
    "exp as fraction": {"exp": 9_999_999_999.5},
    "exp true": {"exp": True},
    "no exp": {"exp": None},
    "nbf in the future": {"nbf": 9_999_999_998},
    "nbf as string": {"nbf": "0"},
    "no nbf": {"nbf": None},
    "wrong iss": {"iss": "another"},
    "iss as list": {"iss": ["muniment"]},
    "no iss": {"iss": None},
    "wrong aud": {"aud": "another"},
    "no aud": {"aud": None},
    "no sub": {"sub": None},
    "sub empty": {"sub": ""},
    "sub number": {"sub": 5},
    "sub list": {"sub": ["0x" + "1" * 40]},
    "sub no address": {"sub": "0x1234"},
}


@pytest.mark.one_engine
async def test_claims_that_are_wrong_or_missing_are_401(
    client: httpx2.AsyncClient,
    secret: Secret,
    claims: dict[str, Any],
    nothing_stored: Unchanged,
    subtests: pytest.Subtests,
) -> None:
    async with nothing_stored():
        for row, change in WRONG_CLAIMS.items():
            kept = {name: value for name, value in {**claims, **change}.items() if value is not None}
            with subtests.test(row):
                await refuse(client, token_of(secret, kept))


@pytest.mark.one_engine
async def test_a_signed_payload_that_is_not_an_object_is_401(
    client: httpx2.AsyncClient, secret: Secret, subtests: pytest.Subtests
) -> None:
    for payload in (b"[]", b'"x"', b"null", b"{", b"\xff", b"[" * 1000):
        signed = f"{segment({'alg': 'EdDSA', 'kid': secret.id})}.{segment(payload)}"
        with subtests.test(repr(payload[:10])):
            await refuse(client, f"{signed}.{segment(secret.signing_key.sign(signed.encode()))}")


async def test_a_token_ends_after_its_24_hours(client: httpx2.AsyncClient, clock: Clock) -> None:
    token = await log_in(client, OWNER)
    clock.now_ms = clock.now_ms // 1000 * 1000
    clock.advance(seconds=86_399.999)
    assert await status_of(client, token) == 200
    clock.advance(seconds=0.001)
    await refuse(client, token)


async def test_a_token_is_not_good_before_it_was_made(client: httpx2.AsyncClient, clock: Clock) -> None:
    token = await log_in(client, OWNER)
    clock.advance(minutes=-4)  # clocks of honest machines differ
    assert (await client.get("/users/api-key", headers={"x-auth-token": token})).status_code == 200
    clock.advance(minutes=-2)
    await refuse(client, token)


NO_TOKENS = (
    b"", b"a", b"..", b"a.b.c", b"null", b"undefined", b"Bearer", b"\xff\xfe", b"\0", b"e30.e30.", b"=" * 2000,
)  # fmt: skip


@pytest.mark.one_engine
async def test_another_text_than_a_token_is_401(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for token in NO_TOKENS:
        with subtests.test(repr(token[:10])):
            assert (await client.get("/users/api-key", headers=[(b"x-auth-token", token)])).status_code == 401


@pytest.mark.one_engine
async def test_an_overlong_token_is_401(client: httpx2.AsyncClient, secret: Secret, claims: dict[str, Any]) -> None:
    for size in (2_049, 20_000):
        await refuse(client, token_of(secret, {**claims, "padding": "x" * size}))


@pytest.mark.one_engine
async def test_a_token_of_100_kb_is_431(client: httpx2.AsyncClient, secret: Secret, claims: dict[str, Any]) -> None:
    token = token_of(secret, {**claims, "padding": "x" * 100_000})
    assert (await client.get("/users/api-key", headers={"x-auth-token": token})).status_code == 431


@pytest.mark.one_engine
async def test_a_token_altered_by_one_character_is_401(client: httpx2.AsyncClient) -> None:
    token = await log_in(client, OWNER)
    for place in {*range(0, len(token), 7), len(token) - 1}:
        for other in "AQgwB":
            if token[place] != other:
                await refuse(client, token[:place] + other + token[place + 1 :])
    for other in (token + "=", token + "==", token + "A", token[:-1], token + " x", token.replace(".", "..")):
        await refuse(client, other)


async def test_a_token_of_a_replaced_secret_is_good_until_that_secret_is_retired(
    client: httpx2.AsyncClient, context: Context
) -> None:
    ring = RingFile(context.settings.data_dir)  # as `muniment secrets` does beside a running service
    old = await log_in(client, OWNER)
    ring.rotate()
    assert await status_of(client, old) == 200
    new = await log_in(client, OWNER)
    assert jwt.get_unverified_header(new)["kid"] != jwt.get_unverified_header(old)["kid"]
    ring.retire()
    await refuse(client, old)
    assert await status_of(client, new) == 200
