"""The second cursor of a chain: it reads later and rarely, finds what nodes left out, and plans nothing twice."""

from __future__ import annotations

from event_world import EventWorld, events
from muniment.protocol.runs.payloads import EventPayload, read_payload

__all__ = ["events"]

HONEST = 1


async def test_the_second_cursor_finds_what_a_node_left_out(events: EventWorld) -> None:
    sig = events.sign(1, signer=1, at=HONEST)
    await events.to_head()
    await events.others()
    leaves_out = [True]

    def change(method: str, _params: object, result: object) -> object:
        return [] if method == "eth_getLogs" and leaves_out[0] else result

    events.node.change = change
    events.log(HONEST)
    await events.to_head()
    assert not events.planned()
    leaves_out[0] = False
    events.chain.head += 200
    for _ in range(2):
        await events.to_head()
        await events.others()
        events.now_s += 121
        events.chain.head += 31
    await events.others()
    assert events.planned() == {sig: 1}
    assert "muniment_relayer_late_events_total 1\n" in events.figures.text()


async def test_the_second_cursor_reads_each_half_minute(events: EventWorld) -> None:
    events.sign(1, signer=1, at=HONEST)
    await events.to_head()
    await events.others()
    for seconds, requests in ((29, 0), (1, 1), (1, 0)):
        events.chain.head += seconds
        events.node.requests.clear()
        await events.others()
        assert len(events.node.requests) == requests


async def test_the_second_cursor_plans_nothing_twice_and_forgets_logs_without_a_run(events: EventWorld) -> None:
    events.settings = {"runs_per_trigger_and_day_max": 3}
    events.events = events.started()
    sig = events.sign(1, signer=1, at=HONEST)
    await events.to_head()
    await events.others()
    events.log(HONEST, 5)
    await events.to_head()
    assert events.planned() == {sig: 3}
    ((due, code, text),) = events.heard.told
    assert (code, text.partition(" ")[0]) == ("run-cap", "2")
    log = read_payload(1, due.payload)
    assert isinstance(log, EventPayload)
    assert log.index == 4
    events.chain.head += 200
    for _ in range(2):
        await events.to_head()
        await events.others()
        events.now_s += 121
        events.chain.head += 31
    await events.others()
    assert "late_events_total 1" not in events.figures.text()
    assert len(events.heard.told) == 1
    assert events.journal._connection.execute("SELECT count(*) FROM journal_events").fetchone() == (3,)
    events.journal.give_up_all(sig)
