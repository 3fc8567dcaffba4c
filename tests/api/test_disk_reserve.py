"""A disk that is almost full: what is left is for deactivations and log-ins."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2
import pytest

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, log_in, register
from muniment.protocol.errors import DiskAlmostFull
from muniment.service.app import OPERATIONS
from muniment.service.context import Context
from operator_client import IntentDraft, OperatorClient, log, operator_key, proposal
from runs_world import BLOCK, Relayer, once_body, registered_once, relayer, stopped

GIB = 2**30
OWNER = Wallet(41)


class Usage(NamedTuple):
    """As `shutil.disk_usage` gives it."""

    total: int
    used: int
    free: int


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Leave `free` bytes on a disk of 100 GiB: no test can fill the disk of its machine."""

    def leave(free: int, total: int = 100 * GIB) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total, total - free, free))

    return leave


def check_refused(response: httpx2.Response) -> None:
    assert (response.status_code, response.json()["code"]) == (503, "disk-almost-full")
    assert int(response.headers["retry-after"]) >= 60
    assert "deactivations and log-ins" in response.json()["detail"]


async def test_uploads_are_refused_first(
    client: httpx2.AsyncClient, leave: Callable[[int], None], nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    headers = {"x-api-key": await api_key_of(client, OWNER)}
    leave(2 * GIB - 1)
    async with nothing_stored():
        check_refused(await client.post("/functions", files=Bundle(version="2.0.0").files, headers=headers))
    await register(client, TriggerDraft(cid))
    leave(2 * GIB)
    assert (await client.post("/functions", files=Bundle(version="2.0.0").files, headers=headers)).status_code == 200


async def test_then_creates_are_refused_and_owners_log_in_and_deactivate(
    client: httpx2.AsyncClient, leave: Callable[[int], None], nothing_stored: Callable[[], Any]
) -> None:
    cid = await deploy(client)
    known, new = TriggerDraft(cid, OWNER), TriggerDraft(cid, OWNER, version="2.0.0")
    record = await register(client, known)
    leave(GIB - 1)
    async with nothing_stored():
        check_refused(await client.post("/triggers", json=new.signed()))
        assert await register(client, known) == record, "a registered consent is no new row"
    consent = {"triggerSigs": [record["sig"]], "signature": OWNER.sign_deactivation([record["sig"]])}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    assert await api_key_of(client, Wallet(77)), "also one that was never here"
    token = {"x-auth-token": await log_in(client, OWNER)}
    async with nothing_stored():
        check_refused(await client.post("/users/api-key/rotate", headers=token))
        check_refused(await client.post(f"/users/{OWNER.address}/data", json={"name": "x"}, headers=token))
    leave(GIB // 4 - 1)
    nonce = (await client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    login = {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}
    async with nothing_stored():
        check_refused(await client.post("/users/authenticate", json=login))
    leave(GIB - 1)
    assert (await client.post("/users/authenticate", json=login)).status_code == 200, "the nonce stays good"
    assert (await client.get("/readyz")).json()["notes"] == [
        "the disk is almost full: new records are refused, except deactivations and log-ins"
    ]
    leave(GIB)
    await register(client, new)


async def test_operators_leave_the_reserve_alone(
    client: httpx2.AsyncClient, context: Context, leave: Callable[[int], None], nothing_stored: Callable[[], Any]
) -> None:
    operator = OperatorClient(client, await operator_key(context))
    known = await operator.recorded(IntentDraft(1))
    full = IntentDraft(1).saying(proposals=[proposal()], logs=[log()])
    own, other = Relayer(client, operator.key), await relayer(context, client, "other")
    run = once_body(await registered_once(client), context.clock.now_ms(), blocks=[BLOCK])
    recorded = await own.record(run)
    added = await client.post("/webhooks", json={"url": "https://example.org/"}, headers=operator.headers)
    kept = added.json()["webhook"]["id"]
    following = ok(await client.get("/events")).links["next"]["url"]
    cursor = httpx2.URL(following).params["cursor"]
    leave(GIB - 1)
    async with nothing_stored():
        check_refused(await own.post({**run, **stopped()}))
        check_refused(await other.post(run))
        assert await own.record(run) == recorded, "it is no new row"
        check_refused(await operator.put(IntentDraft(2)))
        check_refused(await operator.put(full))
        check_refused(await operator.append(known, "proposals", proposal()))
        check_refused(await operator.append(known, "logs", log()))
        hook = {"url": "https://example.org/"}
        check_refused(await client.post("/webhooks", json=hook, headers=operator.headers))
        check_refused(await operator.put(IntentDraft(1).saying(status="enqueued")))
        check_refused(await operator.move(known, "enqueued"))
        check_refused(await own.orphan(recorded["hash"], BLOCK))
        for action, body in (("test", {}), ("resume", {}), ("rotate", {}), ("replay", {"cursor": cursor})):
            check_refused(await client.post(f"/webhooks/{kept}/{action}", json=body, headers=operator.headers))
        check_refused(
            await client.patch(f"/webhooks/{kept}", json={"types": ["trigger.created"]}, headers=operator.headers)
        )
    leave(GIB)
    assert (await own.orphan(recorded["hash"], BLOCK)).status_code == 200
    leave(GIB - 1)
    async with nothing_stored():
        check_refused(await own.post(run))
    assert (await client.delete(f"/webhooks/{kept}", headers=operator.headers)).status_code == 204, "it frees rows"


async def test_what_an_operator_has_recorded_may_come_again_and_stores_nothing(
    client: httpx2.AsyncClient, context: Context, leave: Callable[[int], None], nothing_stored: Callable[[], Any]
) -> None:
    operator = OperatorClient(client, await operator_key(context))
    draft = IntentDraft(1).saying(proposals=[proposal()], logs=[log()])
    known = await operator.recorded(draft)
    before = await operator.read(known)
    leave(GIB - 1)
    async with nothing_stored():
        for _ in range(2):
            assert (await operator.put(draft)).json() == before
            assert (await operator.append(known, "proposals", proposal())).json() == before["proposals"][0]
            assert (await operator.append(known, "logs", log())).json() == before["logs"][0]
            assert (await operator.move(known, "created")).json() == before
            (offer,) = before["proposals"]
            assert (await operator.move(known, offer["status"], proposal=offer["hash"])).json() == before


@pytest.mark.one_engine
async def test_on_a_small_disk_the_reserve_is_an_eighth_of_it(
    client: httpx2.AsyncClient, leave: Callable[..., None]
) -> None:
    cid = await deploy(client)
    leave(2**24 - 1, total=2**27)
    check_refused(await client.post("/triggers", json=TriggerDraft(cid).signed()))
    assert (await client.get("/readyz")).status_code == 200, "owners find the process"
    leave(2**24, total=2**27)
    await register(client, TriggerDraft(cid))


def test_whatever_adds_rows_for_a_stranger_or_an_operator_says_that_it_is_refused() -> None:
    refused = {f"{each.method} {each.path}" for each in OPERATIONS if DiskAlmostFull in each.refuses}
    written = {f"{each.method} {each.path}" for each in OPERATIONS if each.method != "GET"}
    assert written - refused == {
        "POST /triggers/deactivate", "POST /users/nonce",
        # Nothing is stored.
        "POST /triggers/sign-params", "POST /triggers/deactivate/sign-params", "POST /triggers/preview",
        # Rows are removed.
        "DELETE /webhooks/{id}",
    }  # fmt: skip
