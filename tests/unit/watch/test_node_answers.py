"""Facts are stored in pieces, of whole blocks each."""

from __future__ import annotations

import pytest

from muniment.evm.address import Address
from muniment.watch import node_answers as answers
from muniment.watch.events import Fact
from muniment.watch.node_answers import Block, pieces

SETTLER = Address.parse("0x" + "77" * 20)


def fact(block: int, index: int) -> Fact:
    return Fact("intent", b"\1" * 32, SETTLER, block, block.to_bytes(32), b"\2" * 32, index)


def test_no_block_is_split_and_the_last_piece_ends_with_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "FACTS_MAX", 2)
    facts = [fact(7, 0), fact(5, 2), fact(5, 0), fact(5, 1), fact(6, 0)]
    found = [([each.block_number for each in piece], end.number) for piece, end in pieces(facts, Block(9, b""))]
    assert found == [([5, 5, 5], 5), ([6, 7], 9)]


def test_a_range_without_facts_is_one_piece() -> None:
    assert list(pieces([], Block(9, b"x"))) == [([], Block(9, b"x"))]
