"""Many writers at once: no acknowledged write is lost, and the last status is one that the diagram allows."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from muniment.protocol.intents.lifecycle import INTENT_MOVES, PROPOSAL_MOVES, Diagram, reachable
from muniment.service.context import Context
from operator_client import IntentDraft, OperatorClient, hash_of_proposal, log, operator_key, proposal

NUMBERS = count(1)
_KINDS = (
    st.tuples(st.just("move"), st.sampled_from(sorted(INTENT_MOVES)), st.just(0)),
    st.tuples(st.just("put"), st.sampled_from(sorted({*INTENT_MOVES} - {"expired"})), st.integers(0, 3)),
    st.tuples(st.just("propose"), st.sampled_from(sorted(PROPOSAL_MOVES)), st.integers(0, 2)),
    st.tuples(st.just("move proposal"), st.sampled_from(sorted(PROPOSAL_MOVES)), st.integers(0, 2)),
    st.tuples(st.just("log"), st.just(""), st.integers(0, 5)),
)
Action = tuple[str, str, int]


@pytest.fixture
async def operator(client: httpx2.AsyncClient, context: Context) -> OperatorClient:
    return OperatorClient(client, await operator_key(context))


async def acted(operator: OperatorClient, draft: IntentDraft, action: Action) -> bool:
    """Whether an action was acknowledged."""
    kind, status, n = action
    if kind == "move":
        answer = await operator.move(draft.hash, status)
    elif kind == "put":
        answer = await operator.put(draft.saying(status=status, proposals=[proposal(n)], logs=[log(n)]))
    elif kind == "propose":
        answer = await operator.append(draft.hash, "proposals", proposal(n, status=status))
    elif kind == "log":
        answer = await operator.append(draft.hash, "logs", log(n))
    else:
        named = hash_of_proposal(draft.hash, proposal(n))
        answer = await operator.move(draft.hash, status, proposal=named)
    assert answer.status_code in {200, 404, 409}, answer.text
    return answer.status_code == 200


def can_follow(diagram: Diagram, end: str, acknowledged: set[str]) -> bool:
    """Whether every acknowledged status leads to this one: none was taken back."""
    return all(end == status or end in reachable(diagram, status) for status in acknowledged)


def check_end(end: dict[str, Any], draft: IntentDraft, acknowledged: list[Action]) -> None:
    moves = {status for kind, status, _ in acknowledged if kind in {"move", "put"}}
    assert can_follow(INTENT_MOVES, end["status"], {"created", *moves})
    logs = {f"relayer/{n}" for kind, _, n in acknowledged if kind in {"log", "put"}}
    assert sorted(each["id"] for each in end["logs"]) == sorted(logs)
    offered = {n for kind, _, n in acknowledged if kind in {"propose", "put"}}
    statuses = {each["hash"]: each["status"] for each in end["proposals"]}
    assert len(statuses) == len(end["proposals"])
    assert set(statuses) == {hash_of_proposal(draft.hash, proposal(n)) for n in offered}
    for n in offered:
        said = {status for kind, status, of in acknowledged if of == n and kind in {"propose", "move proposal"}}
        assert can_follow(PROPOSAL_MOVES, statuses[hash_of_proposal(draft.hash, proposal(n))], said - {"received"})


# Each example is some twenty requests.
EXAMPLES = min(25, hypothesis_settings().max_examples // 2)


@hypothesis_settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(writers=st.lists(st.lists(st.one_of(_KINDS), min_size=1, max_size=6), min_size=2, max_size=6))
async def test_interleaved_writers_end_where_the_diagram_allows_and_nothing_acknowledged_is_lost(
    operator: OperatorClient, writers: list[list[Action]]
) -> None:
    draft = IntentDraft(next(NUMBERS))
    await operator.recorded(draft)
    acknowledged: list[Action] = []

    async def write(actions: list[Action]) -> None:
        for action in actions:
            if await acted(operator, draft, action):
                acknowledged.append(action)  # noqa: PERF401 - each as it is acknowledged, between those of others

    await asyncio.gather(*(write(actions) for actions in writers))
    check_end(await operator.read(draft.hash), draft, acknowledged)


async def test_of_two_moves_that_exclude_each_other_one_is_refused(operator: OperatorClient) -> None:
    for number in range(10):
        of = await operator.recorded(IntentDraft(number, members={"status": "submitted"}))
        answers = await asyncio.gather(*(operator.move(of, status) for status in ("succeeded", "failed") * 5))
        kinds = [{answer.status_code for answer in answers[start::2]} for start in (0, 1)]
        assert kinds in ([{200}, {409}], [{409}, {200}])
        assert (await operator.read(of))["status"] == ("succeeded" if kinds[0] == {200} else "failed")


async def test_simultaneous_puts_of_an_intent_record_it_once(operator: OperatorClient) -> None:
    drafts = [IntentDraft(members={"proposals": [proposal(n)], "logs": [log(n), log(99)]}) for n in range(20)]
    answers = await asyncio.gather(*(operator.put(draft) for draft in drafts))
    assert {answer.status_code for answer in answers} == {200}
    (shown,) = (await operator.client.get("/intents")).json()
    assert len(shown["proposals"]) == 20
    assert sorted(each["id"] for each in shown["logs"]) == sorted(f"relayer/{n}" for n in [*range(20), 99])
