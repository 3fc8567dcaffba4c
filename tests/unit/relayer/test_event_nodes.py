"""Events of a chain whose nodes differ: what is said of it, what runs meanwhile, and what a restart reads again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from chain import SECONDS_MAX
from event_world import EventWorld, contract, events
from made_up_chain import CHAIN_ID, Change, invents, omits
from muniment.chains import agreeing, log_reader
from muniment.relayer.events.lanes import place_name

__all__ = ["events"]

HOUR_S = 3_600
OTHER = 2


async def to_head(world: EventWorld, seconds: int = 0) -> None:
    """Read up to the head, so many seconds later: a node that failed has rested by then."""
    world.now_s += seconds
    await world.to_head()


def hides(method: str, _params: list[Any], result: Any) -> Any:
    """What a node answers that leaves out the logs of a contract, also in receipts."""
    if method == "eth_getLogs":
        return [log for log in result if log["address"] != contract(OTHER).lower()]
    if method == "eth_getTransactionReceipt" and result["logs"][0]["address"] == contract(OTHER).lower():
        return {**result, "logs": []}
    return result


@pytest.mark.parametrize(("change", "lister", "others"), [(invents(has_receipts=True), 2, 3), (hides, 1, 0)])
async def test_of_two_nodes_one_that_differs_with_receipts_is_said_and_stops_no_event(
    events: EventWorld, change: Change, lister: int, others: int
) -> None:
    events.add_node(change)
    honest, other = (events.sign(at, signer=at, at=at) for at in (1, OTHER))
    await to_head(events)
    with capture_logs() as lines:
        for _ in range(3):
            events.log(OTHER)
            await to_head(events, 4)
            events.log(1)
            await to_head(events, 4)
    assert (events.planned()[honest], events.planned()[other]) == (3, others)
    disputed = 6 if others else 3
    assert f'muniment_relayer_disputed_logs{{chain="8453"}} {disputed}\n' in events.metrics()
    (said,) = [line for line in lines if "nodes differ" in line["event"]]
    assert (said["chain"], said["url"], said["other"], said["disputed"]) == (CHAIN_ID, lister, 3 - lister, 1)
    with capture_logs() as lines:
        events.log(OTHER)
        await to_head(events, 60)
    assert [line["disputed"] for line in lines if "nodes differ" in line["event"]] == [disputed + 1]


@pytest.mark.parametrize(("kind", "change"), [("invents", invents()), ("omits", omits())])
async def test_a_node_that_is_proved_wrong_is_counted_by_what_it_did(
    events: EventWorld, kind: str, change: Change
) -> None:
    events.add_node(change)
    sig = events.sign(1, signer=1, at=1)
    await to_head(events)
    with capture_logs() as lines:
        for count in (1, 2):
            events.log(1)
            await to_head(events, 61)
            assert f'muniment_relayer_node_failures{{chain="8453",kind="{kind}"}} {count}\n' in events.metrics()
    assert [(line["reason"], line["url"]) for line in lines if "failed" in line["event"]] == [(kind, 2)] * 2
    assert events.planned() == {sig: 2}
    assert 'disputed_logs{chain="8453"} 0\n' in events.metrics()


def lags(method: str, params: list[Any], result: Any) -> Any:
    """What a node answers that is a thousand blocks behind."""
    if method == "eth_blockNumber":
        return hex(max(0, int(result, 16) - 1_000))
    return None if method == "eth_getBlockByNumber" and params[0] != "latest" else result


def has_other_hashes(method: str, _params: list[Any], result: Any) -> Any:
    return {**result, "hash": "0x" + "ee" * 32} if method == "eth_getBlockByNumber" else result


@pytest.mark.parametrize(("kind", "change"), [("behind", lags), ("other-blocks", has_other_hashes), ("slow", None)])
async def test_a_node_that_two_others_do_without_is_named_each_minute(
    events: EventWorld, kind: str, change: Change | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = threading.Event()

    def hangs(_method: str, _params: list[Any], result: Any) -> Any:
        is_over.wait(SECONDS_MAX)
        return result

    # A busy machine is slow: only the node that hangs is not waited for.
    monkeypatch.setattr(log_reader, "LOOK_S", SECONDS_MAX)
    monkeypatch.setattr(agreeing, "SLOW_S", SECONDS_MAX)
    if change is not None:
        monkeypatch.setattr(log_reader, "GRACE_S", SECONDS_MAX)
    events.add_node(lambda _method, _params, result: result)
    node = events.add_node(change or hangs)
    sig = events.sign(1, signer=1, at=1)
    with capture_logs() as lines:
        for seconds in (0, 4, 4, 4, 4):
            events.log(1)
            await to_head(events, seconds)
        assert f'node_failures{{chain="8453",kind="{kind}"}} 1\n' in events.metrics()
        await to_head(events, 60)
    assert f'node_failures{{chain="8453",kind="{kind}"}} 2\n' in events.metrics()
    named = [line for line in lines if line["event"] == "others do without a node"]
    assert [(line["reason"], line["url"]) for line in named] == [(kind, 3)] * 2
    assert events.planned() == {sig: 5}
    # One that is as good as the others again is not named.
    is_over.set()
    monkeypatch.setattr(log_reader, "GRACE_S", SECONDS_MAX)
    node.change = lambda _method, _params, result: result
    with capture_logs() as lines:
        for _ in range(5):
            await to_head(events, 61)
    assert not lines


async def test_an_event_that_is_given_up_is_noted_whichever_lane_finds_that(events: EventWorld) -> None:
    hidden = list[str]()

    def hides_some(method: str, params: list[Any], result: Any) -> Any:
        if method == "eth_getLogs":
            return [log for log in result if log["transactionHash"] not in hidden]
        return {**result, "logs": []} if method == "eth_getTransactionReceipt" and params[0] in hidden else result

    events.add_node(hides_some)
    events.sign(1, signer=1, at=1)
    sig = events.sign(2, signer=2, at=OTHER)
    await to_head(events)
    events.log(OTHER)
    hidden.append(events.chain.logs[-1]["transactionHash"])
    await to_head(events)
    events.log(OTHER, 250)
    await to_head(events)
    assert (events.lanes(), events.heard.told) == ({contract(OTHER).lower()}, [])
    events.chain.head += events.events.settings.event_window_max_ms // 1_000
    await to_head(events)
    assert events.heard.codes == [(sig, "nodes-differ")]


async def test_a_disputed_log_is_read_again_after_a_restart(events: EventWorld) -> None:
    node = events.add_node(omits(in_receipts=True))
    sig = events.sign(1, signer=1, at=1)
    await to_head(events)
    events.log(1)
    block = events.chain.head
    await to_head(events)
    events.chain.head += 1_000  # more than any restart reads again
    await to_head(events)
    assert events.journal.fact(place_name(CHAIN_ID, "quiet")) == str(block)
    assert not events.planned()
    node.change = lambda _method, _params, result: result
    events.events = events.started()
    await to_head(events)
    assert events.planned() == {sig: 1}
    assert events.journal.fact(place_name(CHAIN_ID, "quiet")) == str(events.chain.head + 1)


async def test_a_restart_reads_no_disputed_log_that_is_older_than_the_window(events: EventWorld) -> None:
    events.settings = {"event_window_max_ms": 1_000 * HOUR_S}
    node = events.add_node(omits(in_receipts=True))
    events.sign(1, signer=1, at=1)
    await to_head(events)
    events.log(1)
    await to_head(events)
    node.change = lambda _method, _params, result: result
    events.chain.head += HOUR_S + 10
    events.events = events.started()
    events.node.requests.clear()
    await to_head(events)
    first = min(int(each["fromBlock"], 16) for each in events.asked())
    assert first >= events.chain.head - HOUR_S - 1
    assert not events.planned()
