"""Bundles reach the IPFS node: by uploads, by the search, after outages, once each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from pins_world import QUICK, row, ticking, until, until_rows, with_node, working

from answers import ok
from applications import another_process, client_of
from builders import EMPTY_WASM, Bundle, Wallet, api_key_of, deploy
from conftest import Clock
from muniment.protocol.ipfs.cid import decode_cid
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.pins import queue
from muniment.service.pins.worker import PinLimits, Pinner
from pin_node import PinNode, pin_node, v1


@pytest.fixture
def node() -> Iterator[PinNode]:
    with pin_node() as started:
        yield started


@pytest.fixture
def pinning(context: Context, node: PinNode) -> Context:
    """The context of a registry that names the node."""
    return with_node(context, node.url)


@pytest.fixture
async def uploads(pinning: Context) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that names the node. Its own workers do not run: tests start their own."""
    async with client_of(Application(pinning)) as made:
        yield made


async def test_the_node_has_every_file_of_an_uploaded_bundle_under_our_cid(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    # Ten leaves, all of them different.
    bundle = Bundle(wasm=EMPTY_WASM + b"\0\x81\x80\xa0\x01\0" + b"".join(i.to_bytes(32) for i in range(81_920)))
    cid = await deploy(uploads, bundle)
    async with working(pinning):
        await until(lambda: cid in node.pinned)
        await until_rows(pinning, "pinned_at_ms IS NOT NULL AND taken = 0 AND error IS NULL")
    assert node.file(cid, "manifest.json") == bundle.manifest
    assert node.file(cid, "function.wasm") == bundle.wasm
    assert await queue.count_waiting(pinning.database) == 0


async def test_a_bundle_of_cids_in_version_1_is_pinned_under_its_cid(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, context: Context
) -> None:
    cid = await deploy(uploads)
    # As it was registered under the other profile: only the spelling of the root differs in the record.
    await context.database.write(
        lambda tx: tx.execute("UPDATE functions SET record = replace(record, ?, ?)", (cid, v1(cid)))
    )
    async with working(pinning):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL")
    assert list(node.pinned) == [v1(cid)]


async def test_a_bundle_that_is_uploaded_again_is_not_sent_again(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    cid = await deploy(uploads)
    async with working(pinning):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL")
        assert await deploy(uploads) == cid
        assert await deploy(uploads, wallet=Wallet(2)) == cid
        await asyncio.sleep(0.3)
    assert node.imports == [cid]
    assert node.looks == [cid]


async def test_bundles_from_before_the_setting_are_pinned(
    client: httpx2.AsyncClient, context: Context, node: PinNode
) -> None:
    cids = {await deploy(client, Bundle(version=f"1.0.{number}")) for number in range(3)}
    assert await context.database.fetch("SELECT * FROM pins") == []
    async with working(with_node(context, node.url)):
        await until_rows(context, "pinned_at_ms IS NOT NULL", 3)
        late = await deploy(client, Bundle(version="1.1.0"))  # by a process that does not pin
        await until_rows(context, "pinned_at_ms IS NOT NULL", 4)
    assert set(node.pinned) == {*cids, late}


async def test_more_bundles_than_one_step_of_the_search_are_added_once_each(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await deploy(client, Bundle(version=f"1.0.{number}"))
    monkeypatch.setattr(queue, "_FUNCTIONS_PER_STEP", 2)
    assert await queue.add_missing(context.database, 1) == 5
    assert await queue.add_missing(context.database, 2) == 0
    assert await context.database.fetch("SELECT DISTINCT waits_since_ms FROM pins") == [(1,)]


async def test_an_upload_does_not_wait_for_a_node_that_is_slow(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    node.may_answer.clear()
    async with working(pinning):
        await deploy(uploads)
        await until(lambda: bool(node.imports))
        async with asyncio.timeout(60):
            cids = [await deploy(uploads, Bundle(version=f"2.0.{number}")) for number in range(4)]
        assert not node.pinned
        node.may_answer.set()
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 5)
    assert set(cids) <= set(node.pinned)


async def test_a_process_sends_no_more_bundles_at_once_than_it_has_workers(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    node.may_answer.clear()
    for number in range(6):
        await deploy(uploads, Bundle(version=f"1.0.{number}"))
    async with working(pinning, PinLimits(workers=2, idle_seconds=0.01)):
        await until(lambda: node.at_once == 2)
        await asyncio.sleep(0.2)
        node.may_answer.set()
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 6)
    assert node.at_once_max == 2
    assert sorted(node.imports) == sorted(set(node.imports))


async def test_after_an_outage_of_the_node_every_bundle_is_pinned(
    context: Context, clock: Clock, node: PinNode
) -> None:
    port = node.port
    away = with_node(context, "http://127.0.0.1:9")  # discard: no listener
    async with client_of(Application(away)) as uploads, working(away):
        cids = {await deploy(uploads, Bundle(version=f"1.0.{number}")) for number in range(5)}
        async with ticking(clock):  # a bundle that was given back is due after the others
            await until_rows(context, "error = 'pin/ls: unreachable'", 5)
        assert await context.database.fetch("SELECT DISTINCT failures FROM pins") == [(0,)]
        assert await queue.count_waiting(context.database) == 5
    # No bundle was made to wait. One that a worker had just taken when it ended is due when its turn is over.
    clock.advance(seconds=QUICK.lease_ms / 1000)
    async with working(with_node(context, f"http://127.0.0.1:{port}")):
        await until_rows(context, "pinned_at_ms IS NOT NULL AND error IS NULL", 5)
    assert set(node.pinned) == cids


async def test_two_processes_pin_each_bundle_once(uploads: httpx2.AsyncClient, pinning: Context, node: PinNode) -> None:
    headers = {"x-api-key": await api_key_of(uploads, Wallet())}
    bundles = [Bundle(version=f"1.0.{number}") for number in range(12)]
    answers = [ok(await uploads.post("/functions", files=each.files, headers=headers)) for each in bundles]
    cids = [each.json()["CID"] for each in answers]
    async with another_process(pinning) as other, working(pinning), working(other):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 12)
    assert sorted(node.imports) == sorted(cids)
    assert set(await pinning.database.fetch("SELECT turn FROM pins")) == {(1,)}


async def test_of_two_processes_that_see_a_due_bundle_one_takes_it(
    uploads: httpx2.AsyncClient, pinning: Context
) -> None:
    await deploy(uploads)
    async with another_process(pinning) as other:
        databases = (pinning.database, other.database) * 4
        taken = await asyncio.gather(*(queue.take(each, pinning.clock.now_ms(), 60_000) for each in databases))
    assert sum(each is not None for each in taken) == 1


async def test_a_bundle_of_a_killed_worker_is_taken_again_and_the_late_worker_writes_nothing(
    uploads: httpx2.AsyncClient, pinning: Context, clock: Clock
) -> None:
    await deploy(uploads)
    database = pinning.database
    killed = await queue.take(database, clock(), 60_000)
    assert killed is not None
    clock.advance(seconds=59)
    assert await queue.take(database, clock(), 60_000) is None
    clock.advance(seconds=1)
    second = await queue.take(database, clock(), 60_000)
    assert second is not None
    assert (second.digest, second.turn) == (killed.digest, 2)
    await queue.finish(database, killed, clock())
    await queue.give_back(database, killed, 0, 7, "late")
    assert await row(pinning, "taken, failures, error, pinned_at_ms") == (1, 0, None, None)
    await queue.finish(database, second, clock())
    assert await row(pinning, "taken, pinned_at_ms") == (0, clock())


async def test_a_bundle_that_a_clock_from_the_future_has_put_off_is_due(
    uploads: httpx2.AsyncClient, pinning: Context, clock: Clock
) -> None:
    await deploy(uploads)
    taken = await queue.take(pinning.database, clock(), 60_000)
    assert taken is not None
    await queue.give_back(pinning.database, taken, clock() + 86_400_000, 1, "the clock is ahead by a day")
    assert await queue.take(pinning.database, clock(), 60_000) is not None


async def test_an_answer_that_was_lost_costs_no_second_upload(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode, clock: Clock
) -> None:
    cid = await deploy(uploads)
    node.fault = "lost answer"
    async with working(pinning):
        await until_rows(pinning, "failures = 1 AND error = 'dag/import: unreachable'")
        clock.advance(seconds=2)
        await until_rows(pinning, "pinned_at_ms IS NOT NULL AND failures = 0 AND error IS NULL")
    assert node.imports == [cid]
    assert node.looks == [cid, cid]


async def test_pinned_bundles_are_looked_for_again_after_a_recheck_and_sent_if_the_node_lost_them(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    kept, lost = [await deploy(uploads, Bundle(version=version)) for version in ("1.0.0", "1.0.1")]
    async with working(pinning):
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 2)
        del node.pinned[lost]
        assert await pinning.database.write(lambda tx: queue.recheck(tx, pinning.clock.now_ms())) == 2
        await until_rows(pinning, "pinned_at_ms IS NOT NULL", 2)
    assert set(node.pinned) == {kept, lost}
    assert sorted(node.imports) == sorted([kept, lost, lost])


async def test_a_retry_makes_waiting_bundles_due_and_leaves_a_taken_one_to_its_worker(
    uploads: httpx2.AsyncClient, pinning: Context, clock: Clock
) -> None:
    database = pinning.database
    await deploy(uploads)
    taken = await queue.take(database, clock(), 60_000)
    assert taken is not None
    assert await database.write(lambda tx: queue.retry(tx, clock())) == 0
    await queue.give_back(database, taken, clock() + 60_000, 3, "no space")
    assert await queue.take(database, clock(), 60_000) is None
    other = decode_cid("QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn").digest
    assert await database.write(lambda tx: queue.retry(tx, clock(), [other])) == 0
    assert await database.write(lambda tx: queue.retry(tx, clock(), [other, taken.digest])) == 1
    again = await queue.take(database, clock(), 60_000)
    assert again is not None
    assert (again.turn, again.failures) == (2, 0)


async def test_the_number_of_bundles_that_wait_is_told(
    uploads: httpx2.AsyncClient, pinning: Context, node: PinNode
) -> None:
    told: list[int] = []
    node.look_status = 503
    for number in range(3):
        await deploy(uploads, Bundle(version=f"1.0.{number}"))
    async with working(pinning, on_count=told.append):
        await until(lambda: told[-1:] == [3])
        node.look_status = 200
        await until(lambda: told[-1:] == [0])
    assert told == sorted(told, reverse=True)


async def test_a_registry_without_a_node_has_an_empty_queue(client: httpx2.AsyncClient, context: Context) -> None:
    await deploy(client)
    assert await context.database.fetch("SELECT * FROM pins") == []


def test_a_bundle_is_taken_for_longer_than_its_requests_may_take() -> None:
    limits = PinLimits()
    assert limits.lease_ms > (limits.look_seconds_max + limits.import_seconds_max) * 1000
    assert limits.wait_ms_max <= queue.WAIT_MS_MAX


async def test_pauses_double_up_to_their_limit_and_differ_between_processes(pinning: Context) -> None:
    pinner = Pinner(pinning, QUICK)
    for failures, most in ((1, 2), (2, 4), (5, 32), (12, 3_600), (10_000, 3_600)):
        pauses = {pinner._jittered(2, 3_600, failures) for _ in range(20)}
        assert len(pauses) > 1
        assert most / 2 <= min(pauses) <= max(pauses) <= most
