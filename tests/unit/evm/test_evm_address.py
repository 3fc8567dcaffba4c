import pytest
from eth_utils.address import to_checksum_address
from hypothesis import given, strategies as st

from each_row import each_row
from muniment.protocol.errors import InvalidAddress
from muniment.protocol.evm.address import Address

# The examples of EIP-55.
EIP55 = [
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0xde709f2102306220921060314715629080e2fb77",
]


@each_row("text", EIP55)
def test_the_examples_of_eip_55_parse_to_themselves(text: str) -> None:
    assert Address.parse(text) == text


@each_row("text", EIP55)
def test_one_letter_case_parses_to_the_checksummed_form(text: str) -> None:
    assert Address.parse("0x" + text[2:].lower()) == text
    assert Address.parse("0x" + text[2:].upper()) == text


@each_row(
    "text",
    [
        "",
        "0x",
        "0x" + "a" * 39,
        "0x" + "a" * 41,
        "0X" + "a" * 40,
        "a" * 40,
        "0x" + "g" * 40,
        "0x" + "1" * 40 + "\n",
        " 0x" + "1" * 40,
        "0x" + "１" * 40,
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD",
        "vitalik.eth",
    ],
)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        Address.parse(text)


@given(st.binary(min_size=20, max_size=20))
def test_the_checksum_is_that_of_eth_utils(raw: bytes) -> None:
    address = Address.from_raw(raw)

    assert address == to_checksum_address(raw)
    assert address.raw == raw
    assert type(Address.parse("0x" + raw.hex())) is Address


@given(st.binary(min_size=20, max_size=20), st.integers(2, 41))
def test_one_letter_in_the_wrong_case_is_refused(raw: bytes, place: int) -> None:
    text = Address.from_raw(raw)
    wrong = text[:place] + text[place].swapcase() + text[place + 1 :]
    one_case = wrong[2:] in (wrong[2:].lower(), wrong[2:].upper())

    if wrong == text or one_case:
        assert Address.parse(wrong) == text
    else:
        with pytest.raises(InvalidAddress, match="checksum"):
            Address.parse(wrong)
