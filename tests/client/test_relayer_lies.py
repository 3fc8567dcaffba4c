"""A relayer at a registry that lies: no trigger runs that its owner did not sign, or has ended."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from lies import telling
from relayer_lies_world import ANY, World, followed, shown, world

from builders import cron
from middle import Answered, Asked, Forward
from muniment.client import Forged
from muniment.protocol.errors import TriggerNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.relayer.lives.following import CREATED, _subjects

__all__ = ["world"]


async def test_active_triggers_are_tracked_and_asked_again(world: World) -> None:
    sig = world.sign()
    async with followed(world) as following:
        await following.begin()
        assert sig in following.tracked
        asked = await following.asked_again(sig)
        assert asked is not None
        assert asked == following.tracked[sig].trigger
        assert (await following.bundle(asked)).wasm == world.bundle.wasm
        count = len(world.middle.asked)
        await following.bundle(asked)
        assert len(world.middle.asked) == count  # in memory


@pytest.mark.parametrize(
    "lie",
    [
        {"config": cron(schedule="*/2 * * * *")},
        {"functionCid": "other"},
        {"signer": str(Address.parse("0x" + "ab" * 20))},
        {"executionFeeLimit": "7"},
        {"minValidations": 2},
        {"endDate": 4_000_000_000_000},
    ],
    ids=lambda lie: next(iter(lie)),
)
async def test_a_trigger_that_its_owner_did_not_sign_so_is_not_tracked(world: World, lie: dict[str, Any]) -> None:
    sig = world.sign()
    other_sig = world.sign()
    lie = {name: world.other_cid if value == "other" else value for name, value in lie.items()}
    async with followed(world) as following:
        with world.middle.behaving(shown({**world.truth(sig), **lie})):
            await following.begin()
            assert sig not in following.tracked
            assert other_sig in following.tracked
    async with followed(world) as following:
        await following.begin()
        with world.middle.behaving(shown({**world.truth(sig), **lie})), pytest.raises(Forged):
            await following.asked_again(sig)


async def test_another_function_under_the_cid_is_refused(world: World) -> None:
    sig = world.sign()
    car = world.http.get(f"{world.middle.behind}/ipfs/{world.other_cid}?format=car").content

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        return answer._replace(content=car) if asked.target.startswith("/ipfs/") else answer

    async with followed(world) as following:
        await following.begin()
        trigger = following.tracked[sig].trigger
        with world.middle.behaving(behave), pytest.raises(Forged):
            await following.bundle(trigger)


async def test_triggers_under_another_protocol_name_are_not_tracked(world: World) -> None:
    world.sign()
    async with followed(world, protocol="Another") as following:
        await following.begin()
        assert following.tracked == {}


async def test_a_trigger_that_was_seen_ended_never_runs_again(world: World) -> None:
    sig, path = world.sign(), world.journal_path()
    active = world.truth(sig)
    async with followed(world, path) as following:
        await following.begin()
        world.owner.triggers.deactivate([sig])
        assert await following.asked_again(sig) is None
        assert sig not in following.tracked
    with world.middle.behaving(shown(active)):
        async with followed(world, path) as following:  # also after a restart
            await following.begin()
            assert sig not in following.tracked
            await following._read_again([sig])
            assert sig not in following.tracked
            assert await following.asked_again(sig) is None


async def test_an_end_that_was_missed_is_learned_at_the_next_start(world: World) -> None:
    sig, path = world.sign(), world.journal_path()
    active = world.truth(sig)
    async with followed(world, path) as following:
        await following.begin()
    world.owner.triggers.deactivate([sig])
    async with followed(world, path) as following:
        await following.begin()
    inserted = telling(lambda answer: [active] if isinstance(answer, list) else active, "GET", "/triggers")
    with world.middle.behaving(inserted):
        async with followed(world, path) as following:
            await following.begin()
            assert following.tracked == {}


async def test_an_end_that_the_owner_did_not_sign_stops_the_trigger_only_while_it_is_shown(world: World) -> None:
    sig = world.sign()
    ended = {**world.truth(sig), "deactivateSig": "0x" + "12" * 64 + "1b"}
    async with followed(world) as following:
        await following.begin()
        with world.middle.behaving(shown(ended)):
            assert await following.asked_again(sig) is None
            assert sig not in following.tracked
        await following.begin()
        assert sig in following.tracked


async def test_a_feed_that_is_replayed_starts_nothing(world: World) -> None:
    sig, other = world.sign(), world.sign()
    changes: list[str] = []
    async with followed(world) as following:
        following.on_change = changes.append
        cursor = await following.begin()
        assert {sig, other} <= set(changes)
        world.owner.triggers.deactivate([sig])
        page = await following.registry.events.page(cursor, {"types": ["muniment.trigger.deactivated"]})
        await following._read_again([Signature.parse(each.subject) for each in page])
        assert sig not in following.tracked
        changes.clear()
        for _ in range(2):
            await following._read_again([sig, other])
        assert changes == []
        assert other in following.tracked


async def test_events_prove_nothing(world: World) -> None:
    sig = world.sign()
    active = world.truth(sig)
    false = {
        "specversion": "1.0", "id": "x", "source": "/", "type": CREATED, "subject": sig, "time": active["createdAt"],
        "data": {},
    }  # fmt: skip
    async with followed(world) as following:
        cursor = await following.registry.events.begin()
        world.owner.triggers.deactivate([sig])  # after the cursor, so that the feed has something to show at once
        await following.begin()
        with world.middle.behaving(telling(lambda _: [false, {**false, "subject": "nonsense"}], "GET", "/events")):
            page = await following.registry.events.page(cursor, {})
            assert _subjects(page) == [sig]
            await following._read_again(_subjects(page))
        assert sig not in following.tracked


async def test_a_trigger_that_is_created_later_is_followed(world: World) -> None:
    async with followed(world) as following:
        cursor = await following.begin()
        sig = world.sign()
        seen: list[str] = []

        class Enough(Exception):
            pass

        def see(changed: Signature) -> None:
            seen.append(changed)
            if changed == sig:
                raise Enough

        following.on_change = see
        with pytest.raises(Enough):
            await following.follow(cursor)
        assert sig in following.tracked


async def test_after_an_old_cursor_all_triggers_are_read_again(world: World) -> None:
    gone = Answered(410, {"content-type": "application/json"}, json.dumps({"code": "cursor-too-old"}).encode())
    told: list[str] = []

    def behave(asked: Asked, forward: Forward) -> Answered:
        if asked.target.startswith("/events") and "cursor=" in asked.target and not told:
            told.append(asked.target)
            return gone
        return forward()

    async with followed(world) as following:
        cursor = await following.begin()
        sig = world.sign()

        class Enough(Exception):
            pass

        def see(changed: Signature) -> None:
            if changed == sig:
                raise Enough

        following.on_change = see
        with world.middle.behaving(behave), pytest.raises(Enough):
            await following.follow(cursor)
        assert len(told) == 1


async def test_only_what_is_served_is_tracked(world: World) -> None:
    sig = world.sign()
    for served in (
        replace(ANY, signers=frozenset({Address.parse("0x" + "ab" * 20)})),
        replace(ANY, functions=frozenset({b"another"})),
    ):
        async with followed(world, served=served) as following:
            await following.begin()
            await following._read_again([sig])
            assert following.tracked == {}


async def test_a_trigger_that_the_registry_lost_does_not_run(world: World) -> None:
    sig = world.sign()
    lost = Answered(404, {"content-type": "application/json"}, json.dumps({"code": "trigger-not-found"}).encode())

    def behave(asked: Asked, forward: Forward) -> Answered:
        return lost if asked.target == f"/triggers/{sig}" else forward()

    async with followed(world) as following:
        await following.begin()
        with world.middle.behaving(behave), pytest.raises(TriggerNotFound):  # asked again later
            await following.asked_again(sig)
        assert await following.asked_again(sig) is not None
