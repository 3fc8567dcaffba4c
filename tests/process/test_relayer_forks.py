"""What a reorganisation changes for published runs is found out in steps, however often a node fails meanwhile."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from chain import CHAIN_TESTS
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, event_payload
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.events.forks import Forks
from muniment.relayer.journal.sqlite import Journal
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.due import Due, Occurrence
from pinned_world import CHAIN_ID, Json, Nodal, chain, nodal

__all__ = ["chain", "nodal"]
pytestmark = CHAIN_TESTS

SIG = Signature.parse("0x" + "11" * 64 + "1b")
CONTRACT = Address.parse("0x" + "22" * 20)


def event_in(block: dict[str, Any], index: int) -> Due:
    log = EventPayload(CHAIN_ID, Bytes32.parse(block["hash"]), index, CONTRACT, (), HexString("0x"))
    at_s = int(block["timestamp"], 16)
    occurrence = Occurrence(log, int(block["number"], 16), at_s, Bytes32.parse("0x" + "33" * 32), index)
    return Due(SIG, EVENT, event_payload(log), 1_000 * at_s, 1_000 * at_s + 60_000, occurrence)


async def test_a_node_that_often_fails_delays_no_look_at_published_runs_for_ever(nodal: Nodal) -> None:
    blocks: list[dict[str, Any]] = []
    for _ in range(6):
        nodal.mine(nodal.newest_s + 2)
        blocks.append(nodal.chain.ask("eth_getBlockByNumber", "latest", False))
    nodal.mine(nodal.newest_s + 2)
    asked, count, is_failing = Counter[str](), [0], [True]

    def failing(call: Json, answer: Json) -> Json:
        if call["method"] != "eth_getBlockByHash":
            return answer
        count[0] += 1
        if is_failing[0] and count[0] % 3 == 0:
            return {"jsonrpc": "2.0", "id": call["id"], "error": {"code": -32603, "message": "internal error"}}
        asked[call["params"][0]] += 1
        return answer

    pins = nodal.pins(nodal.node(failing))
    with Journal.in_memory() as journal:
        for due in [event_in(block, index) for block in blocks for index in (0, 1)]:
            journal.plan([due], 0)
            journal.ran(due, "nothing", b"{}", due.payload[:32], 0)
            entry = journal.entry(SIG, EVENT, due.payload)
            assert entry is not None
            journal.published(entry, 0)
        forks = Forks(pins=pins, registry=cast("Any", None), journal=journal)  # nothing is told: no block is gone
        failures = 0
        for _ in range(6):
            try:
                await forks.take_back(CHAIN_ID, 0, 0)
                break
            except Incomplete:
                failures += 1
                nodal.now_s += 60
        assert 0 < failures < 6
        assert asked == dict.fromkeys((block["hash"] for block in blocks), 1)
        await forks.take_back(CHAIN_ID, 0, 0)
        assert max(asked.values()) == 1
        forks.forget(CHAIN_ID)
        nodal.now_s += 60
        is_failing[0] = False
        await forks.take_back(CHAIN_ID, int(blocks[3]["number"], 16), 0)
        forks.forget(CHAIN_ID)
        forks.keep(CHAIN_ID, [bytes.fromhex(block["hash"][2:]) for block in blocks])
        await forks.take_back(CHAIN_ID, 0, 0)
    assert asked == {block["hash"]: 1 + (place >= 3) for place, block in enumerate(blocks)}
