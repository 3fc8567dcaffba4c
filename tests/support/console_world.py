"""A filled registry: functions, triggers of every kind, runs, and a day of intents in every status."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2

from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, once, register
from console_runs import fill_runs
from intent_bodies import (
    intent_body,
    log_body,
    operation_body,
    operations_body,
    operations_proposal_body,
    proposal_body,
)
from muniment.chains.catalogue import CATALOGUE
from muniment.protocol.evm.hex import Bytes32
from muniment.protocol.forms import decode_record
from muniment.protocol.intents import rules
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import AnyNewIntent, StatusChange
from muniment.protocol.wire import iso_time
from muniment.service.context import Context
from muniment.service.resources.intents import recording
from muniment.service.storage.database import Transaction
from operation_data import BASE, USDC, call_data, offer_data, swap_data, transfer_data

HOUR_MS = 3_600_000
OWNERS = tuple(Wallet(number) for number in (61, 62, 63, 64))
# Text that would be markup, reversed, invisible or enormous if a page wrote it as it is.
HOSTILE = '</td><script>alert(1)</script><img src=x onerror="alert(2)"> \u202eesrever\u202c \u200b\x1b[31m & <b>'

REFILL = Bundle(
    "Refill", "1.2.0", "Tops an account up when it falls below a threshold",
    inputs={
        "chainId": "uint32", "account": "address", "threshold": {"type": "uint256", "description": "In wei"},
        "memo": "string", "dry": "bool", "salt": "bytes32",
    },
)  # fmt: skip
THRESHOLD = Bundle(
    "Threshold", "0.3.1", "Transfers when a balance passes a limit",
    inputs={"chainId": "uint32", "limit": {"type": "uint256", "description": "Limit in wei"}},
)  # fmt: skip
SWEEP = Bundle("Sweep rewards", "2.0.0", "Claims rewards and sends them to the treasury")
_STATUSES = (
    ["succeeded"] * 14 + ["submitted"] * 2 + ["failed"] * 2 + ["discarded"] * 2 + ["enqueued", "created", "created"]
)
_WAYS = {
    "created": (), "enqueued": ("enqueued",), "discarded": ("discarded",), "submitted": ("enqueued", "submitted"),
    "succeeded": ("enqueued", "submitted", "succeeded"), "failed": ("enqueued", "submitted", "failed"),
}  # fmt: skip


# From the arrival to each move.
_SECONDS = (1, 9, 31)
# By type of operation: swap, transfer, call, swap between chains.
_DATA = (swap_data(), transfer_data(), call_data(value=10**16), swap_data(destination=10))
# The settlement contracts of Base, the newest first.
SETTLERS = tuple(str(each) for each in CATALOGUE[BASE].settlers)


@dataclass
class World:
    """Its content: CIDs by name, triggers, hashes of intents by status, and of runs by what they show."""

    cids: dict[str, str] = field(default_factory=dict[str, str])
    triggers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    intents: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    runs: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Registry:
    """A running service and its content."""

    url: str
    world: World
    # Of an operator, who may write intents.
    operator_key: str


async def fill(
    context: Context, client: httpx2.AsyncClient, set_time: Callable[[int], None], *, intents: int = 120
) -> World:  # fmt: skip
    """Fill the registry of `context`; `set_time` moves its clock, which is at the present again at the end."""
    world, now_ms = World(), context.clock.now_ms()
    chance = random.Random(7)
    set_time(now_ms - 30 * HOUR_MS)
    for number, bundle in enumerate((SWEEP, THRESHOLD, REFILL, Bundle("Hostile", "1.0.0", HOSTILE))):
        world.cids[bundle.name] = await deploy(client, bundle, OWNERS[number % len(OWNERS)])
    for age_hours, draft in _drafts(world.cids, now_ms):
        set_time(now_ms - age_hours * HOUR_MS)
        world.triggers.append(await register(client, draft))
    last = world.triggers[1]
    sigs = [last["sig"]]
    owner = next(each for each in OWNERS if each.address == last["signer"])
    answer = await client.post(
        "/triggers/deactivate", json={"triggerSigs": sigs, "signature": owner.sign_deactivation(sigs)}
    )
    assert answer.status_code == 204, answer.text
    times = sorted(now_ms - int(chance.triangular(0, 26, 4) * HOUR_MS) for _ in range(intents))
    for number, at_ms in enumerate(times):
        set_time(at_ms)
        status = chance.choice(_STATUSES)
        made = await _intent(context, _body(number, at_ms, now_ms, world, chance), _WAYS[status], at_ms)
        world.intents.setdefault(status, []).append(made)
    set_time(now_ms)
    world.runs = await fill_runs(context, client, world.triggers, now_ms, HOSTILE)
    return world


def _drafts(cids: dict[str, str], now_ms: int) -> list[tuple[int, TriggerDraft]]:
    """Triggers, each with its age in hours; the last has a hostile description."""
    threshold = {"chainId": "8453", "limit": str(10**18)}
    kinds = {"chainId": "uint32", "limit": "uint256"}
    return [
        (29, TriggerDraft(cids["Sweep rewards"], OWNERS[0], description="Sweep rewards to the treasury")),
        (28, TriggerDraft(
            cids["Sweep rewards"], OWNERS[1], description="Rebalance", config=cron(schedule="0 0 * * 1")
        )),
        (20, TriggerDraft(
            cids["Threshold"], OWNERS[2], kinds, "Keep the hot wallet above 1 ETH", "0.3.1", threshold,
            cron(schedule="30 9 1 * *", endDate=now_ms + 90 * 24 * HOUR_MS), fee_limit="250000000000000000",
        )),
        (9, TriggerDraft(cids["Threshold"], OWNERS[3], kinds, "On each deposit", "0.3.1", threshold, event())),
        (5, TriggerDraft(cids["Sweep rewards"], OWNERS[0], description="Once", config=once(endDate=now_ms - HOUR_MS))),
        (1, TriggerDraft(cids["Sweep rewards"], OWNERS[1], description=HOSTILE, config=cron(schedule="*/5 * * * *"))),
    ]  # fmt: skip


def _body(number: int, at_ms: int, now_ms: int, world: World, chance: random.Random) -> dict[str, Any]:
    user = chance.choice(OWNERS).address
    shared = {
        "deadline": str((max(at_ms, now_ms - HOUR_MS) + 2 * HOUR_MS) // 1000),
        "maxFees": [{"token": USDC, "amount": "250000"}],
    }
    trigger = world.triggers[number % len(world.triggers)]["sig"]
    if number % 5 == 0:
        kinds = [
            operation_body(opType=number % 4, user=user, data=_DATA[number % 4]),
            operation_body(opType=1, user=user, data=transfer_data()),
        ]
        return operations_body(
            number, feePayer=user, settler=SETTLERS[0], triggerSig=trigger, operations=kinds, **shared
        )  # fmt: skip
    op = number % 3
    return intent_body(number, op=op, user=user, settler=SETTLERS[1], configSig=trigger, data=_DATA[op], **shared)


async def _intent(context: Context, body: dict[str, Any], moves: tuple[str, ...], at_ms: int) -> str:
    """Record an intent and move it, some seconds apart; its hash."""
    settings = context.settings
    members: dict[str, Any] = {}
    if moves:
        has_list = "operations" in body
        data = {"datas": [offer_data(15 * 10**17), "0x"]} if has_list else {"data": offer_data(15 * 10**17)}
        make = operations_proposal_body if has_list else proposal_body
        members["proposals"] = [
            make(1, fees=["120000"], **data), make(2, description=HOSTILE, status="rejected", fees=["1"])
        ]  # fmt: skip
        members["logs"] = [
            log_body(1, data="picked the proposal with the lowest fee", createdAt=iso_time(at_ms + 2_000)),
            log_body(
                2, data=f"execution reverted: SettlerAmountOutLtProposed {HOSTILE}", level="error",
                createdAt=iso_time(at_ms + 31_000),
            ),
        ]  # fmt: skip
    transaction = Bytes32("0x" + body["nonce"][-2:] * 32)

    async def write(tx: Transaction) -> str:
        new: AnyNewIntent = decode_record({**body, **members}, AnyNewIntent)
        checked = rules.check_intent(new, None, protocol=settings.protocol_name, chains=context.chains, now_ms=at_ms)
        await recording.record(tx, checked, "tests", Moment(at_ms, settings.settlement_grace_s))
        for number, status in enumerate(moves):
            change = StatusChange(status=status, transaction_hash=transaction if status == "submitted" else None)
            moment = Moment(at_ms + _SECONDS[number] * 1_000, settings.settlement_grace_s)
            await recording.move(tx, checked.hash, change, "tests", moment)
        return "0x" + checked.hash.hex()

    return await context.database.write(write)
