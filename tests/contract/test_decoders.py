"""Whatever a stranger sends is read in time that is linear in its size, by every decoder there is."""

from __future__ import annotations

import pytest

import decoder_timing
from decoders import DECODERS, TRUSTED_ROOMS, Decoder, kinds_of_text, listed
from decoding_sites import sites


def test_every_place_that_reads_is_listed() -> None:
    found = {site for site in sites() if site.split(".")[0] not in TRUSTED_ROOMS}
    found = {site for site in found if site.partition(".")[2] not in kinds_of_text()}
    kinds = {site for site in listed() if site.partition(".")[2] in kinds_of_text()}
    assert sorted(found ^ (listed() - kinds)) == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_takes_linear_time_and_little_of_the_event_loop(decoder: Decoder) -> None:
    assert decoder_timing.faults_of(decoder) == []
