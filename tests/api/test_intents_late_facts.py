"""Facts that were stored as their intents arrived take effect later, however many others name failed transactions."""

from __future__ import annotations

from typing import Any

import pytest
from intents_world import HOUR, SETTLERS, intent_body, operations_body, proposal_body, record

from muniment.protocol.evm.address import Address
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.context import Context
from muniment.service.resources.intents import chain_facts
from muniment.service.resources.intents.chain_facts import RECEIPT_INDEX, Fact, apply_late_facts, insert_facts
from muniment.service.resources.intents.store import shown

FAILED = "0x" + "ab" * 32


@pytest.mark.parametrize("body", [intent_body, operations_body], ids=["first", "second"])
@pytest.mark.parametrize("named_by", ["the intent", "its proposal"])
async def test_intents_that_a_failed_receipt_says_nothing_about_hold_up_no_other(
    context: Context, monkeypatch: pytest.MonkeyPatch, body: Any, named_by: str
) -> None:
    monkeypatch.setattr(chain_facts, "_LATE_INTENTS_MAX", 2)
    moment = Moment(context.clock.now_ms(), HOUR)
    named: dict[str, Any] = {"transactionHash": FAILED}
    members = named if named_by == "the intent" else {"proposals": [proposal_body(1, **named)]}
    await record(context, *(intent_body(n, status="enqueued", **members) for n in range(4)))
    (late,) = await record(context, body(9, status="submitted"))
    settler = Address.parse(SETTLERS[0]).raw
    receipt = Fact(1, 7, b"\x01" * 32, b"\xab" * 32, RECEIPT_INDEX, settler, b"\xab" * 32, "failed")
    event = Fact(1, 7, b"\x01" * 32, b"\x02" * 32, 3, settler, bytes.fromhex(late[2:]), "succeeded")
    await context.database.write(lambda tx: insert_facts(tx, [receipt, event]))
    for _ in range(4):
        await context.database.write(lambda tx: apply_late_facts(tx, 1, 0, moment))
    answer = await shown(context.database, bytes.fromhex(late[2:]), moment)
    assert '"status":"succeeded"' in answer
