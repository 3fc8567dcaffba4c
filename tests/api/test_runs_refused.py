"""Runs that are refused: by a rule, by the shape of the body, or for the caller; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from conftest import Clock
from muniment.service.context import Context
from runs_world import BLOCK, TICK, Relayer, registered, relayer, run_body, skipped

HEX32 = "0x" + "ab" * 32
CALL = {"to": "0x" + "01" * 20, "data": "0x", "block": BLOCK, "answer": "0x"}
# Every member that a body may have, with values of the right kind.
WHOLE: dict[str, Any] = {
    "hash": HEX32, "evidence": HEX32, "signature": "0x" + "1" * 128 + "1b", "missedCount": 1, "from": TICK, "to": TICK,
    "reason": {"code": "gap", "text": ""}, "logsCut": False, "fee": "0", "solverFees": ["0"], "blocks": [BLOCK],
    "context": {"consensusThreshold": 1, "settlers": [{"address": "0x" + "01" * 20, "chainId": 1}]},
    "outputs": [{"hash": HEX32}],
    "inputs": [
        {"query": "evmCall", "params": {"to": "x", "list": ["y"]}, "answer": {"success": True, "data": "0x"},
         "block": BLOCK, "calls": [CALL]},
    ],
}  # fmt: skip
HOSTILE: tuple[Any, ...] = (None, True, -1, 1.5, "", "\0", "\ud800", [], {}, [{}])
# Of the members of the body itself.
MORE_HOSTILE: tuple[Any, ...] = (
    2**53, 10**30, "x", "0x", "0xg", "٣", "1e3", "' OR 1=1 --", [None], [[]], {"": 0}, {"__proto__": {}}, "a" * 200_000,
)  # fmt: skip


@pytest.fixture
async def trigger(client: httpx2.AsyncClient, clock: Clock) -> dict[str, Any]:
    made = await registered(client)
    clock.now_ms = TICK
    return made


@pytest.fixture
async def own(context: Context, client: httpx2.AsyncClient) -> Relayer:
    return await relayer(context, client, number=7)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every member and element below `value`."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from places(each, (*path, name))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    """A copy of `value` with something else at `path`."""
    if not path:
        return to
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(value[path[0]], path[1:], to)
    return copied


@pytest.mark.one_engine
async def test_no_hostile_value_anywhere_is_stored_or_breaks_anything(
    client: httpx2.AsyncClient, trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any]
) -> None:
    """Of a run that is refused anyhow: whatever its members are, the answer is a clear refusal."""
    body = {**run_body(trigger), **WHOLE}
    headers = {**own.headers, "content-type": "application/json"}
    async with nothing_stored():
        for path in places(body):
            for value in HOSTILE if len(path) > 1 else (*HOSTILE, *MORE_HOSTILE):
                sent = json.dumps(changed(body, path, value)).encode()
                refused = await client.post("/executions", content=sent, headers=headers)
                assert refused.status_code in {400, 404, 413}, (path, value, refused.text)
                assert refused.json()["errors"] or refused.status_code in {404, 413} or value == "\ud800", (path, value)


CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "unknown trigger": ({"triggerSig": "0x" + "2" * 128 + "1b"}, 404, "trigger-not-found"),
    "not due": ({"timestamp": TICK + 1}, 400, "invalid-execution"),
    "another hash": ({"hash": HEX32}, 400, "execution-mismatch"),
    "other evidence": ({"evidence": HEX32}, 400, "execution-mismatch"),
    "a signature of nobody": ({"signature": "0x" + "1" * 128 + "1b"}, 400, "signature-mismatch"),
    "more outputs than a run sends": (
        {"result": "intents", "outputs": [{"hash": f"0x{n:064x}"} for n in range(33)]}, 400, "invalid-body",
    ),
    "more lines than a log has": ({"logs": ["x"] * 201}, 400, "invalid-body"),
    "a line that is too long": ({"logs": ["x" * 4_012]}, 400, "invalid-text"),
    "NUL in a log": ({"logs": ["\0"]}, 400, "invalid-text"),
    "NUL in a param": (
        {"inputs": [{"query": "api", "params": {"a": "\0"}, "answer": {"success": True}}]}, 400, "invalid-text",
    ),
    "NUL in a list of params": (
        {"inputs": [{"query": "api", "params": {"a": ["b", "\0"]}, "answer": {"success": True}}]}, 400, "invalid-body",
    ),
    "NUL in an answer": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": True, "data": "\0"}}]}, 400, "invalid-text",
    ),
    "NUL in a list of answers": (
        {"inputs": [{"query": "api", "params": {}, "answer": {"success": True, "data": ["\0"]}}]}, 400, "invalid-body",
    ),
    "a param that is no name": (
        {"inputs": [{"query": "api", "params": {"a.b": ""}, "answer": {"success": True}}]}, 400, "invalid-body",
    ),
    "a query of another name": (
        {"inputs": [{"query": "eth_call", "params": {}, "answer": {"success": True}}]}, 400, "invalid-body",
    ),
    "a reason that is too long": ({**skipped(), "reason": {"code": "ended", "text": "x" * 1_001}}, 400, "invalid-text"),
    "no engine": ({"engine": ""}, 400, "invalid-text"),
    "a body that is too large": ({"logs": ["x" * 1_000] * 300}, 413, "body-too-large"),
}  # fmt: skip


async def test_a_refused_run_is_stored_nowhere(
    trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for case, (changes, status, code) in CASES.items():
            with subtests.test(case):
                refused = await own.post(run_body(trigger, **changes))
                assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.one_engine
async def test_a_member_that_is_due_is_named(
    trigger: dict[str, Any], own: Relayer, nothing_stored: Callable[[], Any], subtests: pytest.Subtests
) -> None:
    async with nothing_stored():
        for missing in ("triggerSig", "triggerType", "triggerData", "timestamp", "result", "engine"):
            body = run_body(trigger)
            del body[missing]
            with subtests.test(missing):
                refused = await own.post(body)
                assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, f"/{missing}")


async def test_a_caller_without_a_key_is_refused(
    client: httpx2.AsyncClient, trigger: dict[str, Any], nothing_stored: Callable[[], Any]
) -> None:
    async with nothing_stored():
        assert (await client.post("/executions", json=run_body(trigger))).status_code == 401
        headers = {"x-operator-key": "mno_" + "0" * 64}
        assert (await client.post("/executions", json=run_body(trigger), headers=headers)).status_code == 403
