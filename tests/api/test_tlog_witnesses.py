"""Checkpoints are cosigned by witnesses. Those that fail or lie delay nothing for long, and stop nothing alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tlog_witness_world import answers, grow, one_thinks, restarted, signers
from tlog_world import epoch_of, shown

from conftest import NOW_MS, Clock
from muniment.protocol.log.notes import parse_note
from muniment.service.context import Context
from muniment.service.resources.log import witnesses as asking
from muniment.service.resources.log.integrator import Integrator
from muniment.service.running.settings import Settings
from witness_site import (
    Lie,
    Reply,
    WitnessSite,
    dated,
    endless,
    larger,
    signs_another_text,
    signs_by_a_stranger,
    signs_wrongly,
    slow,
    status,
)
from witnessed import LOG

NOW_S = NOW_MS // 1000


@pytest.fixture
def settings(watched: Settings) -> Settings:
    return watched


async def test_each_checkpoint_is_cosigned_after_a_proof_from_the_one_before(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    assert signers(await grow(context, clock, integrator), witnesses) == {0: NOW_S + 1, 1: NOW_S + 1}
    epoch = await grow(context, clock, integrator, 3)
    assert (epoch.note_size, signers(epoch, witnesses)) == (5, {0: NOW_S + 2, 1: NOW_S + 2})
    epoch = await grow(context, clock, integrator, 600, 10)
    assert (epoch.note_size, signers(epoch, witnesses)) == (605, {0: NOW_S + 3, 1: NOW_S + 3})
    clock.advance(seconds=60)
    epoch = await grow(context, clock, integrator)  # for its time
    assert (epoch.note_size, signers(epoch, witnesses)) == (605, {0: NOW_S + 64, 1: NOW_S + 64})
    assert witnesses[0].olds == witnesses[1].olds == [0, 2, 5, 605]
    checkpoint, at_s = await shown(context)
    assert (witnesses[0].checkpoint(LOG.name), at_s) == (checkpoint, NOW_S + 64)
    assert answers(context, "w1") == {"cosigned": 4}


async def test_a_process_that_has_just_started_goes_on_from_the_size_that_a_witness_has(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator, 300)
    async with restarted(context) as second:
        epoch = await grow(context, clock, second, 1, 1000)
    assert (epoch.note_size, set(signers(epoch, witnesses))) == (303, {0, 1})
    assert witnesses[0].olds == [0, 0, 302]


LIES: dict[str, tuple[Lie, str]] = {
    "larger": (larger, "ahead"),
    "another tree": (status(422), "forked"),
    "a key that it does not trust": (status(403), "refused"),
    "a log that it does not know": (status(404), "refused"),
    "a fault": (status(500), "failed"),
    "a redirect": (status(307), "failed"),
    "nothing": (status(200), "failed"),
    "no text": (status(200, b"\xff"), "failed"),
    "no signature": (status(200, b"signed\n"), "failed"),
    "an empty line": (lambda site, body: Reply(200, b"more\n\n" + site.add(body).content), "failed"),
    "no size": (status(409), "failed"),
    "a size without an end": (status(409, b"1"), "failed"),
    "a long size": (status(409, b"1" * 60_000 + b"\n"), "failed"),
    "the size that it was sent": (status(409, b"0\n"), "failed"),
    "too much": (endless, "failed"),
    "a wrong signature": (signs_wrongly, "failed"),
    "a signature over another text": (signs_another_text, "failed"),
    "a signature by another key": (signs_by_a_stranger, "failed"),
    "no time": (dated(0), "failed"),
    "a time to come": (dated(NOW_S + 1000), "failed"),
    "a time long past": (dated(NOW_S - 1000), "failed"),
    "the last time": (dated(2**63 - 1), "failed"),
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("quorum", ["any"])
@pytest.mark.parametrize("lie", LIES)
async def test_one_witness_that_lies_halts_nothing_and_adds_nothing(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite], lie: str
) -> None:
    witnesses[0].lie, outcome = LIES[lie]
    epoch = await grow(context, clock, integrator, 3)
    assert (epoch.state, epoch.note_size, set(signers(epoch, witnesses))) == ("open", 5, {1})
    assert epoch.note
    assert len(parse_note(epoch.note.encode()).signatures) == 3
    assert answers(context, "w1") == {outcome: 1}
    assert answers(context, "w2") == {"cosigned": 1}


@pytest.mark.parametrize("quorum", ["any"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_slow_witness_is_not_waited_for(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # The first that is asked is the slow one. How long the other one takes, the machine decides.
    bounds = iter([0.3])

    def bound(seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(next(bounds, None) if seconds == asking.SECONDS_MAX else seconds)

    monkeypatch.setattr(asking, "asyncio", SimpleNamespace(gather=asyncio.gather, timeout=bound))
    witnesses[0].lie = slow
    async with asyncio.timeout(30):  # it ends a hang
        epoch = await grow(context, clock, integrator)
    assert (epoch.note_size, set(signers(epoch, witnesses))) == (2, {1})
    assert answers(context, "w1") == {"failed": 1}
    assert set(signers(await grow(context, clock, integrator, 1), witnesses)) == {1}
    assert len(witnesses[0].bodies) <= 1, "it is not asked again yet; a busy machine does not reach it at all"


async def test_without_the_quorum_a_checkpoint_is_shown_and_cosigned_later(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    witnesses[0].lie = status(500)
    epoch = await grow(context, clock, integrator)
    assert (epoch.note_size, signers(epoch, witnesses)) == (2, {1: NOW_S + 1})
    assert await grow(context, clock, integrator) == epoch  # a witness that failed is left alone for two seconds
    await grow(context, clock, integrator)
    assert len(witnesses[0].bodies) == 2
    witnesses[0].lie = None
    await grow(context, clock, integrator)  # now for four
    assert len(witnesses[0].bodies) == 2
    clock.advance(seconds=3)
    epoch = await grow(context, clock, integrator)
    assert signers(epoch, witnesses) == {0: NOW_S + 8, 1: NOW_S + 8}
    assert await grow(context, clock, integrator) == epoch
    assert answers(context, "w1") == {"failed": 2, "cosigned": 1}


async def test_a_required_quorum_holds_checkpoints_back(
    context: Context, clock: Clock, witnesses: list[WitnessSite]
) -> None:
    integrator = Integrator(replace(context, settings=replace(context.settings, tlog_witness_required=True)))
    witnesses[0].lie = status(503)
    epoch = await grow(context, clock, integrator, 3)
    assert (epoch.state, epoch.size, epoch.note, epoch.note_size) == ("open", 5, None, 0)
    witnesses[0].lie = None
    clock.advance(seconds=2)
    epoch = await grow(context, clock, integrator)
    assert (epoch.note_size, set(signers(epoch, witnesses))) == (5, {0, 1})
    witnesses[1].lie = status(404)
    later = await grow(context, clock, integrator, 3, 10)
    assert (later.size, later.note) == (8, epoch.note)
    await integrator.close()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_another_process_shows_while_a_witness_thinks_is_not_replaced_by_an_earlier_time(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    async with one_thinks(clock, integrator, witnesses[0]), restarted(context) as second:
        epoch = await grow(context, clock, second)
    assert signers(epoch, witnesses) == {0: NOW_S + 63, 1: NOW_S + 63}
    assert await epoch_of(context) == epoch


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_witness_that_has_seen_a_later_checkpoint_of_another_process_halts_nothing(
    context: Context, clock: Clock, integrator: Integrator, witnesses: list[WitnessSite]
) -> None:
    await grow(context, clock, integrator)
    async with one_thinks(clock, integrator, witnesses[0]), restarted(context) as second:
        epoch = await grow(context, clock, second, 3)
    assert (epoch.note_size, set(signers(epoch, witnesses))) == (5, {0, 1})
    assert answers(context, "w1") == {"cosigned": 1, "ahead": 1}
    assert await epoch_of(context) == epoch
    clock.advance(seconds=60)
    assert set(signers(await grow(context, clock, integrator), witnesses)) == {0, 1}
