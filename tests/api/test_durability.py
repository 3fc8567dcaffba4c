"""No answer leaves before its commit, and a database that cannot write answers 503 until it can."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from conftest import stored
from muniment.service.context import Context
from muniment.service.storage.sqlite.engine import SqliteDatabase
from muniment.service.storage.sqlite.writer import Writer

Change = Callable[[], Awaitable[httpx2.Response]]


@dataclass
class Changes:
    """A request of each kind that writes, ready to be sent."""

    client: httpx2.AsyncClient
    api_key: str
    token: str
    cid: str
    sig: str

    async def trigger(self, description: str = "Every hour", version: str = "2.0.0") -> httpx2.Response:
        draft = TriggerDraft(self.cid, description=description, version=version)
        return await self.client.post("/triggers", json=draft.signed())

    async def function(self) -> httpx2.Response:
        headers = {"x-api-key": self.api_key}
        return await self.client.post("/functions", files=Bundle(version="3.0.0").files, headers=headers)

    async def deactivation(self) -> httpx2.Response:
        body = {"triggerSigs": [self.sig], "signature": Wallet().sign_deactivation([self.sig])}
        return await self.client.post("/triggers/deactivate", json=body)

    async def login(self) -> httpx2.Response:
        wallet = Wallet(77)
        nonce = (await self.client.post("/users/nonce", json={"address": wallet.address})).json()["nonce"]
        login = {"address": wallet.address, "signature": wallet.sign_text(nonce)}
        return await self.client.post("/users/authenticate", json=login)

    async def rotation(self) -> httpx2.Response:
        return await self.client.post("/users/api-key/rotate", json={}, headers={"x-auth-token": self.token})


KINDS = ["trigger", "function", "deactivation", "login", "rotation"]


@pytest.fixture
async def changes(client: httpx2.AsyncClient) -> Changes:
    nonce = (await client.post("/users/nonce", json={"address": Wallet().address})).json()["nonce"]
    login = {"address": Wallet().address, "signature": Wallet().sign_text(nonce)}
    token = (await client.post("/users/authenticate", json=login)).json()["token"]
    cid = await deploy(client)
    trigger = await register(client, TriggerDraft(cid))
    return Changes(client, await api_key_of(client, Wallet()), token, cid, trigger["sig"])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", ["before the commit", "after the commit"])
async def test_no_answer_leaves_before_its_commit_has_returned(
    changes: Changes, kind: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, original = threading.Event(), Writer._make_durable

    def slow(writer: Writer) -> None:
        if held == "after the commit":
            original(writer)
        assert gate.wait(60)
        if held == "before the commit":
            original(writer)

    monkeypatch.setattr(Writer, "_make_durable", slow)  # no disk is sure to be so slow
    change: Change = getattr(changes, kind)
    answer = asyncio.ensure_future(change())
    for _ in range(20):
        await asyncio.sleep(0.01)
        assert (await changes.client.get("/healthz")).status_code == 200  # others are served meanwhile
    assert not answer.done()
    gate.set()
    assert (await answer).status_code in {200, 204}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_commit_that_fails_is_503_and_stores_no_row(
    changes: Changes, kind: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Writer) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    change: Change = getattr(changes, kind)
    before = await rows(context)
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_make_durable", fail)  # no test can make the disk fail at this moment
        assert_unavailable(await change())
    assert await rows(context) == before
    assert (await change()).status_code in {200, 204}


async def rows(context: Context) -> dict[str, Any]:
    """All rows. Blocks come before the row that names them: those of a function that failed may stay."""
    everything = await stored(context)
    del everything["files"]
    return everything


def assert_unavailable(response: httpx2.Response) -> None:
    assert response.status_code == 503, response.text
    assert response.json()["code"] == "database-unavailable"
    assert int(response.headers["retry-after"]) > 0


async def big_trigger(changes: Changes, number: int) -> httpx2.Response:
    return await changes.trigger("x" * 1000, version=f"2.0.{number}")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_on_a_full_disk_creates_are_503_and_reads_go_on(changes: Changes, context: Context) -> None:
    assert isinstance(context.database, SqliteDatabase)
    connection = context.database._writer._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    answered: list[dict[str, Any]] = []
    while (response := await big_trigger(changes, len(answered))).status_code == 200:
        answered.append(response.json())
    assert_unavailable(response)
    for trigger in answered:
        assert (await changes.client.get(f"/triggers/{trigger['sig']}")).json() == trigger
    listed = (await changes.client.get(f"/triggers?signer={Wallet().address}&limit=100")).json()
    assert listed[:-1] == answered[::-1]

    connection.execute("PRAGMA max_page_count=1000000")
    again = await big_trigger(changes, len(answered))
    assert again.status_code == 200
    assert (await changes.client.get(f"/triggers/{again.json()['sig']}")).json() == again.json()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_database_locked_by_another_process_is_503_for_writers_only(changes: Changes, context: Context) -> None:
    assert isinstance(context.database, SqliteDatabase)
    context.database._writer._connection.execute("PRAGMA busy_timeout=50")
    other = sqlite3.connect(context.settings.data_dir / "muniment.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert_unavailable(await changes.trigger())
    assert (await changes.client.get(f"/triggers/{changes.sig}")).status_code == 200
    other.execute("COMMIT")
    other.close()
    assert (await changes.trigger()).status_code == 200
