"""API keys have one spelling, and their MAC covers every part of them."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.errors import InvalidApiKey
from muniment.protocol.evm.address import Address
from muniment.service.auth.caller import api_key, read_api_key
from muniment.service.auth.secrets import Secret, ring_of

RING = ring_of((b"\x0a" * 32, b"\x0b" * 32))
OTHER_RING = ring_of((b"\x0c" * 32,))
ADDRESS = Address.from_raw(b"\x11" * 20)
KEY = api_key(RING.newest, ADDRESS, 7)

addresses = st.binary(min_size=20, max_size=20).map(Address.from_raw)
generations = st.integers(1, 10**18 - 1)


def test_a_key_is_spelled_from_its_parts() -> None:
    mac = hmac.new(RING.newest.api_key_key, b"\x11" * 20 + bytes(7) + b"\7", hashlib.sha256).hexdigest()
    assert f"mnk_{RING.newest.id}_{'11' * 20}_7_{mac}" == KEY


@given(addresses, generations, st.sampled_from(RING.secrets))
def test_a_key_reads_as_what_it_was_made_of(address: Address, generation: int, secret: Secret) -> None:
    assert read_api_key(RING, api_key(secret, address, generation)) == (address, generation)


@given(addresses, addresses, generations, generations)
def test_keys_of_different_owners_or_generations_differ(a: Address, b: Address, m: int, n: int) -> None:
    same = (a, m) == (b, n)
    assert (api_key(RING.newest, a, m) == api_key(RING.newest, b, n)) is same


@given(st.integers(0, len(KEY) - 1), st.characters())
def test_one_other_character_anywhere_is_refused(place: int, other: str) -> None:
    altered = KEY[:place] + other + KEY[place + 1 :]
    if altered != KEY:
        with pytest.raises(InvalidApiKey):
            read_api_key(RING, altered)


@given(st.text() | st.from_regex(r"mnk_[0-9a-f]{8}_[0-9a-f]{40}_[0-9]{1,20}_[0-9a-f]{64}", fullmatch=True))
def test_any_other_text_is_refused_and_nothing_worse(text: str) -> None:
    with pytest.raises(InvalidApiKey):
        read_api_key(RING, text)


@each_row("text", [KEY + "\n", KEY + " ", " " + KEY, KEY.upper(), KEY.replace("_7_", "_07_"), KEY * 2])
def test_there_is_no_second_spelling(text: str) -> None:
    with pytest.raises(InvalidApiKey):
        read_api_key(RING, text)


def test_the_parts_of_two_keys_do_not_make_a_third() -> None:
    other = api_key(RING.secrets[1], ADDRESS, 8)
    mine, its = KEY.split("_"), other.split("_")
    for place in range(1, 5):
        with pytest.raises(InvalidApiKey):
            read_api_key(
                RING, "_".join([*mine[:place], its[place] if its[place] != mine[place] else "x", *mine[place + 1 :]])
            )


def test_a_key_of_a_secret_outside_the_ring_is_refused() -> None:
    with pytest.raises(InvalidApiKey):
        read_api_key(OTHER_RING, KEY)
