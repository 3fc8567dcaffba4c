"""On PostgreSQL too no answer leaves before its commit, and a database that is lost meanwhile is 503."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from test_durability import KINDS, Change, Changes, changes, rows

from muniment.service.context import Context
from muniment.service.storage.postgres import transaction as postgres_transaction

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
__all__ = ["changes"]  # the fixture


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", ["before the commit", "after the commit"])
async def test_no_answer_leaves_before_its_commit_has_returned(
    changes: Changes, kind: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, original = asyncio.Event(), postgres_transaction._make_durable

    async def slow(ending: Callable[[], Awaitable[object]]) -> object:
        if held == "before the commit":
            await gate.wait()
        answer = await original(ending)
        await gate.wait()
        return answer

    monkeypatch.setattr(postgres_transaction, "_make_durable", slow)  # no server is sure to be so slow
    change: Change = getattr(changes, kind)
    answer = asyncio.ensure_future(change())
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert (await changes.client.get("/healthz")).status_code == 200
    assert not answer.done()
    gate.set()
    assert (await answer).status_code in {200, 204}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_commit_that_fails_is_503_and_stores_no_row(
    changes: Changes, kind: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Any) -> None:
        raise ConnectionResetError

    change: Change = getattr(changes, kind)
    before = await rows(context)
    with monkeypatch.context() as patch:
        patch.setattr(postgres_transaction, "_make_durable", fail)  # no test can cut the line at this moment
        answer = await change()
        assert answer.status_code == 503
        # Blocks are rows here too, and come first.
        assert answer.json()["code"] == ("storage-unavailable" if kind == "function" else "database-unavailable")
    assert await rows(context) == before
    assert (await change()).status_code in {200, 204}
