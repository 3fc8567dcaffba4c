"""A registry that shows an ended trigger as active, while its transparency log has the deactivation: no run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lies import telling
from msgspec.structs import replace
from relayer_lies_world import World, followed, own_ms, shown, world
from structlog.testing import capture_logs

from builders import Wallet
from middle import Answered, Asked, Behaviour, Forward
from muniment.client import NotAnnounced, NotLoggedYet, Progress, Rules, Seen
from muniment.client.flows.log.entries import Duplicates
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.log.entries import DeactivationFact, Entry
from muniment.protocol.triggers.typed_data import deactivation_text
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.lives import logged_ends
from muniment.relayer.lives.logged_ends import LoggedEnds

__all__ = ["world"]

SHOWN_ACTIVE = "the registry shows a trigger as active whose deactivation is in its log"
UNREADABLE = "the log of the registry cannot be followed"
# Only ends a hang: the log takes up a record after two seconds.
SECONDS_MAX = 120


def ended(world: World) -> tuple[Signature, Any]:
    """A trigger whose deactivation is in the log, and its record while it was active."""
    sig = world.sign()
    active = world.truth(sig)
    world.owner.triggers.deactivate([sig])
    deactivation = world.owner.triggers.deactivation(world.truth(sig)["deactivateSig"])
    until_s = time.monotonic() + SECONDS_MAX
    while True:
        try:
            world.owner.log.prove(deactivation)
        except NotLoggedYet:
            assert time.monotonic() < until_s
            time.sleep(0.2)
        else:
            return sig, active


async def test_a_trigger_that_ended_in_the_log_never_runs_although_it_was_always_shown_as_active(world: World) -> None:
    sig, active = ended(world)
    path, deactivation = world.journal_path(), world.truth(sig)["deactivateSig"]
    with world.middle.behaving(listing(active)), capture_logs() as lines:
        async with followed(world, path) as following:
            await following.begin()
            assert following.tracked == {}
            assert await following.asked_again(sig) is None
    assert lines[0] == {"trigger": sig, "deactivation": deactivation, "event": SHOWN_ACTIVE, "log_level": "error"}
    # For ever: also where the log is shown no more.
    with world.middle.behaving(without_log(active)):
        async with followed(world, path) as following:
            await following.begin()
            assert following.tracked == {}


def listing(active: Any) -> Behaviour:
    """A behaviour that lists this record, and no other."""
    return telling(lambda answer: [active] if isinstance(answer, list) else active, "GET", "/triggers")


def without_log(active: Any) -> Behaviour:
    """A behaviour of a registry that keeps no log, and that lists this record alone."""

    def behave(asked: Asked, forward: Forward) -> Any:
        if asked.target.startswith("/log"):
            return Answered(404, {"content-type": "application/json"}, b'{"code": "unknown-path"}')
        return listing(active)(asked, forward)

    return behave


async def test_an_end_that_comes_into_the_log_later_stops_the_next_run(world: World) -> None:
    kept = world.sign()
    async with followed(world) as following:
        await following.begin()
        sig, active = ended(world)
        with world.middle.behaving(shown(active)):
            await following._read_again([sig])
            assert sig in following.tracked  # the log was read before
            await following.ends.read()
            assert await following.asked_again(sig) is None
            assert sig not in following.tracked
        assert await following.asked_again(kept) is not None


async def test_a_log_that_shows_less_than_before_is_an_alarm_also_after_a_restart(world: World) -> None:
    ended(world)
    old = world.http.get(f"{world.middle.behind}/log/1/checkpoint").content
    ended(world)
    path = world.journal_path()
    async with followed(world, path) as following:
        await following.ends.read()

    def behind(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        return answer._replace(content=old) if asked.target.endswith("/checkpoint") else answer

    for journal, alarms in ((world.journal_path(), []), (path, [(UNREADABLE, "Late")])):
        async with followed(world, journal) as following:
            with world.middle.behaving(behind), capture_logs() as lines:
                await following.ends.read()
        assert [(each["event"], each["error"]) for each in lines] == alarms


def with_new_log(asked: Asked, forward: Forward) -> Answered:
    """A registry that has just started: its log has no epoch yet."""
    started = Answered(200, {"content-type": "application/json"}, b'{"epochs":[]}')
    return started if asked.target == "/log" else forward()


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_registry_without_a_log_changes_nothing(world: World, *, is_new: bool) -> None:
    sig = world.sign()
    behaviour = with_new_log if is_new else without_log(world.truth(sig))
    with world.middle.behaving(behaviour), capture_logs() as lines:
        async with followed(world) as following:
            await following.begin()
            assert sig in following.tracked
    assert lines == []


async def test_a_log_that_is_shown_no_more_or_falsely_is_an_alarm_and_stops_nothing(world: World) -> None:
    ended(world)  # so that the log is signed
    sig, path = world.sign(), world.journal_path()

    def false(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        return answer._replace(content=b"\0" * len(answer.content)) if "/tile/" in asked.target else answer

    async with followed(world, path) as following:
        with world.middle.behaving(false), capture_logs() as lines:
            await following.begin()
        assert sig in following.tracked
        assert [(each["event"], each["error"]) for each in lines] == [(UNREADABLE, "Forged")]
        await following.ends.read()
        with world.middle.behaving(without_log(world.truth(sig))):
            with capture_logs() as lines:
                await following.ends.read()
            assert await following.asked_again(sig) is not None
        assert [(each["event"], each["error"]) for each in lines] == [(UNREADABLE, "UnknownPath")]
        with world.middle.behaving(with_new_log), capture_logs() as lines:
            await following.ends.read()
        assert [(each["event"], each["error"]) for each in lines] == [
            (UNREADABLE, "NotAnnounced"), (UNREADABLE, "NotBegun"),
        ]  # fmt: skip


class Log:
    """A log whose newest epoch the one before does not announce, with these entries."""

    def __init__(self, *facts: Entry | None) -> None:
        self.facts = facts
        self.log = self

    async def follow(self, seen: Seen | None, rules: Rules) -> Progress:
        if seen is not None and not rules.accepts:
            raise NotAnnounced("another log")
        assert rules.on_entry is not None
        for index, fact in enumerate(self.facts):
            rules.on_entry(index, fact)
        kept = Seen("registry.example/log/2", ("a", "b"), "a note")
        return Progress(kept, faults=["entry 1 has two histories"])


def signed_end(wallet: Wallet, *sigs: Signature, **members: Any) -> DeactivationFact:
    signature = wallet.sign_text(deactivation_text(sigs))
    fact = DeactivationFact(signature, wallet.address, "2026-11-20T19:48:00.123Z", "Mimic Protocol - Registry", sigs)
    return replace(fact, **members)


async def test_only_what_an_owner_signed_ends_a_trigger() -> None:
    first, second, third = (Signature.parse(f"0x{number:064x}{number:064x}1b") for number in range(1, 4))
    owner, stranger = Wallet(3), Wallet(4)
    facts = (
        signed_end(owner, first, second), signed_end(stranger, third),
        signed_end(stranger, third, signer=owner.address), signed_end(owner, third, trigger_sigs=(second, third)), None,
    )  # fmt: skip
    with Journal.in_memory() as journal, capture_logs() as lines:
        registry: Any = Log(*facts)
        ends = LoggedEnds(registry=registry, journal=journal, protocol="Mimic", own_ms=own_ms)
        await ends.read()
        owner_address, other = Address.parse(owner.address), Address.parse(stranger.address)
        assert [journal.logged_end(each, owner_address) for each in (first, second)] == [facts[0].signature] * 2
        assert journal.logged_end(third, owner_address) is None
        assert journal.logged_end(third, other) == facts[1].signature
        assert [each["event"] for each in lines] == ["the log of the registry has what it must not sign"]
        # A log that begins anew is an alarm, and is followed.
        lines.clear()
        await ends.read()
        assert [each.get("error") for each in lines] == ["NotAnnounced", None]


async def test_the_log_is_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_ends, "_PAUSE_S", 0)
    read = asyncio.Event()

    class Often(Log):
        count = 0

        async def follow(self, seen: Seen | None, rules: Rules) -> Progress:
            self.count += 1
            if self.count == 1:
                raise RuntimeError("a defect")  # which stops nothing
            read.set()
            return await super().follow(seen, rules)

    with Journal.in_memory() as journal:
        registry: Any = Often()
        ends = LoggedEnds(registry=registry, journal=journal, protocol="Mimic", own_ms=own_ms)
        task = asyncio.create_task(ends.read_always())
        waiting = asyncio.create_task(read.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        task.cancel()


async def test_a_journal_that_cannot_be_written_for_a_while_ends_no_relayer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logged_ends, "_PAUSE_S", 0)
    with Journal.in_memory() as journal, capture_logs() as lines:
        registry: Any = Log(signed_end(Wallet(3), Signature.parse(f"0x{1:064x}{1:064x}1b")))
        ends = LoggedEnds(registry=registry, journal=journal, protocol="Mimic", own_ms=own_ms)
        journal._connection.execute("PRAGMA query_only = ON")  # as a full disk
        task = asyncio.create_task(ends.read_always())
        while not (lines or task.done()):
            await asyncio.sleep(0)
        assert not task.done()
        journal._connection.execute("PRAGMA query_only = OFF")
        while journal.fact("log") is None:
            await asyncio.sleep(0)
        task.cancel()
    assert lines[0]["error"] == "OperationalError"


async def test_a_log_that_is_read_from_its_beginning_takes_no_memory_for_each_record(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(world)
    kept = list[int]()

    def faults(duplicates: Duplicates, fact: Entry | None, place: str) -> Iterator[str]:
        yield from found(duplicates, fact, place)
        kept.append(len(duplicates.known))

    found = Duplicates.faults
    monkeypatch.setattr(Duplicates, "faults", faults)
    async with followed(world) as following:
        await following.ends.read()
        assert following.journal.fact("log") is not None
    assert len(kept) > 1
    assert set(kept) == {0}
