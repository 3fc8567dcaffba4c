"""Whatever a stranger sends is read in time that is linear in its size, by every decoder there is."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from decoders import DECODERS, TRUSTED_ROOMS, Decoder, kinds_of_text, listed
from decoding_sites import sites
from hostile import PIECES, Shape, cpu_seconds, slowness

# On the event loop nobody else is answered meanwhile.
LOOP_SECONDS_MAX = 0.020
# What takes less than this is not measured twice: a quadratic decoder cannot be as quick at full size, and what fits a
# cache by half only takes longer than twice as long on a machine that has other work.
FLOOR_SECONDS = 0.012
RATIO_MAX = 2.5
# What a pause of the machine adds, on an idle one.
PAUSE_SECONDS = 0.003


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """The objects of a test run are many; a service has few, and freezes those of its start."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_every_place_that_reads_is_listed() -> None:
    found = {site for site in sites() if site.split(".")[0] not in TRUSTED_ROOMS}
    found = {site for site in found if site.partition(".")[2] not in kinds_of_text()}
    kinds = {site for site in listed() if site.partition(".")[2] in kinds_of_text()}
    assert sorted(found ^ (listed() - kinds)) == []


def faults(decoder: Decoder, shape: Shape) -> list[str]:
    """What is wrong with reading `shape`; measured again before it is said, as machines have other work too."""
    full, half = shape.of(decoder.size), shape.of(decoder.size // 2)
    found: list[str] = []
    for runs in (1, 3, 10):
        seconds = cpu_seconds(lambda: decoder.read(full), runs)
        if seconds <= FLOOR_SECONDS:
            return []
        half_seconds = cpu_seconds(lambda: decoder.read(half), runs)
        found = []
        if seconds > RATIO_MAX * half_seconds + PAUSE_SECONDS * slowness():
            found.append(f"{shape}: {seconds / half_seconds:.1f} times as long at twice the size")
        if decoder.is_on_loop and seconds > LOOP_SECONDS_MAX * slowness():
            found.append(f"{shape}: {seconds * 1000:.1f} ms on the event loop")
        if not found:
            break
    return found


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_a_decoder_takes_linear_time_and_little_of_the_event_loop(decoder: Decoder) -> None:
    shapes = [Shape(head, piece, tail) for piece in PIECES for head, tail in decoder.frames]
    assert [fault for shape in shapes for fault in faults(decoder, shape)] == []
