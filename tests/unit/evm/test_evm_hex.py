import pytest

from each_row import each_row
from muniment.chains.catalogue import CATALOGUE
from muniment.protocol.errors import InvalidHex
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import HexString


@each_row(("text", "raw"), [("0x", b""), ("0xAbCd", b"\xab\xcd"), ("0x00", b"\x00")])
def test_a_hex_string_is_kept_in_lower_case(text: str, raw: bytes) -> None:
    parsed = HexString.parse(text)

    assert parsed == text.lower()
    assert parsed.raw == raw
    assert HexString.from_raw(raw) == parsed


@each_row("text", ["", "ab", "0X00", "0x0", "0x0g", "0x00\n", "0x 00", "0x００"])
def test_a_malformed_hex_string_is_refused(text: str) -> None:
    with pytest.raises(InvalidHex):
        HexString.parse(text)


def test_keccak_is_not_sha3() -> None:
    # The hash of nothing that the Yellow Paper gives for accounts without code.
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


def test_the_default_catalogue_holds_the_ten_chains_under_their_ids() -> None:
    assert sorted(CATALOGUE) == [1, 10, 56, 100, 137, 146, 8453, 42161, 43114, 84532]
    assert all(CATALOGUE[chain_id].id == chain_id and CATALOGUE[chain_id].name for chain_id in CATALOGUE)
