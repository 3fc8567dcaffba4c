"""Every decoder of input from strangers takes time linear in the size of the input."""

from __future__ import annotations

from functools import partial

import pytest

import decoder_timing
from counted_calls import calls_of
from decoders import DECODERS, TRUSTED_ROOMS, Decoder, kinds_of_text, listed
from decoding_sites import sites
from hostile import PIECES, Shape

# Bytes of a shape whose calls are counted, and of the one that is half as long.
COUNTED = 2_048
# At twice the size. Four times as many are quadratic; what begins with the second half is the rest.
GROWTH_MAX, CALLS_FREE = 3, 500


def test_every_place_that_reads_is_listed() -> None:
    found = {site for site in sites() if site.split(".")[0] not in TRUSTED_ROOMS}
    found = {site for site in found if site.partition(".")[2] not in kinds_of_text()}
    kinds = {site for site in listed() if site.partition(".")[2] in kinds_of_text()}
    assert sorted(found ^ (listed() - kinds)) == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_makes_at_most_twice_the_calls_for_twice_the_input(decoder: Decoder) -> None:
    """For every shape of input. The test of time below covers the work inside single calls of C functions."""
    size = min(COUNTED, decoder.size)
    for shape in (Shape(head, piece, tail) for piece in PIECES for head, tail in decoder.frames):
        whole = partial(decoder.read, shape.of(size))
        full = calls_of(whole)
        if full <= CALLS_FREE:
            continue
        halves = [partial(decoder.read, half) for half in shape.halves(size)]
        if any(full <= GROWTH_MAX * calls_of(half) + CALLS_FREE for half in halves):
            continue
        full = calls_of(whole)  # without what only the first reading makes, such as a codec
        is_linear = any(full <= GROWTH_MAX * calls_of(half) + CALLS_FREE for half in halves)
        assert is_linear, f"{shape}: {full:,} calls, {GROWTH_MAX} times as many as for any half of it"


@pytest.mark.timed
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_takes_linear_time_and_little_of_the_event_loop(decoder: Decoder) -> None:
    assert decoder_timing.faults_of(decoder) == []
