"""POST /users/authenticate with a message: a log-in that names the registry, and is good at no other one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from trigger_world import check_refusal

from answers import ok
from applications import client_of
from builders import Wallet
from conftest import NOW_MS, Clock
from muniment.protocol.wire import iso_time
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.running.settings import SettingError, Settings

OWNER, STRANGER = Wallet(11), Wallet(12)
URL = "https://registry.example.org:8443/muniment"
DOMAIN = "registry.example.org:8443"
NOW = iso_time(NOW_MS)

Unchanged = Callable[[], Any]


@asynccontextmanager
async def at(context: Context, public_url: str) -> AsyncGenerator[httpx2.AsyncClient]:
    named = replace(context, settings=replace(context.settings, public_url=public_url))
    async with client_of(Application(named)) as client:
        yield client


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a registry with a URL; its setting has a slash at the end, which is left out."""
    async with at(context, URL + "/") as client:
        yield client


async def ask(client: httpx2.AsyncClient, wallet: Wallet = OWNER) -> str:
    """The hex digits of a nonce."""
    response = await client.post("/users/nonce", json={"address": wallet.address})
    assert response.status_code == 200, response.text
    return response.json()["nonce"][2:]


def message(nonce: str, **given: str) -> str:
    """The text for a nonce; `given` replaces a part of it, and an empty part has no line."""
    parts = {
        "origin": DOMAIN, "address": OWNER.address, "statement": "Log in: yes (or no)?", "uri": URL, "version": "1",
        "chain": "1", "issued": NOW, "expires": "", "not_before": "", "request": "", "resources": "",
    } | given  # fmt: skip
    lines = [
        f"{parts['origin']} wants you to sign in with your Ethereum account:", parts["address"], "",
        *([parts["statement"]] if parts["statement"] else []), "",
        f"URI: {parts['uri']}", f"Version: {parts['version']}", f"Chain ID: {parts['chain']}", f"Nonce: {nonce}",
        f"Issued At: {parts['issued']}",
    ]  # fmt: skip
    names = {"expires": "Expiration Time", "not_before": "Not Before", "request": "Request ID"}
    lines += [f"{name}: {parts[key]}" for key, name in names.items() if parts[key]]
    lines += ["Resources:", *(f"- {each}" for each in parts["resources"].split())] if parts["resources"] else []
    return "\n".join(lines)


async def send(
    client: httpx2.AsyncClient, text: str, wallet: Wallet = OWNER, address: str = OWNER.address
) -> httpx2.Response:
    body = {"address": address, "signature": wallet.sign_text(text), "message": text}
    return await client.post("/users/authenticate", json=body)


async def test_a_registry_with_a_url_names_it_beside_its_nonces(client: httpx2.AsyncClient, context: Context) -> None:
    asked = {"address": OWNER.address}
    assert (await client.post("/users/nonce", json=asked)).json()["publicUrl"] == URL
    async with at(context, "") as nameless:
        assert list((await nameless.post("/users/nonce", json=asked)).json()) == ["address", "nonce"]


async def test_a_message_logs_in_once(client: httpx2.AsyncClient, nothing_stored: Unchanged) -> None:
    text = message(await ask(client))
    answer = await send(client, text)
    assert (answer.status_code, list(answer.json())) == (200, ["address", "token"])
    headers = {"x-auth-token": answer.json()["token"]}
    assert (await client.get("/users/api-key", headers=headers)).status_code == 200
    async with nothing_stored():
        check_refusal(await send(client, text), 401, "login-failed")


async def test_a_bare_nonce_is_good_as_before_and_once_together_with_its_message(client: httpx2.AsyncClient) -> None:
    nonce = await ask(client)
    body = {"address": OWNER.address, "signature": OWNER.sign_text(f"0x{nonce}")}
    assert (await client.post("/users/authenticate", json=body)).status_code == 200
    assert (await send(client, message(nonce))).status_code == 401


GOOD: dict[str, dict[str, str]] = {
    "no statement": {"statement": ""},
    "its scheme": {"origin": f"https://{DOMAIN}"},
    "an address in lower case": {"address": OWNER.address.lower()},
    "another chain": {"chain": "8453"},
    "issued by a clock that is ahead": {"issued": iso_time(NOW_MS + 4 * 60_000)},
    "a time zone": {"issued": "2026-11-20T21:48:00.123456789+02:00"},
    "more lines": {
        "expires": iso_time(NOW_MS + 1), "not_before": NOW, "request": "a-1",
        "resources": "ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/ https://example.org/a?b#c",
    },
}  # fmt: skip


@pytest.mark.one_engine
async def test_another_text_of_the_standard_logs_in_too(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for row, given in GOOD.items():
        with subtests.test(row):
            ok(await send(client, message(await ask(client), **given)))


# URLs that are equal by RFC 3986 section 6.2.
EQUAL: dict[str, dict[str, str]] = {
    "a host in upper case": {"origin": DOMAIN.upper(), "uri": URL.replace("registry", "REGISTRY")},
    "a scheme in upper case": {"origin": f"HTTPS://{DOMAIN}", "uri": URL.replace("https", "HTTPS")},
    "a URI with a slash": {"uri": f"{URL}/"},
    "a letter that is escaped": {"uri": URL.replace("/muni", "/%6duni")},
    "a path with dots": {"uri": URL.replace("/muni", "/./other/../muni")},
}


@pytest.mark.one_engine
async def test_another_spelling_of_the_url_logs_in_too(client: httpx2.AsyncClient, subtests: pytest.Subtests) -> None:
    for row, given in EQUAL.items():
        with subtests.test(row):
            ok(await send(client, message(await ask(client), **given)))


# With a part of the detail, which names the line.
BAD: dict[str, tuple[dict[str, str], str]] = {
    "another domain": ({"origin": "other.example.org"}, "first line of the message names another host"),
    "the domain without its port": ({"origin": "registry.example.org"}, f"which is {DOMAIN}"),
    "a user before the domain": ({"origin": f"me@{DOMAIN}"}, "first line"),
    "no port": ({"origin": "registry.example.org:99999"}, "not an ERC-4361 text"),
    "another scheme": ({"origin": f"http://{DOMAIN}"}, "first line of the message has another scheme"),
    "another URI": ({"uri": "https://registry.example.org:8443/other"}, f"the line URI of the message is not {URL}"),
    "a URI whose path looks like a host": ({"uri": URL.replace("//", "//relay.example.org//")}, "the line URI"),
    "a URI without a host": ({"uri": "https:////registry.example.org:8443/muniment"}, "the line URI"),
    "a URI with a user": ({"uri": URL.replace("//", "//relay.example.org@")}, "has a user name"),
    "a URI with two slashes": ({"uri": URL.replace("/muni", "//muni")}, "the line URI"),
    "a URI with a query": ({"uri": f"{URL}?a=b"}, "the line URI"),
    "a URI whose path is escaped otherwise": ({"uri": URL.replace("/muni", "%2Fmuni")}, "the line URI"),
    "a path in upper case": ({"uri": URL.replace("/muni", "/MUNI")}, "the line URI"),
    "another version": ({"version": "2"}, "the line Version has an invalid value"),
    "no chain": ({"chain": ""}, "the line Chain ID"),
    "another address": ({"address": STRANGER.address}, "the second line"),
    "issued before the nonce": ({"issued": iso_time(NOW_MS - 20 * 60_000)}, "the line Issued At"),
    "issued after the nonce": ({"issued": iso_time(NOW_MS + 20 * 60_000)}, "the line Issued At"),
    "issued on no day": ({"issued": "2026-11-31T19:48:00Z"}, "Issued At"),
    "issued at the end of time": ({"issued": "9999-12-31T23:59:60Z"}, "Issued At"),
    "expired": ({"expires": NOW}, "the line Expiration Time"),
    "not yet": ({"not_before": iso_time(NOW_MS + 1)}, "the line Not Before"),
    "a statement of two lines": ({"statement": "a\nb"}, "statement"),
    "a statement that is not ASCII": ({"statement": "für dich"}, "statement"),
    "a resource that is no URI": ({"resources": "nothing"}, "extra lines"),
}


async def test_a_refusal_names_the_line_that_is_wrong_and_the_nonce_stays_good(
    client: httpx2.AsyncClient, nothing_stored: Unchanged
) -> None:
    nonce = await ask(client)
    texts = {cause: (message(nonce, **given), said) for cause, (given, said) in BAD.items()} | {
        "a nonce with 0x": (message(f"0x{nonce}"), ""), "CR": (message(nonce).replace("\n", "\r\n"), "first line"),
        "an end": (message(nonce) + "\n", "extra lines"), "words before": ("I say: " + message(nonce), "first line"),
        "no text": ("log me in", "first line"), "": ("", "first line"), "the bare nonce": (f"0x{nonce}", "first line"),
        "lines in another order": (
            message(nonce).replace("Version: 1\nChain ID: 1", "Chain ID: 1\nVersion: 1"), "the line Version"
        ),
    }  # fmt: skip
    async with nothing_stored():
        for cause, (text, said) in texts.items():
            detail = check_refusal(await send(client, text), 401, "login-failed")["detail"]
            assert said in detail, (cause, detail)
    assert (await send(client, message(nonce))).status_code == 200


async def test_every_other_mismatch_is_the_one_failure_and_the_nonce_stays_good(
    client: httpx2.AsyncClient, nothing_stored: Unchanged
) -> None:
    nonce = await ask(client)
    spoilt = {"address": OWNER.address, "signature": OWNER.sign_text(message(nonce)), "message": message(nonce)}
    async with nothing_stored():
        answers = {
            "another nonce": await send(client, message("ab" * 32)),
            "upper case": await send(client, message(nonce.upper())),
            "another wallet": await send(client, message(nonce), STRANGER),
            "other bytes": await client.post(
                "/users/authenticate", json={**spoilt, "message": message(nonce, chain="2")}
            ),
            "without the message": await client.post("/users/authenticate", json={**spoilt, "message": None}),
        }
    bare = await client.post("/users/authenticate", json={"address": OWNER.address, "signature": OWNER.sign_text("no")})
    for cause, answer in answers.items():
        assert answer.status_code == 401, (cause, answer.text)
        assert {**answer.json(), "requestId": ""} == {**bare.json(), "requestId": ""}, cause
    assert (await send(client, message(nonce))).status_code == 200


async def test_a_message_ends_with_its_nonce(client: httpx2.AsyncClient, clock: Clock) -> None:
    text = message(await ask(client))
    clock.advance(minutes=11)
    assert (await send(client, text)).status_code == 401


@pytest.mark.one_engine
async def test_a_message_of_another_registry_is_of_no_use(client: httpx2.AsyncClient, context: Context) -> None:
    """A registry that hands on the nonce of another one gets a text that names itself."""
    nonce = await ask(client)
    text = message(nonce, origin="relay.example.org", uri="https://relay.example.org")
    assert (await send(client, text)).status_code == 401
    async with at(context, "https://relay.example.org") as relay:
        assert (await send(relay, text)).status_code == 200  # it has the same secrets here


@pytest.mark.one_engine
async def test_a_registry_can_refuse_bare_nonces_and_the_nonce_stays_good(
    context: Context, nothing_stored: Unchanged
) -> None:
    strict = replace(context, settings=replace(context.settings, public_url=URL, bare_nonces=False))
    async with client_of(Application(strict)) as client:
        nonce = await ask(client)
        async with nothing_stored():
            body = {"address": OWNER.address, "signature": OWNER.sign_text(f"0x{nonce}")}
            problem = check_refusal(await client.post("/users/authenticate", json=body), 401, "login-failed")
            assert URL in problem["detail"]
        assert (await send(client, message(nonce))).status_code == 200


def test_a_registry_that_refuses_bare_nonces_needs_a_url() -> None:
    assert Settings(bare_nonces=False, public_url=URL).bare_nonces is False
    with pytest.raises(SettingError, match="public_url"):
        Settings(bare_nonces=False)


@pytest.mark.one_engine
async def test_a_registry_without_a_url_refuses_messages_and_the_nonce_stays_good(
    context: Context, nothing_stored: Unchanged
) -> None:
    async with at(context, "") as nameless:
        nonce = await ask(nameless)
        async with nothing_stored():
            response = await send(nameless, message(nonce))
        problem = check_refusal(response, 400, "invalid-body", pointer="/message")
        assert "public_url" in problem["detail"]
        body = {"address": OWNER.address, "signature": OWNER.sign_text(f"0x{nonce}")}
        assert (await nameless.post("/users/authenticate", json=body)).status_code == 200


@pytest.mark.one_engine
async def test_a_message_has_at_most_2_kib(client: httpx2.AsyncClient) -> None:
    for character in ("a", "ü"):
        nonce = await ask(client)
        rest = 2_048 - len(message(nonce, statement="a")) + 1
        fits = message(nonce, statement=character * (rest // len(character.encode())))
        assert (await send(client, fits)).status_code == (200 if character == "a" else 401)
        check_refusal(await send(client, fits + character), 400, "invalid-text", pointer="/message")
