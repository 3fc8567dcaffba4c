"""Topics of events in words."""

from __future__ import annotations

from eth_utils.crypto import keccak

from each_row import each_row
from muniment.protocol.evm.topics import event_name, topic_in_words

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # as every ERC-20 token logs it
ENTRY_POINT = "0x0000000071727De22E5E9d8BAf0edAc6f37da032"  # ERC-4337: an address that begins with zeros
PERMIT2 = "0x000000000022D473030F116dDEE9F6B43aC78BA3"


def padded(number: int) -> str:
    return f"0x{number:064x}"


def test_a_well_known_event_is_named_in_either_letter_case() -> None:
    assert topic_in_words(0, TRANSFER) == "the event Transfer(address,address,uint256)"
    assert topic_in_words(0, "0x" + TRANSFER[2:].upper()) == topic_in_words(0, TRANSFER)
    upgraded = "0x" + keccak(b"Upgraded(address)").hex()
    assert topic_in_words(0, upgraded) == "the event Upgraded(address)"
    assert topic_in_words(1, TRANSFER) == ""


@each_row(
    ("topics", "name"),
    [
        ([[TRANSFER], []], "Transfer"),
        ([["0x" + TRANSFER[2:].upper()]], "Transfer"),
        ([["0xzz"]], ""),
        ([[TRANSFER, padded(1)]], ""),
        ([[padded(1)]], ""),
        ([[], [TRANSFER]], ""),
        ([], ""),
    ],
)
def test_a_list_names_the_one_event_that_it_waits_for(topics: list[list[str]], name: str) -> None:
    assert event_name(topics) == name


@each_row(
    ("word", "said"),
    [
        (padded(int(ENTRY_POINT, 16)), f"the address {ENTRY_POINT}"),
        (padded(int(PERMIT2, 16)), f"the address {PERMIT2}"),
        (padded(2**96), "the address 0x0000000000000001000000000000000000000000"),
        (padded(2**96 - 1), ""),
        (padded(10**27), ""),
        (padded(0), ""),
        (padded(2**160), ""),
        ("0x" + "ab" * 32, ""),
    ],
)
def test_a_word_is_an_address_unless_it_is_likely_a_number(word: str, said: str) -> None:
    assert topic_in_words(2, word) == said
    assert topic_in_words(0, word) == ""
