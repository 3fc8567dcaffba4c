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
    for shape in (Shape(head, piece, tail) for piece in PIECES for head, tail in decoder.frames):
        # The second reading is without what only the first one makes, such as a codec.
        is_linear = _is_linear(decoder, shape) or _is_linear(decoder, shape)
        assert is_linear, f"{shape}: more than {GROWTH_MAX} times the calls of any half of it"


def _is_linear(decoder: Decoder, shape: Shape) -> bool:
    """Whether some half of the shape takes enough of the calls that the whole takes."""
    size = min(COUNTED, decoder.size)
    whole = calls_of(partial(decoder.read, shape.of(size)))
    return whole <= CALLS_FREE or any(
        whole <= GROWTH_MAX * calls_of(partial(decoder.read, half)) + CALLS_FREE for half in shape.halves(size)
    )


@pytest.mark.timed
@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_takes_linear_time_and_little_of_the_event_loop(decoder: Decoder) -> None:
    assert decoder_timing.faults_of(decoder) == []
