"""PostgreSQL that refuses: read-only, full, without a free connection, locked; 503, and later it works."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import asyncpg
import httpx2
import pytest

from answers import answered, ok
from builders import Bundle, Wallet, api_key_of, register
from crashing import Site
from faults import OURS, Draft, assert_unavailable, configure, end_our_sessions, limited_files
from loading import DEADLINE, until_it_is_ready
from operator_client import IntentDraft, OperatorClient

pytestmark = pytest.mark.long


async def until_not_ready(caller: httpx2.AsyncClient, why: str) -> None:
    """Which a process must say within five seconds; a busy machine may need longer."""
    async with asyncio.timeout(60):
        while (refused := await caller.get("/readyz")).status_code == 200:
            await asyncio.sleep(0.05)
    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")
    assert why in refused.json()["detail"]


async def test_on_a_read_only_server_writes_are_503_and_reads_are_served(
    caller: httpx2.AsyncClient, admin: Any, draft: Draft, operator_key: str
) -> None:
    trigger, bundle = await register(caller, draft()), Bundle(version="3.0.0")
    headers, new, intent = {"x-api-key": await api_key_of(caller, Wallet())}, draft().signed(), IntentDraft(7, DEADLINE)
    operator = OperatorClient(caller, operator_key)
    consent = {"triggerSigs": [trigger["sig"]], "signature": Wallet(6).sign_deactivation([trigger["sig"]])}
    await configure(admin, "ALTER SYSTEM SET default_transaction_read_only = on")
    await end_our_sessions(admin)  # each hears of it in its own time, a new one at once
    try:
        await assert_unavailable(
            caller.post("/triggers", json=new), caller.post("/triggers/deactivate", json=consent), operator.put(intent)
        )
        await assert_unavailable(
            caller.post("/functions", files=bundle.files, headers=headers), code="storage-unavailable"
        )
        assert (await caller.post("/triggers", json=new)).json()["detail"] == "the database is read-only"
        await until_not_ready(caller, "the database is read-only")
        assert ok(await caller.get(f"/triggers/{trigger['sig']}")).json() == trigger
        assert (await caller.get(f"/triggers/{new['sig']}")).status_code == 404
        assert (await caller.get(f"/intents/{intent.hash}")).status_code == 404
    finally:
        await admin.execute("SET default_transaction_read_only = off")
        await configure(admin, "ALTER SYSTEM RESET default_transaction_read_only")
        await end_our_sessions(admin)
    await until_it_is_ready(caller)
    await answered(caller, "POST", "/triggers", json=new)
    assert (await caller.post("/triggers/deactivate", json=consent)).status_code == 204
    assert (await operator.put(intent)).status_code == 200
    assert (await caller.post("/functions", files=bundle.files, headers=headers)).status_code == 200


async def test_when_files_cannot_grow_creates_are_503_until_they_can(
    site: Site, caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    """A file-size limit is what PostgreSQL itself takes for a full disk; the log, whose files are as large, goes on."""
    kept = await register(caller, draft())
    await admin.execute(FILL)
    await admin.execute("DELETE FROM triggers WHERE protocol = 'filler'")
    await admin.execute("DELETE FROM events WHERE kind = 1 AND subject NOT IN (SELECT sig FROM triggers)")
    with limited_files(site, 16 * 1024 * 1024):
        refused = [body for body in [draft().signed() for _ in range(40)] if await is_refused(caller, body)]
        assert len(refused) > 10  # the last page took the others
        assert ok(await caller.get(f"/triggers/{kept['sig']}")).json() == kept
        assert (await caller.get(f"/triggers/{refused[0]['sig']}")).status_code == 404
        await until_it_is_ready(caller)
    for body in refused:
        assert (await caller.post("/triggers", json=body)).status_code == 200
    assert "all signatures and hashes match" in site.command("verify")


# More than sixteen MiB of rows that are not vacuumed away. Their values are not looked at.
FILL = """INSERT INTO triggers (sig, signer, digest, function_digest, protocol, end_date_ms, created_at_ms, record)
    SELECT substring(decode(repeat(md5('s' || n), 5), 'hex') FROM 1 FOR 65), decode(md5('w') || '00000000', 'hex'),
        decode(repeat(md5('d' || n), 2), 'hex'), decode(repeat(md5('f'), 2), 'hex'), 'filler', 0, 0,
        (SELECT string_agg(md5(n || '/' || m), '') FROM generate_series(1, 50) m)
    FROM generate_series(1, 9500) n"""


async def is_refused(caller: httpx2.AsyncClient, body: dict[str, Any]) -> bool:
    response = await caller.post("/triggers", json=body)
    if response.status_code == 503:
        assert response.json()["code"] == "database-unavailable"
        assert int(response.headers["retry-after"]) > 0
    else:
        assert response.status_code == 200
    return response.status_code == 503


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # refused by the server, the driver
async def test_while_others_use_up_the_connections_requests_are_503(
    site: Site, caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    held: list[Any] = []
    driver: Any = asyncpg
    ours = f"SELECT count(*) FROM pg_stat_activity WHERE {OURS}"
    while not held or await admin.fetchval(ours):  # until the service has none that it made in between
        await end_our_sessions(admin)
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await driver.connect(site.environment["MUNIMENT_DATABASE_URL"]))
    body = draft().signed()
    await assert_unavailable(*(caller.post("/triggers", json=body) for _ in range(20)), caller.get("/readyz"))
    await assert_unavailable(caller.get(f"/triggers/{body['sig']}"))
    for connection in held:
        await connection.close()
    print(f"ready {await until_it_is_ready(caller):.2f} s after connections were free")
    assert (await caller.post("/triggers", json=body)).status_code == 200
    gc.collect()  # leaves a socket to the collector


async def test_a_table_that_another_session_locks_is_503_and_the_others_are_served(
    caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    bodies = [draft().signed() for _ in range(20)]
    async with admin.transaction():
        await admin.execute("LOCK TABLE triggers IN ACCESS EXCLUSIVE MODE")
        reads = (caller.get(f"/triggers/{body['sig']}") for body in bodies)
        await assert_unavailable(*(caller.post("/triggers", json=body) for body in bodies), *reads)
        assert (await caller.get("/functions")).status_code == 200
        await api_key_of(caller, Wallet(7))
        await until_it_is_ready(caller)
    answers = await asyncio.gather(*(caller.post("/triggers", json=body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_row_that_another_session_locks_is_503_and_its_neighbours_are_written(
    caller: httpx2.AsyncClient, admin: Any, draft: Draft
) -> None:
    sigs = [(await register(caller, draft()))["sig"] for _ in range(2)]
    consents = [{"triggerSigs": [sig], "signature": Wallet(6).sign_deactivation([sig])} for sig in sigs]
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM triggers WHERE sig = $1 FOR UPDATE", bytes.fromhex(sigs[0][2:]))
        held, free = (caller.post("/triggers/deactivate", json=consent) for consent in consents)
        answers = await asyncio.gather(free, caller.post("/triggers", json=draft().signed()), assert_unavailable(held))
        assert [answer.status_code for answer in answers[:2]] == [204, 200]
        assert "deactivateSig" not in ok(await caller.get(f"/triggers/{sigs[0]}")).json()
    assert (await caller.post("/triggers/deactivate", json=consents[0])).status_code == 204
