"""Server-sent events over sockets, on both engines."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, deploy, register
from service import services_of
from streams_world import Connect, Start, add, client, connect, ids_after, remove, start, until_gauge

__all__ = ["client", "connect", "start"]  # the fixtures


async def test_a_stream_without_a_position_has_new_events(start: Start, connect: Connect) -> None:
    site = start()
    async with httpx2.AsyncClient(base_url=site.urls[0]) as client:
        cid = await deploy(client)
        stream = await connect(site.urls[0])
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert (stream.headers["cache-control"], stream.headers["x-accel-buffering"]) == ("no-store", "no")
        first = await stream.block()
        assert first.fields.keys() == {"retry", "id"}
        assert 2_000 <= first.retry_ms <= 4_000
        trigger = await register(client, TriggerDraft(cid))
        shown = await stream.event()
        assert shown.fields.keys() == {"id", "data"}, "an `event` would keep it from `onmessage`"
        page = ok(await client.get("/events", params={"cursor": first.id})).json()
        assert [shown.data] == page
        assert (shown.data["id"], shown.data["subject"]) == (shown.id, trigger["sig"])


async def test_a_client_that_is_cut_off_again_and_again_misses_nothing_and_sees_nothing_twice(
    start: Start, connect: Connect
) -> None:
    site = start()
    chance = random.Random(15)
    stream = await connect(site.urls[0])
    begin = last = (await stream.block()).id

    async def write() -> None:
        for _ in range(40):
            await add(site, chance.randint(1, 120))
            await asyncio.sleep(0.02)

    seen: list[str] = []
    writing = asyncio.create_task(write())
    cuts = 0
    while not writing.done() or cuts < 10:
        for _ in range(chance.randint(0, 60)):
            block = await stream.block()
            last = block.id or last
            seen += [block.data["id"]] if block.data else []
        stream.writer.transport.abort()
        stream, cuts = await connect(site.urls[0], after=last), cuts + 1
    await writing
    wanted = await ids_after(site.urls[0], begin)
    while len(seen) < len(wanted):
        seen.append((await stream.event()).id)
    assert seen == wanted
    assert cuts >= 10


async def test_a_quiet_stream_sends_its_position(start: Start, connect: Connect, client: httpx2.AsyncClient) -> None:
    site = start()
    stream = await connect(site.urls[0], f"owner={Wallet(9).address}")
    first = await stream.block()
    await add(site, 3)
    beat = await stream.block()
    while beat.id == first.id:
        beat = await stream.block()
    assert beat.fields.keys() == {"id"}
    # The place is after the three events that the filter leaves out.
    later = await client.get(f"{site.urls[0]}/events", params={"cursor": beat.id})
    assert (later.json(), later.headers["x-caught-up"]) == ([], "true")


async def test_filters_choose_the_events_of_a_stream(start: Start, connect: Connect) -> None:
    site = start()
    async with httpx2.AsyncClient(base_url=site.urls[0]) as client:
        cid = await deploy(client, Bundle("F"), Wallet(5))
        ways = [
            f"owner={Wallet(5).address}", f"signer={Wallet(6).address}&types=trigger.created",
            f"functionCid={cid}&types=muniment.trigger.deactivated",
        ]  # fmt: skip
        streams = [await connect(site.urls[0], way) for way in ways]
        for stream in streams:
            await stream.block()
        await deploy(client, Bundle("G"), Wallet(5))
        for number in (5, 6):
            trigger = await register(client, TriggerDraft(cid, wallet=Wallet(number)))
            body = {
                "triggerSigs": [trigger["sig"]], "signature": Wallet(number).sign_deactivation([trigger["sig"]])
            }  # fmt: skip
            assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
        wanted = [
            ["function.created", "trigger.created", "trigger.deactivated"], ["trigger.created"],
            ["trigger.deactivated", "trigger.deactivated"],
        ]  # fmt: skip
        for stream, kinds in zip(streams, wanted, strict=True):
            shown = [(await stream.event()).data["type"] for _ in kinds]
            assert [each.removeprefix("muniment.") for each in shown] == kinds


async def test_another_epoch_resets_open_streams_and_those_that_come_back(start: Start, connect: Connect) -> None:
    site = start()
    stream = await connect(site.urls[0])
    before = (await stream.block()).id
    site.command("epoch", "renew")
    blocks: list[Any] = []
    while not blocks or "event" not in blocks[-1].fields:
        blocks.append(await stream.block())
    assert blocks[-1].fields["event"] == "reset"
    assert blocks[-1].data["code"] == "cursor-too-old"
    back = await connect(site.urls[0], after=before)
    reset = await back.block()
    assert (reset.fields["event"], reset.data["code"]) == ("reset", "cursor-too-old")
    await add(site, 1)
    assert (await stream.event()).id == (await back.event()).id


async def test_a_position_after_which_events_were_removed_is_reset(
    start: Start, connect: Connect, client: httpx2.AsyncClient
) -> None:
    site = start()
    stream = await connect(site.urls[0])
    begin = (await stream.block()).id
    await stream.close()
    await until_gauge(client, site.urls[0], "feed_streams", 0)  # the process looks no longer
    await add(site, 3_000)  # more than the process keeps in memory
    await remove(site)
    back = await connect(site.urls[0], after=begin)
    assert (await back.block()).id == begin
    reset = await back.block()
    assert reset.fields["event"] == "reset"
    page = ok(await client.get(f"{site.urls[0]}/events", params={"cursor": reset.id}))
    assert (page.json(), page.headers["x-caught-up"]) == ([], "true")


async def test_an_event_of_another_service_reaches_the_streams_of_each(
    tmp_path: Path, postgres_url: str, connect: Connect
) -> None:
    services = services_of(tmp_path, postgres_url)
    with services[0], services[1]:
        streams = [await connect(each.url) for each in services]
        for stream in streams:
            await stream.block()
        async with httpx2.AsyncClient(base_url=services[0].url) as client:
            cid = await deploy(client)
            trigger = await register(client, TriggerDraft(cid))
        for stream in streams:
            shown = [(await stream.event()).data["subject"] for _ in range(2)]
            assert shown[1] == trigger["sig"]


# Decided before a row is read.
on_sqlite = pytest.mark.parametrize("start", ["sqlite"], indirect=True)


@on_sqlite
async def test_malformed_parameters_are_400(start: Start, connect: Connect) -> None:
    site = start()
    for query, after in (("cursor=nonsense", ""), ("", "nonsense"), ("types=other", ""), ("signer=0x12", "")):
        stream = await connect(site.urls[0], query, after=after)
        assert (stream.status, stream.headers["content-type"]) == (400, "application/json"), query or after


async def test_last_event_id_goes_before_the_cursor(start: Start, connect: Connect) -> None:
    site = start()
    stream = await connect(site.urls[0])
    begin = (await stream.block()).id
    await add(site, 2)
    ids = [(await stream.event()).id for _ in range(2)]
    both = await connect(site.urls[0], f"cursor={begin}", after=ids[0])
    assert [(await both.block()).id, (await both.event()).id] == ids
    await stream.close()


@on_sqlite
async def test_a_service_without_a_feed_has_no_streams(start: Start, connect: Connect) -> None:
    stream = await connect(start(MUNIMENT_FEED="off").urls[0])
    assert stream.status == 404
