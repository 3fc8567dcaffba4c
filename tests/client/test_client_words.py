"""The client's log-in: the words that it signs, and the credentials and balances that it gets for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from feeding import ME, Fed, answer

from muniment.client import CannotSign, Forged, Reply, Words
from muniment.client.flows import login
from muniment.protocol.wire import iso_time

NONCE = "0x" + "2a" * 32


def nonce(text: str = NONCE, address: str = ME.address) -> Reply:
    return answer({"address": address, "nonce": text})


def logged_in(address: str = ME.address) -> Reply:
    return answer({"address": address, "token": "token"})


@pytest.mark.parametrize("token", ["a-token\n", "a-token\r\nx-other: 1", "a-t\u00f6ken", " ", "\x1b]0;x\x07"])
def test_a_credential_that_no_header_can_hold_is_forged_and_not_kept(token: str) -> None:
    fed = Fed()
    session = fed.session()
    with pytest.raises(Forged, match="HTTP headers do not allow"):
        fed.run(login.log_in(session), [nonce(), answer({"address": ME.address, "token": token})])
    assert session.token is None


def test_an_api_key_with_a_line_break_at_its_end_is_forged_and_not_kept() -> None:
    fed = Fed()
    session = fed.session(token="token")
    key = {"address": ME.address, "apiKey": f"mnk_0a1b2c3d_{'0' * 40}_1_{'0' * 64}\n"}
    for flow in (login.api_key, login.rotate_api_key):
        with pytest.raises(Forged, match="HTTP headers do not allow"):
            fed.run(flow(session), [answer(key)])
    assert session.api_key is None


@pytest.mark.parametrize("decimals", [-1, 256, 10**9, 10**400])
def test_decimals_that_no_token_can_have_are_forged(decimals: int) -> None:
    balance = {
        "chainId": 1, "address": ME.address, "symbol": "X", "decimals": decimals, "balance": "1", "allowance": "0",
        "price": 1, "logo": "",
    }  # fmt: skip
    with pytest.raises(Forged):
        Fed().run(login.balances(Fed().session(token="token")), [answer([balance])])


URL = "https://registry.example.org"


def named(url: str) -> Reply:
    """A nonce of a registry that says its URL, in an answer with the time of the registry."""
    content = json.dumps({"address": ME.address, "nonce": NONCE, "publicUrl": url}).encode()
    return Reply(200, {"date": "Fri, 20 Nov 2026 19:48:00 GMT"}, content)


@pytest.mark.parametrize("asked", [URL, f"{URL}:443", "https://Registry.example.org/", "HTTPS://registry.example.org"])
def test_a_login_at_a_registry_with_a_url_is_signed_in_words(asked: str) -> None:
    fed = Fed()
    assert fed.run(login.log_in(fed.session(url=asked), 60), [named(URL), logged_in()]) == "token"
    (text,) = fed.signed
    assert text.splitlines() == [
        "registry.example.org wants you to sign in with your Ethereum account:", ME.address, "",
        "Log in to this registry. The signature permits nothing else.", "", f"URI: {URL}", "Version: 1", "Chain ID: 1",
        f"Nonce: {NONCE[2:]}", "Issued At: 2026-11-20T19:48:00.000Z",
    ]  # fmt: skip
    body = json.loads(fed.sent[-1].body or b"")
    assert body == {**body, "address": ME.address, "message": text, "lifetimeSeconds": 60}


def test_a_login_at_another_registry_is_not_signed_and_the_refusal_names_both() -> None:
    rows = [(asked, URL) for asked in ("https://relay.example.org", f"{URL}:8443", "http://127.0.0.1:8787")] + [
        (f"{URL}/one", f"{URL}/two"), (f"{URL}/one", URL), (URL, f"{URL}/two"), (f"{URL}/one", f"{URL}/One"),
        ("http://registry.example.org", URL), (URL, "http://registry.example.org"), (URL, f"{URL}?a=b"),
        (f"{URL}/one", f"{URL}/one/../two"), ("http://127.0.0.1:9//registry.example.org", "http://registry.example.org"),
        ("https://relay.example.org:0//registry.example.org", URL), ("https://relay.example.org///a", f"{URL}/a"),
        ("http://127.0.0.1:9", "http://registry.example.org//127.0.0.1:9"),
    ]  # fmt: skip
    for asked, url in rows:
        fed = Fed()
        with pytest.raises(CannotSign, match="Nothing was signed") as failure:
            fed.run(login.log_in(fed.session(url=asked)), [named(url)])
        assert fed.signed == []
        assert f"{asked} asks for a log-in at {url}." in str(failure.value)
        assert f"--url {url}" in str(failure.value)


def test_a_url_that_is_none_brings_no_words_of_its_own_into_the_text() -> None:
    for url in (
        f"{URL}\nURI: {URL}", f"{URL}\n", "https://registry.example.org/ für alle", "https://registry.example.org:x",
        "registry.example.org", "https://[", f"{URL} ", "", "https://me@registry.example.org", "https://${HOST}",
    ):  # fmt: skip
        fed = Fed()
        with pytest.raises(CannotSign, match="Nothing was signed"):
            fed.run(login.log_in(fed.session(url="https://relay.example.org")), [named(url)])
        assert fed.signed == [], url


def test_a_bare_nonce_of_another_machine_is_signed_only_if_told_so_by_name() -> None:
    for url in (URL, "http://192.168.1.5:8787", "http://127.0.0.1.example.org", "http://localhost.example.org", ""):
        fed = Fed()
        with pytest.raises(CannotSign, match=r"bare nonce.*Nothing was signed.*MUNIMENT_PUBLIC_URL.*--bare-nonce"):
            fed.run(login.log_in(fed.session(url=url)), [nonce()])
        assert fed.signed == []
        assert fed.run(login.log_in(fed.session(url=url, bare_nonce=True)), [nonce(), logged_in()]) == "token"
        assert fed.signed == [NONCE]


def test_a_bare_nonce_of_this_machine_is_signed() -> None:
    for url in ("http://127.0.0.1:8787", "http://localhost", "http://[::1]:8787", "http://127.8.9.1/path"):
        fed = Fed()
        assert fed.run(login.log_in(fed.session(url=url)), [nonce(), logged_in()]) == "token"


def test_a_registry_that_gave_words_gets_no_signature_of_a_bare_nonce_again() -> None:
    for url in (URL, "http://127.0.0.1:8787", f"{URL}/registry"):
        fed = Fed()
        session = fed.session(url=url, bare_nonce=True)
        fed.run(login.log_in(session), [named(url), logged_in()])
        fed.signed.clear()
        with pytest.raises(CannotSign, match=r"gave a text with its name before\. Nothing was signed"):
            fed.run(login.log_in(session), [nonce()])
        assert fed.signed == []


def test_words_stay_in_the_file_for_each_origin(tmp_path: Path) -> None:
    path, fed = tmp_path / "home" / "words", Fed()
    fed.run(login.log_in(fed.session(url=f"{URL}/one", words=Words(path))), [named(f"{URL}/one"), logged_in()])
    fed.run(login.log_in(fed.session(url=URL, words=Words(path))), [named(URL), logged_in()])
    assert path.read_text() == f"{URL}\n"
    with pytest.raises(CannotSign, match=f"remove {URL} from {path}"):
        fed.run(login.log_in(fed.session(url=f"{URL}:443/two", words=Words(path), bare_nonce=True)), [nonce()])
    other = fed.session(url=f"{URL}:8443", words=Words(path), bare_nonce=True)
    assert fed.run(login.log_in(other), [nonce(), logged_in()]) == "token"


def test_a_user_whose_file_cannot_be_written_logs_in(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words, fed = Words(tmp_path / "file" / "words"), Fed()
    assert fed.run(login.log_in(fed.session(url=URL, words=words)), [named(URL), logged_in()]) == "token"
    assert URL in words


def test_a_registry_may_be_below_a_path() -> None:
    for asked in (f"{URL}/one", f"{URL}/one/", f"{URL}/two/../%6fne"):
        fed = Fed()
        assert fed.run(login.log_in(fed.session(url=asked)), [named(f"{URL}/one/"), logged_in()]) == "token"
        assert f"\nURI: {URL}/one/\n" in fed.signed[0]


@pytest.mark.parametrize("date", ["Fri, 31 Dec 9999 23:59:59 -2359", "yesterday", ""])
def test_where_an_answer_has_no_time_a_log_in_has_that_of_this_machine(date: str) -> None:
    fed = Fed()
    given = named(URL)._replace(headers={"date": date})
    assert fed.run(login.log_in(fed.session(url=URL)), [given, logged_in()]) == "token"
    assert f"\nIssued At: {iso_time(int(fed.now_s) * 1_000)}" in fed.signed[0]
