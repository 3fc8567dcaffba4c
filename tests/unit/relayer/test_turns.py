"""Turns of signers: who is next, who has to rest, and what an open relayer gives one signer at most."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.relayer.schedule.due import Due
from muniment.relayer.schedule.turns import Turn, Turns

A, B, C = (Address.parse(f"0x{n:040x}") for n in (1, 2, 3))
F, G = b"\x01" * 32, b"\x02" * 32
SIG = Signature.parse("0x" + "11" * 64 + "1b")


def due(number: int) -> Due:
    return Due(SIG, 0, b"", number, number)


def filled(turns: Turns, *runs: tuple[Address, int]) -> Turns:
    for signer, number in runs:
        turns.put(F, signer, due(number))
    return turns


def run_of(signer: Address) -> Turn:
    return Turn(F, signer, due(0))


def taken(turns: Turns, now_s: float = 0.0) -> list[tuple[Address, int]]:
    found: list[tuple[Address, int]] = []
    while (turn := turns.take(now_s)) is not None:
        found.append((turn.signer, turn.due.timestamp_ms))
    return found


def test_signers_take_turns_and_each_keeps_its_order() -> None:
    turns = filled(Turns(places=10, is_open=False), (A, 1), (A, 2), (A, 3), (B, 4), (C, 5), (B, 6))
    assert taken(turns) == [(A, 1), (B, 4), (C, 5), (A, 2), (B, 6), (A, 3)]
    assert turns.count == 6


def test_functions_take_turns_before_their_signers() -> None:
    turns = filled(Turns(places=10, is_open=False), (A, 1), (B, 2), (C, 3))
    turns.put(G, A, due(4))
    turns.put(G, A, due(5))
    assert taken(turns) == [(A, 1), (A, 4), (B, 2), (A, 5), (C, 3)]


def test_a_signer_of_an_open_relayer_has_one_place_for_all_functions() -> None:
    turns = filled(Turns(places=10, is_open=True), (A, 1))
    turns.put(G, A, due(2))
    turns.put(G, B, due(3))
    assert taken(turns) == [(A, 1), (B, 3)]


def test_no_more_run_than_there_are_places() -> None:
    turns = filled(Turns(places=2, is_open=False), (A, 1), (B, 2), (C, 3))
    assert taken(turns) == [(A, 1), (B, 2)]
    turns.ended(run_of(A), 1.0, 1.0)
    assert taken(turns, 1.0) == [(C, 3)]
    assert turns.count == 2


def test_a_function_leaves_places_to_others_of_its_signer_and_a_signer_to_others() -> None:
    turns = filled(Turns(places=8, is_open=False), *((A, number) for number in range(10)))
    assert taken(turns) == [(A, number) for number in range(6)]
    turns.put(G, A, due(10))
    turns.put(G, A, due(11))
    assert taken(turns) == [(A, 10)]
    assert turns.seconds_to_wait(0.0) is None
    turns.put(G, B, due(12))
    assert taken(turns) == [(B, 12)]
    turns.ended(run_of(A), 160.0, 160.0)
    assert taken(turns, 160.0) == [(A, 6)]


def test_a_signer_that_has_nothing_going_on_begins_on_any_place() -> None:
    turns = filled(Turns(places=1, is_open=False), (A, 1), (A, 2))
    assert taken(turns) == [(A, 1)]


def test_an_open_relayer_runs_one_of_a_signer_at_once_and_lets_it_rest() -> None:
    turns = filled(Turns(places=2, is_open=True), (A, 1), (A, 2), (B, 3))
    assert taken(turns) == [(A, 1), (B, 3)]
    turns.ended(run_of(A), 1.0, 1.0)
    assert taken(turns, 1.0) == []
    assert turns.seconds_to_wait(1.0) == pytest.approx(4.0)
    assert taken(turns, 4.9) == []
    assert taken(turns, 5.0) == [(A, 2)]
    assert turns.seconds_to_wait(5.0) is None


def test_signers_without_runs_are_forgotten_after_their_rest() -> None:
    turns = filled(Turns(places=2, is_open=True), (A, 1), (B, 2))
    assert len(taken(turns)) == 2
    turns.ended(run_of(A), 1.0, 1.0)
    turns.ended(run_of(B), 1.0, 9.0)
    assert list(turns._signers) == [B]  # A rested from 1 to 5
    assert turns.count == 0


@given(st.integers(1, 20), st.lists(st.floats(0.001, 10), min_size=1, max_size=50))
def test_a_signer_of_an_open_relayer_gets_a_tenth_of_the_time(places: int, runs: list[float]) -> None:
    turns, now_s, used_s = Turns(places=places, is_open=True), 0.0, 0.0
    for _ in runs:
        turns.put(F, A, due(1))
    for seconds in runs:
        now_s += turns.seconds_to_wait(now_s) or 0.0
        assert turns.take(now_s) is not None
        now_s += seconds
        used_s += seconds
        turns.ended(run_of(A), seconds, now_s)
    if places < 10:
        rested_s = runs[-1] * (10 / places - 1)
        assert used_s <= 0.1 * places * (now_s + rested_s) * 1.001
