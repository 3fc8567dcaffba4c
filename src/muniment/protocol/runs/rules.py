"""The rules for a run that is to be recorded: about its trigger, the time, and itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from msgspec import UNSET

from muniment.protocol.errors import BodyTooLarge, InvalidRun, RunMismatch, SignatureMismatch
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hashing import keccak256
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.evm.signature import is_by, personal_digest
from muniment.protocol.runs.hashes import evidence, hash_of
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.reasons import REASONS, is_verdict
from muniment.protocol.runs.texts import RUN_BYTES_MAX, RUN_LOGS_BYTES_MAX
from muniment.protocol.runs.types import NewRun, Run, RunAnswer, RunBlock
from muniment.protocol.triggers.schedule import last_run
from muniment.protocol.triggers.typed_data import CRON, ONCE
from muniment.protocol.wire import encode

# How far the clock of a relayer may be ahead of this service's.
AHEAD_MS_MAX: Final = 60_000
# Runs of a schedule are whole minutes (POSIX crontab).
_TICK_MS_MIN: Final = 60_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What a trigger says about its runs; `config` is as it was signed, the time in milliseconds since 1970."""

    config: Mapping[str, Any]
    min_validations: int
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A run with its hash and the hash of its evidence, 32 bytes each.

    `payload_hash` is the keccak256 of its payload: with the trigger it names what was due.
    """

    hash: bytes
    evidence: bytes
    payload_hash: bytes
    new: NewRun
    is_verdict: bool


def check_run(new: NewRun, terms: Terms, relayer: Address | None, now_ms: int) -> CheckedRun:
    """`new` with its hashes, to which those in the body must be equal, if given. `relayer` is the operator's address.

    Raises `RunMismatch` with what was computed here, `SignatureMismatch`, `BodyTooLarge` for more than 256 KiB of JSON,
    and `InvalidRun` for everything else that is wrong.
    """
    if len(encode(new)) > RUN_BYTES_MAX:
        raise BodyTooLarge(f"the record of a run has at most {RUN_BYTES_MAX} bytes of JSON")
    _check_result(new)
    check_due(new, terms)
    if new.timestamp > now_ms + AHEAD_MS_MAX:
        raise InvalidRun("the run is in the future", pointer="/timestamp")
    _check_missed(new, terms)
    _check_content(new)
    computed = hash_of(new)
    _check_equal(new.hash, computed, "hash", "the hash of a run with these members")
    proof = evidence(new.context, new.inputs, new.blocks)
    _check_equal(new.evidence, proof, "evidence", "the hash of this context, these inputs and these blocks")
    _check_signature(new, computed, relayer)
    verdict = is_verdict(new.result, None if new.reason is None else new.reason.code)
    return CheckedRun(computed, proof, keccak256(new.trigger_data.raw), new, verdict)


def _check_result(new: NewRun) -> None:
    """What comes with which result."""
    _check_reason(new)
    for name, value in (("missedCount", new.missed_count), ("from", new.from_ms), ("to", new.to_ms)):
        if (value is not None) != (new.result == "missed"):
            raise InvalidRun(f"{name} belongs to `missed`, and to no other result", pointer=f"/{name}")
    if bool(new.outputs) != (new.result == "intents"):
        raise InvalidRun("outputs belong to `intents`, and to no other result", pointer="/outputs")
    hashes = [each.hash for each in new.outputs]
    for index, each in enumerate(hashes):
        if each in hashes[:index]:
            raise InvalidRun("an intent is listed twice", pointer=f"/outputs/{index}/hash")


def _check_reason(new: NewRun) -> None:
    reasons = REASONS.get(new.result)
    if new.reason is None:
        if reasons is not None:
            raise InvalidRun(f"the result {new.result} needs a reason: one of {', '.join(reasons)}", pointer="/reason")
    elif reasons is None:
        raise InvalidRun(f"the result {new.result} takes no reason", pointer="/reason")
    elif new.reason.code not in reasons:
        raise InvalidRun(f"the reason of {new.result} is one of {', '.join(reasons)}", pointer="/reason/code")


def check_due(run: NewRun | Run, terms: Terms) -> None:
    """Check that a trigger with these terms was due as the run says. Raises `InvalidRun`."""
    config = terms.config
    try:
        due = read_payload(run.trigger_type, run.trigger_data.raw)
    except ValueError as error:
        raise InvalidRun(f"{error}", pointer="/triggerData") from None
    if run.trigger_type != config["type"]:
        raise InvalidRun(f"the type of this trigger is {config['type']}", pointer="/triggerType")
    if isinstance(due, EventPayload):
        check_event(due, config)
    else:
        _check_time(run, due, terms)
    if run.trigger_type != ONCE and run.timestamp <= terms.created_at_ms:
        raise InvalidRun("the run is before the registration of its trigger", pointer="/timestamp")
    if 0 < int(config["endDate"]) < run.timestamp:
        raise InvalidRun("the run is after the end of its trigger", pointer="/timestamp")


def _check_time(run: NewRun | Run, time_ms: int, terms: Terms) -> None:
    """The time of a cron or a once trigger."""
    config = terms.config
    if run.timestamp != time_ms:
        raise InvalidRun("timestamp must be the time in triggerData", pointer="/timestamp")
    if run.trigger_type == ONCE:
        if time_ms != (int(config.get("startDate", 0)) or terms.created_at_ms):
            raise InvalidRun(
                "not the startDate of this trigger, nor, if that is 0, its createdAt", pointer="/timestamp"
            )
        return
    if last_run(config["schedule"], time_ms) != time_ms:
        raise InvalidRun("the schedule of this trigger has no run at this time", pointer="/timestamp")


def check_event(event: EventPayload, config: Mapping[str, Any]) -> None:
    """Check that an event is one that a trigger with this config waits for. Raises `InvalidRun`."""
    if event.chain_id != int(config["chainId"]):
        raise InvalidRun(f"the trigger waits for events of chain {config['chainId']}", pointer="/triggerData")
    if event.contract.raw != Address.parse(config["contract"]).raw:
        raise InvalidRun(f"the trigger waits for events of {config['contract']}", pointer="/triggerData")
    topics = cast("Sequence[Sequence[str]]", config["topics"])
    # As nodes filter: a place that takes any topic has to be there.
    if len(event.topics) < len(topics):
        raise InvalidRun(f"the trigger waits for events with {len(topics)} topics or more", pointer="/triggerData")
    for position, (choices, topic) in enumerate(zip(topics, event.topics, strict=False)):
        if choices and topic not in {Bytes32.parse(choice) for choice in choices}:
            raise InvalidRun(f"the trigger waits for events with another topic {position}", pointer="/triggerData")


def _check_missed(new: NewRun, terms: Terms) -> None:
    """A note of missed runs: it ends with the run that `timestamp` names."""
    if new.missed_count is None or new.from_ms is None or new.to_ms is None:
        return
    if new.to_ms != new.timestamp:
        raise InvalidRun("to must equal timestamp, the last missed run", pointer="/to")
    if new.from_ms > new.to_ms or (new.trigger_type == CRON and new.from_ms <= terms.created_at_ms):
        raise InvalidRun("from must be the time of the first missed run", pointer="/from")
    possible = (new.to_ms - new.from_ms) // _TICK_MS_MIN + 1 if new.trigger_type == CRON else 1
    if new.missed_count > possible:
        raise InvalidRun(f"at most {possible} runs are possible in this time", pointer="/missedCount")


def _check_content(new: NewRun) -> None:
    """What the run read and logged."""
    if sum(len(line.encode()) for line in new.logs) > RUN_LOGS_BYTES_MAX:
        raise InvalidRun(f"all log lines together have at most {RUN_LOGS_BYTES_MAX} bytes", pointer="/logs")
    by_chain = {block.chain_id: block for block in new.blocks}
    if len(by_chain) < len(new.blocks):
        raise InvalidRun("a run reads a chain at one block: a chain is listed twice", pointer="/blocks")
    for n, each in enumerate(new.inputs):
        _check_answer(each.answer, f"/inputs/{n}/answer")
        _check_block(each.block, by_chain, f"/inputs/{n}/block")
        for m, call in enumerate(each.calls or ()):
            _check_block(call.block, by_chain, f"/inputs/{n}/calls/{m}/block")


def _check_answer(answer: RunAnswer, pointer: str) -> None:
    if (answer.data is not UNSET) != answer.success or (answer.error is UNSET) != answer.success:
        raise InvalidRun("an answer has data on success, otherwise an error", pointer=pointer)


def _check_block(block: RunBlock | Any, by_chain: Mapping[int, RunBlock], pointer: str) -> None:
    if block is not UNSET and by_chain.get(block.chain_id) != block:
        raise InvalidRun("not one of the blocks of the run", pointer=pointer)


def _check_equal(given: Bytes32 | None, computed: bytes, name: str, what: str) -> None:
    if given is not None and given.raw != computed:
        raise RunMismatch(f"not {what}", pointer=f"/{name}", facts={"computed": "0x" + computed.hex()})


def _check_signature(new: NewRun, computed: bytes, relayer: Address | None) -> None:
    if new.signature is None:
        return
    if relayer is None:
        raise SignatureMismatch(
            "this operator has no address to sign with: `muniment operators add NAME --address` gives one",
            pointer="/signature",
        )
    digest = personal_digest(computed)
    if not is_by(relayer, digest, new.signature):
        raise SignatureMismatch(
            f"not by {relayer} over the hash of the run (EIP-191)",
            pointer="/signature",
            facts={"digest": "0x" + digest.hex()},
        )
