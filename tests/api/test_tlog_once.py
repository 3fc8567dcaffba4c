"""Each fact is in the log once, however often, late, and by whatever door it is told again."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import httpx2
import pytest
from structlog.testing import capture_logs
from tlog_world import KEY, entries_of, turn
from trigger_world import digest_of, sign_with_nonce

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.protocol.log.entries import DeactivationFact, Fact, FunctionFact, TriggerFact, parse_entry
from muniment.service.context import Context
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.operating import rotate
from muniment.service.resources.log.store import Overtaken
from muniment.service.running.settings import Settings

ALICE, BOB = Wallet(1), Wallet(2)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name="registry.example", tlog_key=KEY, tlog_key_next="22" * 32)


def key_of(fact: Fact | None) -> tuple[str, ...]:
    """What a fact is about; empty for those of the log itself."""
    if isinstance(fact, FunctionFact):
        return fact.cid, fact.uploader
    if isinstance(fact, TriggerFact):
        return fact.digest, fact.signer
    return (fact.signature,) if isinstance(fact, DeactivationFact) else ()


async def tell_everything(client: httpx2.AsyncClient, description: str) -> None:
    """Two functions, three triggers and two deactivations, each told at several doors, some at the same moment."""
    cids = [await deploy(client, Bundle(name), ALICE) for name in ("First", "Second")]
    await asyncio.gather(*(deploy(client, Bundle(name), BOB) for name in ("First", "Second") * 2))
    drafts = [TriggerDraft(cids[0], BOB, version=f"{n}.0.0", description=description) for n in (1, 2, 3)]
    bodies = [draft.signed() for draft in drafts]
    spelled = [[body["sig"], sign_with_nonce(digest_of(body), BOB, 7)] for body in bodies[:2]]
    posts = [{**body, "sig": sig} for body, sigs in zip(bodies, spelled, strict=False) for sig in sigs * 2]
    await asyncio.gather(*(client.post("/triggers", json=post) for post in posts))
    await register(client, drafts[2])
    for body in bodies[:2]:
        sig = (await client.post("/triggers", json=body)).json().get("sig") or await stored_sig(client, body)
        for as_text in (True, False):
            ending = {"triggerSigs": [sig], "signature": BOB.sign_deactivation([sig], as_text=as_text)}
            for _ in range(2):
                assert (await client.post("/triggers/deactivate", json=ending)).status_code == 204


async def stored_sig(client: httpx2.AsyncClient, body: dict[str, object]) -> str:
    """The signature under which a consent that was deactivated is stored."""
    triggers = (await client.get("/triggers", params={"signer": BOB.address, "limit": 100})).json()
    typed = body["typedData"]
    assert isinstance(typed, dict)
    return next(each["sig"] for each in triggers if each["version"] == typed["values"]["version"])


async def test_a_fact_that_is_told_again_is_no_second_entry(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    facts: list[Fact | None] = []
    for description in ("Every six hours", "Something else"):
        await tell_everything(client, description)
        clock.advance(hours=1)
        done = await asyncio.gather(*(Integrator(context).turn() for _ in range(3)), return_exceptions=True)
        assert all(each is None or isinstance(each, Overtaken) for each in done), done
        await turn(context, clock)
    facts += map(parse_entry, await entries_of(context))
    await rotate(context)
    await tell_everything(client, "In another epoch")
    await turn(replace(context, settings=replace(context.settings, tlog_key="22" * 32, tlog_key_next="")), clock)
    facts += map(parse_entry, await entries_of(context))
    keys = Counter(key_of(fact) for fact in facts)
    del keys[()]
    assert set(keys.values()) == {1}, keys
    told = Counter(fact.kind for fact in facts if fact is not None)
    assert [told[each.kind] for each in (FunctionFact, TriggerFact, DeactivationFact)] == [4, 3, 2]
    # What the entries of one function say of it is the same.
    functions = {(fact.cid, fact.creator, fact.created_at) for fact in facts if isinstance(fact, FunctionFact)}
    assert len(functions) == 2


async def test_a_function_that_a_wallet_joins_long_after_the_first_one_is_not_late(
    client: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    await deploy(client, Bundle(), ALICE)
    await turn(context, clock)
    clock.advance(hours=3)
    await deploy(client, Bundle(), BOB)
    with capture_logs() as lines:
        await turn(context, clock)
    assert lines == []
    await deploy(client, Bundle(), Wallet(3))
    clock.advance(minutes=6)
    with capture_logs() as lines:
        epoch = await turn(context, clock)
    assert [line["seconds"] for line in lines] == [360]
    assert epoch.size == 5
