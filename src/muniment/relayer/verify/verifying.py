"""Makes a recorded run again and compares: with the recorded answers, and with those of nodes where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from muniment.chains.logs import LogContent, content_of
from muniment.chains.rpc import Call
from muniment.outgoing import Unreachable
from muniment.protocol.errors import InvalidRun
from muniment.protocol.runs.hashes import execution_hash
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.reasons import is_verdict
from muniment.protocol.runs.rules import Terms, check_due
from muniment.protocol.wire import ms_of
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.pinning import Incomplete, Pin, Pins, agreed_answer
from muniment.relayer.schedule.due import Due
from muniment.relayer.verify.replaying import NotRecorded, Replaying

if TYPE_CHECKING:
    from muniment.chains.nodes import Node
    from muniment.guest.sandbox import Sandbox
    from muniment.guest.types import GuestRun
    from muniment.protocol.runs.types import Run, RunBlock
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.runner.forms import Made
    from muniment.relayer.runner.settlers import Generations

Outcome = Literal["same", "consistent", "unchecked", "different"]


class Verification(NamedTuple):
    """What came of it, and why, a sentence each.

    `same`: the answers of nodes lead to the recorded result, or it needs none. `consistent`: the recorded answers lead
    to it, and were not checked. `unchecked`: it cannot be decided. `different`: the record is wrong.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """Makes recorded runs again. Without `pins` no node is asked. `generations` knows the settlement contracts."""

    sandbox: Sandbox
    pins: Pins | None
    generations: Generations

    async def verify(self, run: Run, trigger: Trigger, function: Function) -> Verification:
        """Compare a whole record, whose hash was computed again, with a run that is made now."""
        code = run.reason.code if run.reason else None
        if not is_verdict(run.result, code):
            return Verification(
                "unchecked", (f"{run.result} ({code}) is what its relayer noted, and cannot be repeated",)
            )
        payload = read_payload(run.trigger_type, run.trigger_data.raw)
        if wrong := _not_due(run, trigger):
            return Verification("different", (wrong,))
        event = payload if isinstance(payload, EventPayload) else None
        different, unchecked, pinned = await self._read_at(run, event)
        own = None
        if self.pins is not None:
            own = Answers(pins=self.pins, timestamp_ms=run.timestamp, event=event, pinned=pinned)
        replaying = Replaying(inputs=run.inputs or [], own=own, different=different, unchecked=unchecked)
        await self._repeat(run, trigger, function, replaying)
        if different:
            return Verification("different", tuple(different))
        if unchecked:
            return Verification("unchecked", tuple(unchecked))
        was_checked = self.pins is not None or (not run.inputs and event is None)
        return Verification("same" if was_checked else "consistent")

    async def _repeat(self, run: Run, trigger: Trigger, function: Function, replaying: Replaying) -> None:
        """Make the run again, and note in `replaying` what differs."""
        due = Due(run.trigger_sig, run.trigger_type, run.trigger_data.raw, run.timestamp, run.timestamp)
        settlers = run.context.settlers if run.context else []
        settling = Settling(settlers=settlers, generations=self.generations)
        try:
            made, intents = await attempt(
                due, Consent.of(trigger), function, sandbox=self.sandbox, answers=replaying, settling=settling
            )
        except NotRecorded as error:
            replaying.different.append(str(error))
            return
        except Incomplete as error:
            replaying.unchecked.append(error.text)
            return
        if not is_verdict(made.result, made.reason or None):
            replaying.unchecked.append(f"the run was stopped here ({made.reason}), which depends on the machine")
            return
        replaying.different.extend(
            f"the record has a question that the function does not ask: {each.query}" for each in replaying.not_asked()
        )
        differences = _differences(run, made, intents)
        told = {each.address for each in settlers}
        is_known = told <= (await self.generations.of(told)).keys()
        (replaying.different if is_known else replaying.unchecked).extend(differences)

    async def _read_at(self, run: Run, event: EventPayload | None) -> tuple[list[str], list[str], dict[int, Pin]]:
        """What is wrong with the blocks of a record, what cannot be decided, and the blocks themselves."""
        different: list[str] = []
        unchecked: list[str] = []
        pinned: dict[int, Pin] = {}
        if self.pins is None:
            return different, unchecked, pinned
        if event is not None:
            try:
                different += await self._event_faults(self.pins, event, run.timestamp // 1_000)
            except Incomplete as error:
                unchecked.append(error.text)
        for block in run.blocks:
            if block.chain_id not in self.pins.nodes:
                unchecked.append(f"there is no node of chain {block.chain_id}")
                continue
            try:
                pinned[block.chain_id], fault = await self._block(self.pins, block, run.timestamp // 1_000, event)
            except Incomplete as error:
                unchecked.append(error.text)
            else:
                different += fault
        return different, unchecked, pinned

    @staticmethod
    async def _block(pins: Pins, block: RunBlock, second: int, event: EventPayload | None) -> tuple[Pin, list[str]]:
        """The block as nodes have it, and what is wrong with it. Raises `Incomplete`."""
        chain_id = block.chain_id
        name = f"block {block.number} of chain {chain_id}"
        found = await pins.pin_number(chain_id, block.number)
        if found.hash != block.hash.raw:
            return found, [f"{name} is not on the chain"]
        if event is not None and event.chain_id == chain_id:
            return found, [] if event.block_hash == block.hash else [f"{name} is not the block of the event"]
        if block.quiet is True:
            return found, [] if found.time_s <= second else [f"{name} is later than the run"]
        expected = await pins.pin(chain_id, second)
        return found, [] if expected.number == found.number else [f"{name} is not that of the run, {expected.number}"]

    @staticmethod
    async def _event_faults(pins: Pins, event: EventPayload, time_s: int) -> list[str]:
        """What is wrong with the event. Raises `Incomplete`."""
        nodes = pins.nodes.get(event.chain_id)
        if nodes is None:
            raise Incomplete("no-answer", f"there is no node of chain {event.chain_id}")
        if not await pins.is_canonical(event.chain_id, event.block_hash.raw, time_s):
            return [f"the block of the event is not on chain {event.chain_id}"]
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


def _not_due(run: Run, trigger: Trigger) -> str:
    """Why the trigger was not due for this run; empty if it was."""
    try:
        check_due(run, Terms(trigger.config, trigger.min_validations, ms_of(trigger.created_at)))
    except InvalidRun as refusal:
        return refusal.detail
    return ""


def _differences(run: Run, made: GuestRun, intents: list[Made]) -> list[str]:
    """How a run that was made again differs from its record."""
    hashes = [each.hash for each in intents]
    computed = execution_hash(run.trigger_sig, run.trigger_type, run.trigger_data.raw, made.result, hashes)
    if computed != run.hash.raw:
        here, there = _told(made.result, made.reason, len(hashes)), _told(run.result, "", len(run.outputs))
        return [f"the function gives another result here: {here}; the record has {there}"]
    if run.reason and run.reason.code != made.reason:
        return [f"the run stops for another reason here: {made.reason}; the record has {run.reason.code}"]
    logs = list(made.logs[: len(run.logs)]) if run.logs_cut else list(made.logs)
    return [] if logs == list(run.logs) else ["the function logs other lines here"]


def _told(result: str, reason: str, count: int) -> str:
    if count:
        return f"{count} intent{'s' if count > 1 else ''}"
    return f"{result} ({reason})" if reason else result
