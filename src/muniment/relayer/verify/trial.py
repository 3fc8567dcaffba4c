"""Trial runs: what a function would do now, at a block or for an event. Nothing is recorded anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from muniment.chains.logs import content_of
from muniment.chains.rpc import Call, check_given
from muniment.outgoing import Unreachable
from muniment.protocol.errors import Invalid, InvalidRun
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import Bytes32, HexString, data_of
from muniment.protocol.evm.signature import Signature
from muniment.protocol.runs.payloads import EventPayload, event_payload, time_payload
from muniment.protocol.runs.rules import check_event
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.schedule import last_run
from muniment.protocol.triggers.typed_data import CRON, EVENT, check_input_names, trigger_hash, types_for
from muniment.relayer.runner.answers import Answers
from muniment.relayer.runner.attempt import Consent, Function, Settling, attempt
from muniment.relayer.runner.context import run_context, settlers_of
from muniment.relayer.runner.notes import reason_of
from muniment.relayer.runner.pinning import Incomplete, Pin, Pins
from muniment.relayer.runner.record import recorded_run
from muniment.relayer.runner.settlers import Generations
from muniment.relayer.schedule.due import Due, Occurrence, Plan

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.chains.nodes import Nodes
    from muniment.guest.sandbox import Sandbox
    from muniment.protocol.intents.types import AnyNewIntent
    from muniment.protocol.runs.texts import Engine
    from muniment.protocol.runs.types import RunToken
    from muniment.protocol.triggers.types import Trigger

# The signature of a run without a trigger. It is of no wallet, so the intents can never be recorded for a trigger.
NO_TRIGGER: Final = Signature("0x" + "00" * 65)


class BlockAsked(NamedTuple):
    """A block of a chain, at which a trial runs."""

    chain_id: int
    number: int


class EventAsked(NamedTuple):
    """A log: its position in the receipt of a transaction, from 0."""

    chain_id: int
    transaction_hash: Bytes32
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be tried. Without a trigger, `consent` is made up.

    Of `block` and `event` at most one is given; without them the run is now.
    """

    consent: Consent
    trigger: Trigger | None = None
    block: BlockAsked | None = None
    event: EventAsked | None = None


class Tried(NamedTuple):
    """What a trial gave: the record that a relayer would post, and the intents that it would record."""

    run: NewRun
    intents: Sequence[AnyNewIntent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Makes trials: with a sandbox, chains, and the nodes of those that have any, by chain id."""

    sandbox: Sandbox
    chains: Mapping[int, Chain]
    nodes: Mapping[int, Nodes]
    now_ms: Callable[[], int]
    engine: Engine

    async def run(self, wish: Wish, wasm: bytes, inputs: Mapping[str, str]) -> Tried:
        """Run the module `wasm` with its `inputs`, type words by name.

        Raises `ValueError` for a wish that cannot be: no such block or log, or not what the trigger waits for;
        `Incomplete` where no node knows what is due.
        """
        if missing := sorted(inputs.keys() - wish.consent.input.keys()):
            raise ValueError(f"the function needs inputs that the trigger does not have: {', '.join(missing)}")
        pins, pinned = Pins(nodes=self.nodes, now_ms=self.now_ms), dict[int, Pin]()
        moment_ms, event = self.now_ms(), None
        if wish.block is not None:
            self._nodes(wish.block.chain_id)
            pin = pinned[wish.block.chain_id] = await pins.pin_number(*wish.block)
            moment_ms = 1_000 * pin.time_s
        if wish.event is not None:
            event = await self._occurrence(pins, wish.event)
        due = _due(wish.trigger, event, moment_ms)
        answers = Answers(pins=pins, timestamp_ms=due.timestamp_ms, event=event and event.log, pinned=pinned)
        settling = Settling(settlers=settlers_of(self.chains.values()), generations=Generations(self.nodes))
        function = Function(await self.sandbox.compile_module(wasm), inputs)
        try:
            made, intents = await attempt(
                due, wish.consent, function, sandbox=self.sandbox, answers=answers, settling=settling
            )  # fmt: skip
        except Incomplete as error:
            return Tried(_incomplete(due, error, answers, settling.settlers, self.engine), [])
        return Tried(*recorded_run(
            due, made, intents, answers=answers, settlers=settling.settlers, engine=self.engine
        ))  # fmt: skip

    async def _occurrence(self, pins: Pins, asked: EventAsked) -> Occurrence:
        """Raises `ValueError`, `Incomplete`."""
        answer = await self._ask(asked.chain_id, Call("eth_getTransactionReceipt", (asked.transaction_hash,)))
        receipt = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        block_hash, logs = data_of(receipt.get("blockHash")), receipt.get("logs")
        if block_hash is None:
            raise ValueError(f"chain {asked.chain_id} has no receipt of the transaction {asked.transaction_hash}")
        if not isinstance(logs, list):
            raise Incomplete("no-answer", "the node gives a receipt without a list of logs")
        logs = cast("list[Any]", logs)
        if asked.position >= len(logs):
            raise ValueError(f"the transaction has {len(logs)} logs, which are numbered from 0")
        pin = await pins.pin_event(asked.chain_id, block_hash)
        log = _log_of(pin, logs[asked.position])
        return Occurrence(log, pin.number, pin.time_s, asked.transaction_hash, 0)

    async def _ask(self, chain_id: int, call: Call) -> object:
        """The answer of the first node that gives one. Raises `ValueError`, `Incomplete`."""
        nodes, reason = self._nodes(chain_id), ""
        for node in nodes.nodes:
            try:
                (answer,) = await nodes.ask(node, [call])
                check_given(answer)
            except Unreachable as error:
                reason = error.told
            else:
                return answer
        raise Incomplete("no-answer", f"no node of chain {chain_id} answers ({reason})")

    def _nodes(self, chain_id: int) -> Nodes:
        """Raises `ValueError` for a chain without nodes."""
        if chain_id not in self.nodes:
            raise ValueError(f"chain {chain_id} has no node: give a chains file with its RPC URL (--chains)")
        return self.nodes[chain_id]


def made_up(user: Address, cid: str, input: Mapping[str, Any], inputs: Mapping[str, str]) -> Consent:
    """A consent that nobody signed, for a run without a trigger.

    Raises `ValueError` for inputs that are missing or unknown, or have values that no trigger can have.
    """
    check_input_names(input, inputs)
    values = {
        "functionCid": cid, "version": "1.0.0", "input": {**input}, "executionFeeLimit": "0", "minValidations": 1,
        "config": {"type": CRON, "schedule": "* * * * *", "delta": "1m", "endDate": 0},
    }  # fmt: skip
    try:
        trigger_hash(types_for(inputs, CRON), values, inputs)
    except Invalid as refusal:
        place = next((fault.pointer for fault in refusal.faults if fault.pointer), "input")
        raise ValueError(f"{place.removeprefix('/values/input/')}: {refusal.detail}") from refusal
    return Consent(user, input, 1)


def _incomplete(
    due: Due, error: Incomplete, answers: Answers, settlers: Sequence[RunToken], engine: Engine
) -> NewRun:  # fmt: skip
    return NewRun(
        trigger_sig=due.sig, trigger_type=due.kind, trigger_data=HexString.from_raw(due.payload),
        timestamp=due.timestamp_ms, result="incomplete", reason=reason_of(error.code, error.text),
        inputs=answers.inputs, context=run_context(settlers), blocks=answers.blocks, engine=engine,
    )  # fmt: skip


def _due(trigger: Trigger | None, event: Occurrence | None, moment_ms: int) -> Due:
    """What is due. Raises `ValueError`."""
    if trigger is None:
        if event is not None:
            at_ms = 1_000 * event.block_time_s
            return Due(NO_TRIGGER, EVENT, event_payload(event.log), at_ms, at_ms, event)
        return Due(NO_TRIGGER, CRON, time_payload(moment_ms), moment_ms, moment_ms)
    plan = Plan.of(trigger)
    if plan.kind == EVENT:
        return plan.of_event(_wanted(trigger, event))
    if event is not None:
        raise ValueError("the trigger does not wait for events: leave out --event")
    at_ms = plan.start_ms or plan.created_ms
    if plan.kind == CRON:
        tick = last_run(plan.schedule, moment_ms)
        if tick is None:
            raise ValueError("the schedule of the trigger had no run yet")
        at_ms = tick
    return Due(trigger.sig, plan.kind, time_payload(at_ms), at_ms, at_ms + plan.delta_ms)


def _wanted(trigger: Trigger, event: Occurrence | None) -> Occurrence:
    """The event, if the trigger waits for it. Raises `ValueError`."""
    if event is None:
        raise ValueError("the trigger waits for an event: name one with --event CHAIN:TRANSACTION:POSITION")
    try:
        check_event(event.log, trigger.config)
    except InvalidRun as refusal:
        raise ValueError(refusal.detail) from refusal
    return event


def _log_of(pin: Pin, answer: object) -> EventPayload:
    """A log of a receipt. Raises `Incomplete` for what is none."""
    try:
        log = content_of(answer)
    except Unreachable:
        raise Incomplete("no-answer", "the node gives a log that is none") from None
    if data_of(cast("dict[str, Any]", answer).get("blockHash")) != pin.hash:
        raise Incomplete("no-answer", "the node gives a log of another block than its receipt")
    return EventPayload(
        pin.chain_id, Bytes32.from_raw(pin.hash), log.index, Address.from_raw(log.contract),
        tuple(map(Bytes32.from_raw, log.topics)), HexString.from_raw(log.data),
    )  # fmt: skip
