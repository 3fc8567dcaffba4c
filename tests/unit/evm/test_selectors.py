"""Well-known functions of contracts by their selector."""

from __future__ import annotations

import pytest

from muniment.protocol.evm import selectors
from muniment.protocol.evm.selectors import call_in_words

# As block explorers and the contracts' own ABIs have them.
KNOWN = {
    "a9059cbb": "transfer(address,uint256)", "095ea7b3": "approve(address,uint256)",
    "23b872dd": "transferFrom(address,address,uint256)", "d0e30db0": "deposit()", "2e1a7d4d": "withdraw(uint256)",
    "38ed1739": "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)",
    "414bf389": "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
    "3593564c": "execute(bytes,bytes[],uint256)", "ac9650d8": "multicall(bytes[])",
    "617ba037": "supply(address,uint256,address,uint16)", "82ad56cb": "aggregate3((address,bool,bytes)[])",
    "6a761202": "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)",
}  # fmt: skip


@pytest.mark.parametrize("selector", KNOWN)
def test_a_well_known_function_is_named(selector: str) -> None:
    assert call_in_words(bytes.fromhex(selector) + bytes(64)) == KNOWN[selector]
    assert call_in_words(bytes.fromhex(selector)) == KNOWN[selector]


@pytest.mark.parametrize("data", [b"", b"\xa9\x05\x9c", b"\x12\x34\x56\x78"])
def test_other_data_has_no_name(data: bytes) -> None:
    assert call_in_words(data) == ""


def test_no_two_names_have_one_selector() -> None:
    names = selectors._WELL_KNOWN
    assert len(selectors._signatures()) == len(set(names)) == len(names) > 100
