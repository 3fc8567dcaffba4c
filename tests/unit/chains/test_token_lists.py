"""Token lists of strangers: taken when they keep the format, refused with the place when they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st
from token_list_documents import DAI, USDC, document, entry

from each_row import each_row
from muniment.chains.catalogue import CATALOGUE
from muniment.chains.tokens import LIST_BYTES_MAX, PACKAGED_LIST, Token, default_logo, parse_token_list

SOLANA = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"


def parsed(*tokens: Any, **changed: Any) -> list[Token]:
    return parse_token_list(json.dumps(document(*tokens, **changed)).encode())


def test_a_token_has_the_members_of_the_list() -> None:
    (token,) = parsed(entry(logoURI="https://example.org/usdc.png", extensions={"bridge": 1}, tags=["x"]), more=[1])
    assert token == Token(1, token.address, "USDC", "USD Coin", 6, "https://example.org/usdc.png")
    assert token.address == USDC


def test_the_packaged_list_is_valid_and_of_known_chains() -> None:
    data = PACKAGED_LIST.read_bytes()
    tokens = parse_token_list(data)
    assert len(tokens) == len(json.loads(data)["tokens"]) > 40
    assert {token.chain_id for token in tokens} <= set(CATALOGUE)


def test_an_address_in_lower_case_gets_its_checksum() -> None:
    assert parsed(entry(address=USDC.lower()))[0].address == USDC


def test_of_two_tokens_with_one_address_the_first_stays() -> None:
    same = entry(address=USDC.lower(), symbol="FAKE")
    elsewhere = entry(chainId=10)
    assert [(t.chain_id, t.symbol) for t in parsed(entry(), same, elsewhere)] == [(1, "USDC"), (10, "USDC")]


def test_two_tokens_may_share_a_symbol() -> None:
    assert [token.address for token in parsed(entry(), entry(address=DAI))] == [USDC, DAI]


@each_row("left_out", [{"address": SOLANA}, {"symbol": ""}], ids=str)
def test_a_token_that_does_not_concern_an_evm_registry_is_left_out(left_out: dict[str, str]) -> None:
    assert [token.address for token in parsed(entry(**left_out), entry(address=DAI))] == [DAI]


@each_row(
    ("changed", "place"),
    [
        ({"chainId": 0}, "chainId"), ({"chainId": True}, "chainId"), ({"chainId": "1"}, "chainId"),
        ({"chainId": 2**63}, "chainId"), ({"chainId": 10**400}, "chainId"), ({"chainId": ...}, "chainId"),
        ({"address": USDC[:-1]}, "address"), ({"address": USDC.replace("A0b", "a0b")}, "address"),
        ({"address": "0X" + USDC[2:]}, "address"), ({"address": USDC + "\n"}, "address"), ({"address": ""}, "address"),
        ({"address": None}, "address"), ({"address": ...}, "address"),
        ({"decimals": -1}, "decimals"), ({"decimals": 256}, "decimals"), ({"decimals": 1.5}, "decimals"),
        ({"decimals": "18"}, "decimals"), ({"decimals": False}, "decimals"), ({"decimals": ...}, "decimals"),
        ({"name": "x" * 61}, "name"), ({"name": "a\0b"}, "name"), ({"name": "a\nb"}, "name"), ({"name": ...}, "name"),
        ({"name": "\u202egnp.exe"}, "name"), ({"name": "<b>"}, "name"), ({"name": "a\u2028b"}, "name"),
        ({"symbol": "x" * 21}, "symbol"), ({"symbol": "A B"}, "symbol"), ({"symbol": "A\u00a0B"}, "symbol"),
        ({"symbol": "U\u200bSDC"}, "symbol"), ({"symbol": "\u2066X"}, "symbol"), ({"symbol": "<"}, "symbol"),
        ({"symbol": 7}, "symbol"), ({"symbol": ...}, "symbol"), ({"logoURI": 7}, "logoURI"),
    ],
    ids=lambda value: ascii(value)[:40] if isinstance(value, dict) else None,
)  # fmt: skip
def test_a_broken_token_breaks_the_list_and_is_named(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=f"^/tokens/1/{place}: "):
        parsed(entry(), entry(**changed))


@each_row(
    ("changed", "place"),
    [
        ({"name": ""}, "/name"), ({"name": "x" * 61}, "/name"), ({"name": "\x07"}, "/name"), ({"name": ...}, "/name"),
        ({"timestamp": "yesterday"}, "/timestamp"), ({"timestamp": "2026-02-30T00:00:00Z"}, "/timestamp"),
        ({"timestamp": "2026-11-20"}, "/timestamp"), ({"timestamp": "2026-11-20T24:00:00Z"}, "/timestamp"),
        ({"timestamp": 0}, "/timestamp"), ({"timestamp": ...}, "/timestamp"),
        ({"version": "1.0.0"}, "/version"), ({"version": {"major": 1, "minor": 0}}, "/version/patch"),
        ({"version": {"major": 1, "minor": 0, "patch": -1}}, "/version/patch"), ({"version": ...}, "/version"),
        ({"tokens": []}, "/tokens"), ({"tokens": {}}, "/tokens"), ({"tokens": [7]}, "/tokens/0"),
        ({"tokens": ...}, "/tokens"), ({"tokens": [entry()] * 10_001}, "/tokens"),
    ],
    ids=lambda value: ascii(value)[:40] if isinstance(value, dict) else None,
)  # fmt: skip
def test_a_broken_list_is_refused_with_the_place(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=f"^{place}: "):
        parsed(**changed)


@each_row("data", [b"", b"[]", b"null", b"{", b'{"name":"a","name":"b"}', b"\xff", b"[" * 100_000])
def test_a_malformed_list_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words; that it is no other error is the point
        parse_token_list(data)


def test_a_list_beyond_four_mebibytes_is_refused() -> None:
    data = json.dumps(document()).encode()
    assert parse_token_list(data.ljust(LIST_BYTES_MAX))
    with pytest.raises(ValueError, match="at most 4194304 bytes"):
        parse_token_list(data.ljust(LIST_BYTES_MAX + 1))


@each_row("logo", ["https://a.b/c.png", "http://a.b/c", "ipfs://bafy/logo.png", "data:image/png;base64,AA=="])
def test_a_logo_stays_as_it_is_given(logo: str) -> None:
    assert parsed(entry(logoURI=logo))[0].logo == logo


@each_row(
    "logo",
    [..., None, "", "javascript:alert(1)", "data:text/html,x", "logo.png",
     'https://a/"onload=x', "https://a/" + "x" * 2048],
)  # fmt: skip
def test_a_logo_that_cannot_be_shown_becomes_the_default(logo: Any) -> None:
    assert parsed(entry(logoURI=logo))[0].logo == default_logo("USDC")


@each_row(
    ("symbol", "letters"),
    [
        ("USDC", "USD"),
        ("<&>", "<&>"),
        ("'\"", "'\""),
        ("₮Ж龍x", "₮Ж龍"),
        ("\ud800\0", None),
        ("#%+", "#%+"),
        ("", None),
    ],
)
def test_the_default_logo_is_an_image_with_the_first_letters(symbol: str, letters: str | None) -> None:
    kind, _, content = default_logo(symbol).partition(",")
    assert kind == "data:image/svg+xml"
    assert not set(content) & set("<>\"#' \n")
    (text,) = ET.fromstring(unquote(content)).iter("{http://www.w3.org/2000/svg}text")  # noqa: S314 - our own
    assert text.text == letters
    assert default_logo(symbol) == default_logo(symbol)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "chainId": VALUES | st.just(1), "address": VALUES | st.just(USDC), "decimals": VALUES | st.just(6),
        "symbol": VALUES | st.text(max_size=20), "name": VALUES | st.text(max_size=60), "logoURI": VALUES,
    },
)  # fmt: skip
MEMBERS = st.sampled_from(["name", "timestamp", "version", "tokens", "else"])


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(change=st.dictionaries(MEMBERS, VALUES, max_size=2), tokens=st.lists(VALUES | ENTRIES.map(lambda e: entry(**e))))
def test_any_json_is_a_list_of_sound_tokens_or_a_value_error(change: dict[str, Any], tokens: list[Any]) -> None:
    try:
        found = parse_token_list(json.dumps(document(*tokens) | change).encode())
    except ValueError:
        return
    for token in found:
        assert token.logo
        assert 0 < len(token.symbol) <= 20
        assert 0 <= token.decimals <= 255
        assert not set(token.symbol + token.name) & set("<>\0\n\u202e")


def test_a_list_of_ten_thousand_tokens_is_read(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps(document(*(entry(address=f"0x{number:040x}") for number in range(10_000)))))
    assert len(parse_token_list(path.read_bytes())) == 10_000
