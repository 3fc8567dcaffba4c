"""POST /intents/{hash}/proposals and /logs: each is recorded once, none is lost, and the limits hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import httpx2
import pytest
from trigger_world import check_refusal

from builders import Wallet
from conftest import Clock
from muniment.chains.catalogue import Chain
from muniment.protocol.evm.address import Address
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from operator_client import (
    HEX32,
    SETTLER,
    SOLVER,
    IntentDraft,
    OperatorClient,
    hash_of_proposal,
    log,
    operator_key,
    proposal,
    signed,
)

NothingStored = Callable[[], Any]
CHAINS = [Chain(8453, "Base", settlers=(Address.parse(SETTLER),)), Chain(10, "OP", settlers=(Address.parse(SETTLER),))]
BASE, OPTIMISM = CHAINS


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Two chains whose settler is the tests'."""
    chains = tmp_path / "chains.toml"
    chains.write_text(
        "".join(f'[[chains]]\nid = {chain.id}\nname = "{chain.name}"\nsettler = "{SETTLER}"\n' for chain in CHAINS)
    )
    return replace(settings, chains_file=str(chains))


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def test_a_proposal_is_answered_with_every_field_and_its_hash(operator: OperatorClient) -> None:
    of = await operator.recorded()
    answer = await operator.append(of, "proposals", proposal())
    assert answer.status_code == 200
    assert answer.json() == {
        **proposal(), "hash": hash_of_proposal(of, proposal()), "feeUsd": "0", "status": "received",
        "description": "", "signatures": [], "verified": None, "signers": [],
    }  # fmt: skip
    assert (await operator.read(of))["proposals"] == [answer.json()]


async def test_the_same_proposal_is_recorded_once_and_its_status_moves_forward(operator: OperatorClient) -> None:
    of = await operator.recorded()
    await operator.append(of, "proposals", proposal(description="first"))
    for status in ("accepted", "received", "submitted"):
        answer = await operator.append(of, "proposals", proposal(status=status, description="again"))
        assert answer.json()["description"] == "first"
    assert [each["status"] for each in (await operator.read(of))["proposals"]] == ["submitted"]
    refused = await operator.append(of, "proposals", proposal(status="rejected"))
    assert hash_of_proposal(of, proposal()) in check_refusal(refused, 409, "status-conflict")["detail"]


SIGNERS = {
    "the solver": ([(BASE, SOLVER)], True),
    "the solver on another chain": ([(OPTIMISM, SOLVER)], True),
    "somebody else": ([(BASE, Wallet(5))], False),
    "the solver and somebody else": ([(BASE, SOLVER), (BASE, Wallet(5))], False),
    "the solver on two chains": ([(BASE, SOLVER), (OPTIMISM, SOLVER)], False),
    "a chain that is not configured": ([(replace(BASE, id=999), SOLVER)], False),
    "nobody": ([], None),
}


@pytest.mark.one_engine
async def test_a_proposal_says_whether_its_solver_signed_it(
    operator: OperatorClient, subtests: pytest.Subtests
) -> None:
    for number, (row, (signers, verified)) in enumerate(SIGNERS.items()):
        with subtests.test(row):
            of, body = await operator.recorded(IntentDraft(number)), proposal()
            for chain, wallet in signers:
                body = signed(of, body, chain, wallet)
            answer = (await operator.append(of, "proposals", body)).json()
            assert answer["verified"] is verified
            assert len(answer["signers"]) == len({(chain.id, wallet.address) for chain, wallet in signers})
            if {chain.id for chain, _ in signers} in ({BASE.id}, {OPTIMISM.id}) and signers[0][1] is SOLVER:
                assert answer["signers"] == [wallet.address for _, wallet in signers]
            assert answer["signatures"] == body.get("signatures", [])
    put = await operator.put(IntentDraft(99).saying(proposals=[signed(IntentDraft(99).hash, proposal(), BASE)]))
    assert put.json()["proposals"][0]["verified"] is True


async def test_a_signature_for_a_settler_of_no_configured_chain_is_not_judged(operator: OperatorClient) -> None:
    other = Address.parse(Wallet(9).address)
    draft = IntentDraft().saying(settler=str(other))
    of = await operator.recorded(draft)
    body = signed(of, proposal(), replace(BASE, settlers=(other,)))
    assert (await operator.append(of, "proposals", body)).json()["verified"] is None


async def test_a_log_without_a_time_is_of_now_and_each_is_another_line(operator: OperatorClient, clock: Clock) -> None:
    of = await operator.recorded()
    line = {"level": "error", "data": "no route"}
    first = await operator.append(of, "logs", line)
    clock.advance(seconds=1)
    second = await operator.append(of, "logs", line)
    assert second.json() == {**line, "createdAt": "2026-11-20T19:48:01.123Z"}
    assert (await operator.read(of))["logs"] == [first.json(), second.json()]


async def test_the_same_log_by_id_or_else_by_time_level_and_text_is_recorded_once(operator: OperatorClient) -> None:
    of = await operator.recorded()
    line = {"level": "info", "data": "x", "createdAt": "2026-11-20T19:00:00.000Z"}
    for body in (line, line, {**line, "level": "debug"}, {**line, "id": "a"}, {**line, "id": "a", "data": "y"}):
        assert (await operator.append(of, "logs", body)).status_code == 200
    shown = (await operator.read(of))["logs"]
    assert shown == [line, {**line, "level": "debug"}, {**line, "id": "a"}]
    assert (await operator.append(of, "logs", {**line, "id": "a", "data": "z"})).json() == shown[2]


@pytest.mark.parametrize(("kind", "body"), [("proposals", proposal()), ("logs", log())], ids=["proposal", "log"])
async def test_the_same_proposal_and_log_of_many_simultaneous_writers_are_recorded_once(
    operator: OperatorClient, kind: str, body: dict[str, Any]
) -> None:
    of = await operator.recorded()
    answers = await asyncio.gather(*(operator.append(of, kind, body) for _ in range(40)))
    assert {answer.status_code for answer in answers} == {200}
    assert (await operator.read(of))[kind] == [answers[0].json()]
    assert {answer.content for answer in answers} == {answers[0].content}


async def test_everything_that_many_simultaneous_writers_append_is_there_in_lists_of_the_newest(
    operator: OperatorClient,
) -> None:
    of = await operator.recorded()
    await asyncio.gather(*(
        operator.append(of, kind, make(n)) for n in range(60) for kind, make in (("proposals", proposal), ("logs", log))
    ))  # fmt: skip
    whole = await operator.read(of)
    assert sorted(each["id"] for each in whole["logs"]) == sorted(f"relayer/{n}" for n in range(60))
    assert {each["data"] for each in whole["proposals"]} == {proposal(n)["data"] for n in range(60)}
    listed = (await operator.client.get("/intents")).json()[0]
    assert (listed["proposals"], listed["logs"]) == (whole["proposals"][-50:], whole["logs"][-50:])


@pytest.mark.spoils_events("rows are filled in by SQL")
@pytest.mark.parametrize(
    ("kind", "make", "table", "holds"),
    [("proposals", proposal, "intent_proposals", 1_000), ("logs", log, "intent_logs", 10_000)],
    ids=["proposals", "logs"],
)
async def test_a_full_intent_refuses_new_entries_and_accepts_known_ones(
    operator: OperatorClient,
    context: Context,
    nothing_stored: NothingStored,
    kind: str,
    make: Any,
    table: LiteralString,
    holds: int,
) -> None:
    of = await operator.recorded()
    last = (await operator.append(of, kind, make(1))).json()
    unique = "hash" if kind == "proposals" else "identity"
    extra = ", status" if kind == "proposals" else ""
    values = ", 'received'" if kind == "proposals" else ""
    ((seq, record),) = await context.database.fetch(f"SELECT intent_seq, record FROM {table}")

    async def fill(tx: Any) -> None:
        for n in range(holds - 60, holds + 1):  # the newest: how many there are is counted in the intent
            await tx.execute(
                f"INSERT INTO {table} (intent_seq, n, {unique}{extra}, record) VALUES (?, ?, ?{values}, ?)",
                (seq, n, n.to_bytes(32), record),
            )
        await tx.execute(f"UPDATE intents SET {kind[:-1]}_count = {holds}")

    await context.database.write(fill)
    async with nothing_stored():
        check_refusal(await operator.append(of, kind, make(2)), 409, "intent-full")
        refused = await operator.put(IntentDraft(members={kind: [make(2)], "status": "enqueued"}))
        check_refusal(refused, 409, "intent-full")
    assert (await operator.append(of, kind, make(1))).json() == last
    assert (await operator.put(IntentDraft(members={kind: [make(1)]}))).status_code == 200
    listed = (await operator.client.get("/intents")).json()[0]
    assert len(listed[kind]) == 50


@pytest.mark.parametrize(("kind", "body"), [("proposals", proposal()), ("logs", log())], ids=["proposal", "log"])
async def test_an_intent_that_is_not_recorded_gets_nothing(
    operator: OperatorClient, nothing_stored: NothingStored, kind: str, body: dict[str, Any]
) -> None:
    async with nothing_stored():
        check_refusal(await operator.append(HEX32, kind, body), 404, "intent-not-found")
        check_refusal(await operator.append("0x1234", kind, body), 400, "invalid-hex", parameter="hash")


MALFORMED = {
    "solver": ("proposals", proposal(solver="0x00"), "/solver"),
    "fee": ("proposals", proposal(fees=[3]), "/fees/0"),
    "too many fees": ("proposals", proposal(fees=["1"] * 257), "/fees"),
    "too large": ("proposals", proposal(data="0x" + "00" * 33_000), ""),
    "high s": ("proposals", proposal(signatures=["0x" + "f" * 128 + "1b"]), "/signatures/0"),
    "level": ("logs", log(level="fatal"), "/level"),
    "text of 4097 bytes": ("logs", log(data="é" * 2_048 + "x"), "/data"),
    "no text": ("logs", log(data=""), "/data"),
    "NUL": ("logs", log(data="a\0"), "/data"),
    "id": ("logs", log(id=""), "/id"),
    "time that is none": ("logs", log(createdAt="2026-11-31T00:00:00.000Z"), "/createdAt"),
}


@pytest.mark.one_engine
async def test_a_malformed_body_is_refused_with_the_place(
    operator: OperatorClient, nothing_stored: NothingStored, subtests: pytest.Subtests
) -> None:
    of = await operator.recorded()
    async with nothing_stored():
        for row, (kind, body, pointer) in MALFORMED.items():
            with subtests.test(row):
                answer = await operator.append(of, kind, body)
                assert answer.status_code == 400, answer.text
                assert [fault.get("pointer") for fault in answer.json()["errors"]] == [pointer], answer.text


async def test_each_append_changes_the_etag_and_a_repetition_does_not(operator: OperatorClient) -> None:
    of = await operator.recorded()

    async def etag() -> str:
        return (await operator.client.get(f"/intents/{of}")).headers["etag"]

    tags = [await etag()]
    for kind, body in (("logs", log()), ("proposals", proposal()), ("logs", log()), ("proposals", proposal())):
        await operator.append(of, kind, body)
        tags.append(await etag())
    assert len(set(tags[:3])) == 3
    assert tags[2] == tags[3] == tags[4]
