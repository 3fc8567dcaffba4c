"""Runs as relayers send them, and as an honest registry answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import to_builtins

from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.forms import decode_record
from muniment.protocol.runs.hashes import evidence, execution_hash
from muniment.protocol.runs.types import NewRun
from muniment.protocol.triggers.schedule import last_run
from muniment.protocol.wire import encode_text

SIG = "0x" + "12" * 64 + "1b"
RELAYER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
TICK_MS = 1_795_204_080_000
CREATED_AT = "2026-11-20T19:48:00.123Z"
# Facts that only the service knows, or that the relayer alone claims: a registry may say anything of them.
CLAIMED = [
    "reason", "missedCount", "from", "to", "fuelUsed", "logs", "logsCut", "engine", "signature", "status",
    "validations", "conflicts", "fee", "solverFees", "createdAt", "outputs.*.recorded", "records.*.createdAt",
    "records.*.orphaned",
]  # fmt: skip


def new_run(number: int = 0, **members: Any) -> NewRun:
    """A run of a cron trigger at the tick `number`, without intents unless `members` say so."""
    tick = TICK_MS + number * 60_000
    own = {
        "triggerSig": SIG, "triggerData": f"0x{tick:064x}", "timestamp": tick, "result": "nothing", "outputs": [],
        **members,
    }  # fmt: skip
    return decode_record({**NewRun.example, **own}, NewRun)


def run_of(trigger: dict[str, Any], at_ms: int, **members: Any) -> NewRun:
    """A run of a registered cron trigger at its last tick before `at_ms`."""
    tick = last_run(trigger["config"]["schedule"], at_ms)
    assert tick is not None
    own: dict[str, Any] = {"triggerSig": trigger["sig"], "triggerData": f"0x{tick:064x}", "timestamp": tick, **members}
    return new_run(**own)


def once_run_of(trigger: dict[str, Any], **members: Any) -> NewRun:
    """The run of a registered trigger that is due once, when it is registered."""
    at_ms = round(datetime.fromisoformat(trigger["createdAt"]).timestamp() * 1000)
    own: dict[str, Any] = {
        "triggerSig": trigger["sig"], "triggerType": 2, "triggerData": f"0x{at_ms:064x}", "timestamp": at_ms, **members,
    }  # fmt: skip
    return new_run(**own)


def next_run_of(trigger: dict[str, Any], **members: Any) -> NewRun:
    """A run at the first tick of a trigger that is due every minute: a registry takes it up to a minute before."""
    created = datetime.fromisoformat(trigger["createdAt"])
    return run_of(trigger, round(created.timestamp() * 1000) + 60_000, **members)


def body_of(run: NewRun) -> dict[str, Any]:
    """The body of POST /executions."""
    return {name: value for name, value in to_builtins(run, enc_hook=encode_text).items() if value is not None}


def hash_of(run: NewRun) -> Bytes32:
    """The hash of a run."""
    outputs = [each.hash.raw for each in run.outputs]
    return Bytes32.from_raw(
        execution_hash(run.trigger_sig, run.trigger_type, run.trigger_data.raw, run.result, outputs)
    )


def answered(run: NewRun, relayer: str = RELAYER, **members: Any) -> dict[str, Any]:
    """The answer of an honest registry that has `run` by one relayer, as JSON."""
    plain = body_of(run)
    found = Bytes32.from_raw(evidence(run.context, run.inputs, run.blocks))
    return {
        **plain, "hash": hash_of(run), "relayer": relayer, "status": "valid", "validations": 1, "conflicts": [],
        "outputs": [{**each, "recorded": True} for each in plain["outputs"]],
        "records": [{"relayer": relayer, "evidence": found, "createdAt": CREATED_AT}], "createdAt": CREATED_AT,
        **members,
    }  # fmt: skip
