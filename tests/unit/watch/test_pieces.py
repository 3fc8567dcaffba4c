"""Events are stored in pieces of whole blocks."""

from __future__ import annotations

from muniment.chains.nodes import Block
from muniment.operate.watch.events import SettlerEvent, pieces
from muniment.protocol.evm.address import Address

SETTLER = Address.parse("0x" + "77" * 20)


def event(block: int, index: int) -> SettlerEvent:
    return SettlerEvent("intent", b"\1" * 32, SETTLER, block, block.to_bytes(32), b"\2" * 32, index)


def test_no_block_is_split_and_the_last_piece_ends_with_the_range() -> None:
    events = [event(7, 0), event(5, 2), event(5, 0), event(5, 1), event(6, 0)]
    found = [([each.block_number for each in piece], end.number) for piece, end in pieces(events, Block(9, b""), 2)]
    assert found == [([5, 5, 5], 5), ([6, 7], 9)]


def test_a_range_without_events_is_one_piece() -> None:
    assert list(pieces([], Block(9, b"x"), 2)) == [([], Block(9, b"x"))]
