"""Whether the blocks of a record, and the event that made it due, are those that nodes have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from muniment.chains.logs import LogContent, content_of
from muniment.chains.rpc import Call
from muniment.outgoing import Unreachable
from muniment.relayer.runner.pinning import Incomplete, Pin, Pins, agreed_answer

if TYPE_CHECKING:
    from muniment.chains.nodes import Node
    from muniment.protocol.runs.payloads import EventPayload
    from muniment.protocol.runs.types import Run, RunBlock
    from muniment.relayer.verify.report import Report


@dataclass(frozen=True, slots=True)
class BlockCheck:
    """Checks the blocks of one run by the nodes of `pins`. `event` is the log that made it due, if one did."""

    pins: Pins
    run: Run
    event: EventPayload | None

    async def read(self, report: Report) -> dict[int, Pin]:
        """The blocks as nodes have them, by chain; `report` gets what is wrong, or cannot be decided."""
        pinned: dict[int, Pin] = {}
        if self.event is not None:
            try:
                report.faults.extend(await self._event_faults(self.event))
            except Incomplete as error:
                report.doubts.append(error.text)
        for block in self.run.blocks:
            try:
                pinned[block.chain_id] = await self._block(block, report)
            except Incomplete as error:
                report.doubts.append(error.text)
        return pinned

    def _check_node(self, chain_id: int) -> None:
        """Raises `Incomplete` for a chain without a node."""
        if chain_id not in self.pins.nodes:
            raise Incomplete("no-answer", f"there is no node of chain {chain_id}")

    async def _block(self, block: RunBlock, report: Report) -> Pin:
        """The block as nodes have it. Raises `Incomplete`."""
        chain_id, second, event = block.chain_id, self.run.timestamp // 1_000, self.event
        name, is_quiet = f"block {block.number} of chain {chain_id}", block.quiet is True
        self._check_node(chain_id)
        pin = (await self.pins.pin_number(chain_id, block.number))._replace(is_quiet=is_quiet)
        if pin.hash != block.hash.raw:
            report.faults.append(f"{name} is not on the chain")
        elif event is not None and event.chain_id == chain_id:
            if event.block_hash != block.hash or is_quiet:
                report.faults.append(f"{name} is not the block of the event as it is read")
        elif pin.time_s > second:
            report.faults.append(f"{name} is later than the run")
        elif (await self.pins.pin_number(chain_id, block.number + 1)).time_s <= second:
            if is_quiet:
                report.doubts.append(f"{name}: the chain, or the relayer's nodes, stood still")
            else:
                report.faults.append(f"{name} is not that of the run: the next one is not later than it either")
        return pin

    async def _event_faults(self, event: EventPayload) -> list[str]:
        """What is wrong with the event. Raises `Incomplete`."""
        self._check_node(event.chain_id)
        nodes = self.pins.nodes[event.chain_id]
        if not await self.pins.is_canonical(event.chain_id, event.block_hash.raw, self.run.timestamp // 1_000):
            return [f"the block of the event is not on chain {event.chain_id}"]
        pin = await self.pins.pin_event(event.chain_id, event.block_hash.raw)
        if 1_000 * pin.time_s != self.run.timestamp:
            return [f"the run is dated {self.run.timestamp}, and the block of its event {1_000 * pin.time_s}"]
        logs = Call("eth_getLogs", ({"blockHash": event.block_hash, "address": event.contract},))
        topics = tuple(each.raw for each in event.topics)
        wanted = LogContent(event.contract.raw, topics, event.data.raw, event.index)

        async def ask(node: Node) -> bool:
            (answer,) = await nodes.ask(node, [logs])
            if not isinstance(answer, list):
                raise Unreachable("garbage", "no list of logs")
            return wanted in map(content_of, cast("list[object]", answer))

        is_there = await agreed_answer(nodes, ask, "the logs of the event's block")
        return [] if is_there else ["the block does not have the event"]
