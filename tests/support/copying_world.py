"""For tests of `muniment database copy`: a registry with every kind of row, and all its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString, Self, TypeVar

import httpx2
from click.testing import CliRunner, Result

from answers import ok, target_of
from builders import Bundle, TriggerDraft, Wallet, cron, deploy, event, log_in, once, register
from conftest import NOW_MS, Clock
from muniment.cli.main import main
from muniment.protocol.evm.address import Address
from muniment.protocol.runs.types import NewRun
from muniment.protocol.users.types import Email
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.resources import operators
from muniment.service.resources.triggers.store import mark_ended
from muniment.service.resources.users import store as users
from muniment.service.resources.webhooks import store
from muniment.service.resources.webhooks.store import Attempt, DeadLetter
from muniment.service.resources.webhooks.types import WebhookId
from muniment.service.running.settings import Settings
from muniment.service.storage import open_database
from muniment.service.storage.database import Database, Row, Transaction
from muniment.service.storage.registry_copy import TABLES
from operator_client import (
    HEX32,
    IntentDraft,
    OperationsDraft,
    OperatorClient,
    log,
    operations_proposal,
    operator_key,
    proposal,
)
from postgres import Cluster
from run_bodies import body_of, once_run_of
from without_server import InProcess

T = TypeVar("T")

# Fields of one answer: its number, its time, and what the client may still ask.
OF_THIS_ANSWER = {"x-request-id", "date", "ratelimit"}
OWNERS = (Wallet(201), Wallet(202))
INPUTS = {"limit": "uint256"}
# Rows as the watcher and an import leave them.
FACTS: tuple[tuple[LiteralString, tuple[object, ...]], ...] = (
    ("INSERT INTO executions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
     (8453, 17, b"\x01" * 32, b"\x02" * 32, 3, b"\x03" * 20, b"\x04" * 32, "succeeded")),
    ("INSERT INTO executions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
     (10, 2**40, b"\x05" * 32, b"\x06" * 32, -1, b"\x03" * 20, b"\x07" * 32, "failed")),
    ("INSERT INTO chain_progress VALUES (?, ?, ?)", (8453, b"\x03" * 20, 18)),
    ("INSERT INTO chain_blocks VALUES (?, ?, ?)", (8453, 17, b"\x01" * 32)),
    ("INSERT INTO tlog_epochs VALUES (1, 'a', 'k', 'frozen', '', 'copied', 257, ?, 2, 'note', 2, 7)",
     (bytes(32),)),
    ("INSERT INTO tlog_cursors VALUES (1, 2, 9, ?)", (9,)),
    ("INSERT INTO tlog_tail VALUES (1, 256, ?)", (b"entry",)),
    ("INSERT INTO tlog_tiles VALUES (1, -1, 0, ?)", (b"bundle",)),
    ("INSERT INTO tlog_runs VALUES (1, 2, 3, 1, ?)", (250,)),
    ("INSERT INTO leases VALUES (?, ?, ?)", ("watch", "somebody", NOW_MS + 1)),
    ("INSERT INTO time_differences VALUES (?, ?)", (2**20, NOW_MS)),
    ("INSERT INTO forgotten_nonces VALUES (?, ?)", (1, 7)),
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A database and a data directory, which two places may share."""

    settings: Settings

    @classmethod
    def at(cls, url: str, data_dir: Path) -> Self:
        return cls(Settings(data_dir=data_dir, database_url=url, log_level="warning"))

    @property
    def url(self) -> str:
        return self.settings.database_url

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")

    @property
    def blocks(self) -> str:
        """Its block store, as an argument of `muniment blocks copy`."""
        return "file:" if self.is_sqlite else self.url

    def do(self, work: Callable[[Context], Awaitable[T]], *, migrates: bool = True) -> T:
        """The result of `work`, outside of an event loop."""

        async def run() -> T:
            async with opened(self, migrates=migrates) as context:
                return await work(context)

        return asyncio.run(run())

    def rows(self) -> dict[str, list[Row]]:
        """Every copied row, by table."""

        async def read() -> dict[str, list[Row]]:
            async with self.database() as database:
                return {
                    each.name: await database.fetch(f"SELECT * FROM {each.name} ORDER BY {each.order}")
                    for each in TABLES
                }

        return asyncio.run(read())

    def change(self, *statements: tuple[LiteralString, tuple[object, ...]]) -> None:
        """Run statements; each must change a row."""

        async def change() -> None:
            async with self.database() as database:
                await database.migrate()  # on SQLite this waits for other writers
                for sql, values in statements:
                    assert await database.write(lambda tx, sql=sql, values=values: tx.execute(sql, values))

        asyncio.run(change())

    @asynccontextmanager
    async def database(self) -> AsyncGenerator[Database]:
        """The database alone: a context costs five times as much."""
        made = open_database(self.url, data_dir=self.settings.data_dir)
        try:
            yield made
        finally:
            await made.close()


@asynccontextmanager
async def opened(place: Place, clock: Clock | None = None, *, migrates: bool = True) -> AsyncGenerator[Context]:
    context = build_context(place.settings, now_ms=clock or Clock(NOW_MS + 20_000_000))
    try:
        if migrates:  # on SQLite this waits for other writers
            await context.database.migrate()
        yield context
    finally:
        await context.outgoing.close()
        await context.database.close()


@asynccontextmanager
async def served(place: Place, clock: Clock | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the database without migrating it: a migration would renumber new rows."""
    async with opened(place, clock, migrates=False) as context:
        transport = InProcess(Application(context))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


async def new_database(cluster: Cluster, name: str, data_dir: Path) -> Place:
    """A new PostgreSQL database with every migration."""
    return Place.at(await cluster.create_migrated(name), data_dir)


@dataclass(frozen=True)
class Filled:
    """Credentials and cursors of the clients of a filled registry."""

    place: Place
    clock: Clock
    cid: str
    token: str
    api_key: str
    api_key_before: str
    operator_key: str
    revoked_operator_key: str
    used_login: dict[str, str]
    triggers: list[dict[str, Any]]
    deactivated: list[dict[str, Any]]
    intents: list[str]
    runs: list[str]

    def paths(self) -> list[str]:
        """Paths of GET requests that show every record, through every filter."""
        a, b = (wallet.address for wallet in OWNERS)
        middle = NOW_MS + 12_000
        listed = [
            f"/{what}?limit=100&{more}"
            for what in ("triggers", "functions", "intents", "executions")
            for more in ("sort=-1", "sort=1", "sort=1&offset=3", "offset=2")
        ]
        filters = {
            "triggers": [
                f"signer={a}", f"signer={b}&active=true", f"functionCid={self.cid}", "active=true", "active=false",
                f"createdAfter={middle}", f"createdBefore={middle}&sort=1", f"sigs={self.triggers[1]['sig']}",
            ],
            "functions": ["name=tr", f"creator={a}", f"creator={b}&sort=1", f"cids={self.cid}"],
            "intents": [
                "status=created", "status=succeeded&sort=1", "status=expired", "op=2", f"createdAfter={middle}",
                f"createdBefore={middle}", f"user={Wallet(71).address}", "generation=all", "generation=2&op=4",
            ],
            "executions": ["result=nothing", f"relayer={Wallet(203).address}", f"triggerSig={self.triggers[2]['sig']}"],
        }  # fmt: skip
        filtered = [f"/{what}?limit=100&{each}" for what, some in filters.items() for each in some]
        one = [f"/triggers/{body['sig']}" for body in self.triggers] + [f"/intents/{name}" for name in self.intents]
        one += [f"/executions/{name}" for name in self.runs]
        content = [f"/functions/{self.cid}{part}" for part in ("", "/manifest", "/wasm")]
        content += [f"/ipfs/{self.cid}/manifest.json", f"/ipfs/{self.cid}?format=car"]
        mine = ["/users/api-key", f"/users/{a}/data", "/.well-known/jwks.json", "/readyz"]
        return [*listed, *filtered, *one, *content, *mine]

    async def answers(self, client: httpx2.AsyncClient) -> dict[str, tuple[list[tuple[str, str]], bytes]]:
        """Header fields and body of every GET, without those that differ for each answer."""
        given: dict[str, tuple[list[tuple[str, str]], bytes]] = {}
        for path in self.paths():
            answer = await client.get(path, headers={"x-auth-token": self.token})
            fields = [(name, value) for name, value in answer.headers.items() if name not in OF_THIS_ANSWER]
            assert answer.status_code == 200, (path, answer.text)
            given[path] = (fields, answer.content)
        return given


async def read_page(client: httpx2.AsyncClient, target: str) -> tuple[list[Any], str | None]:
    """Rows of a page, and the target of the next page."""
    answer = await client.get(target)
    assert answer.status_code == 200, answer.text
    return answer.json(), target_of(answer)


async def walk(client: httpx2.AsyncClient, target: str) -> list[Any]:
    """Every row from `target` on, along the `next` links."""
    rows: list[Any] = []
    following: str | None = target
    while following is not None:
        page, following = await read_page(client, following)
        if not page:
            break
        rows += page
    return rows


async def fill(place: Place) -> Filled:
    """Fill an empty registry over HTTP; time advances between writes."""
    clock = Clock(NOW_MS)
    async with opened(place, clock) as context:
        transport = InProcess(Application(context))

        async def tick(_: httpx2.Request) -> None:
            clock.advance(seconds=0.25)

        async with httpx2.AsyncClient(
            transport=transport, base_url="http://test", event_hooks={"request": [tick]}
        ) as client:
            return await _fill(place, context, client, clock)


async def _fill(place: Place, context: Context, client: httpx2.AsyncClient, clock: Clock) -> Filled:
    cid, triggers, deactivated = await _fill_triggers(client)
    token, api_key_before, api_key, used_login = await _fill_users(client, context)
    operator = OperatorClient(client, await operator_key(context))
    revoked = await operator_key(context, "gone")
    await context.database.write(lambda tx: operators.revoke(tx, "gone", clock.now_ms))
    intents = await _fill_intents(operator)
    runs = await _fill_runs(client, context, [triggers[n]["sig"] for n in (2, 7, 12)])
    await _fill_webhooks(operator, context)
    for sql, values in FACTS:
        await context.database.write(lambda tx, sql=sql, values=values: tx.execute(sql, values))
    clock.advance(hours=2)  # some have ended by now, and half of these were swept
    await context.database.write(lambda tx: mark_ended(tx, NOW_MS + 3_600_000))
    return Filled(
        place, clock, cid, token, api_key, api_key_before, operator.key, revoked, used_login, triggers, deactivated,
        intents, runs,
    )  # fmt: skip


async def _fill_runs(client: httpx2.AsyncClient, context: Context, sigs: list[str]) -> list[str]:
    """Runs of triggers that were due once: one by two operators, a conflict, and one whose block was dropped."""
    keys = [await operator_key(context, f"relayer-{n}", Wallet(203 + n).address) for n in range(2)]
    made: list[str] = []

    async def record(run: NewRun, key: str) -> str:
        answer = await client.post("/executions", json=body_of(run), headers={"x-operator-key": key})
        assert answer.status_code == 200, answer.text
        return answer.json()["hash"]

    for n, sig in enumerate(sigs):
        trigger = ok(await client.get(f"/triggers/{sig}")).json()
        outputs = [{"hash": f"0x{n:062x}ab"}] if n == 1 else []
        reason = {"reason": {"code": "abort", "text": "“dear”"}} if n == 2 else {}
        result = ("nothing", "intents", "stopped")[n]
        run = once_run_of(trigger, result=result, outputs=outputs, **reason)
        made.append(await record(run, keys[0]))
        if n != 1:
            await record(run, keys[1])
        if n == 2:
            block = {"chainId": run.blocks[0].chain_id, "blockHash": run.blocks[0].hash}
            path = f"/executions/{made[-1]}/orphan"
            assert (await client.post(path, json=block, headers={"x-operator-key": keys[0]})).status_code == 200
            made.append(await record(once_run_of(trigger), keys[1]))
    return made


async def _fill_users(client: httpx2.AsyncClient, context: Context) -> tuple[str, str, str, dict[str, str]]:
    owner = OWNERS[0]
    token = await log_in(client, owner)
    mine = {"x-auth-token": token}
    nonce = ok(await client.post("/users/nonce", json={"address": owner.address})).json()["nonce"]
    used_login = {"address": owner.address, "signature": owner.sign_text(nonce)}
    assert (await client.post("/users/authenticate", json=used_login)).status_code == 200
    profile = {"name": "Zoë “0” ✓", "intendedUse": "Rebalancing"}
    assert (await client.post(f"/users/{owner.address}/data", json=profile, headers=mine)).status_code == 200
    address, email = Address.parse(owner.address), Email.parse("zoe@example.org")
    await context.database.write(lambda tx: users.set_email(tx, address, email))
    before = ok(await client.get("/users/api-key", headers=mine)).json()["apiKey"]
    rotated = ok(await client.post("/users/api-key/rotate", json={"graceSeconds": 0}, headers=mine))
    return token, before, rotated.json()["apiKey"], used_login


async def _fill_webhooks(operator: OperatorClient, context: Context) -> None:
    body = {"url": "https://hooks.example.org/?of=all", "filters": {"owner": [OWNERS[0].address]}}
    answer = await operator.client.post("/webhooks", json=body, headers={"x-operator-key": operator.key})
    hook_id = WebhookId.parse(answer.json()["webhook"]["id"]).raw

    async def happen(tx: Transaction) -> None:
        attempts = [Attempt(NOW_MS, None, None, 200, 31, "delivered"), Attempt(NOW_MS, 1, 2, None, 9, "timeout")]
        await store.add_attempts(tx, hook_id, attempts)
        await store.add_dead_letter(tx, hook_id, DeadLetter(1, 2, NOW_MS, 422))

    await context.database.write(happen)


async def _fill_triggers(client: httpx2.AsyncClient) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    a, b = OWNERS
    cid = await deploy(client, Bundle(inputs=INPUTS), a)
    assert await deploy(client, Bundle(inputs=INPUTS), b) == cid
    other = await deploy(client, Bundle("Other"), b)
    configs = [cron(), event(), once(), cron(endDate=NOW_MS + 3_600_000), cron(endDate=NOW_MS + 4_000_000)]
    drafts = [
        TriggerDraft(cid, wallet, INPUTS, version=f"1.0.{n}", input={"limit": str(n)}, config=configs[n % 5])
        if n % 3
        else TriggerDraft(other, wallet, version=f"1.0.{n}", config=configs[n % 5])
        for n in range(24)
        for wallet in [OWNERS[n % 2]]
    ]
    triggers = [draft.signed() for draft in drafts]
    for draft in drafts:
        await register(client, draft)
    for sigs, as_text in (([triggers[0]["sig"], triggers[4]["sig"]], False), ([triggers[2]["sig"]], True)):
        consent = {"triggerSigs": sigs, "signature": a.sign_deactivation(sigs, as_text=as_text)}
        assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    return cid, triggers, [triggers[0], triggers[2], triggers[4]]


async def _fill_intents(operator: OperatorClient) -> list[str]:
    intents = [await operator.recorded(IntentDraft(n, members={"op": 1 + n % 2})) for n in range(12)]
    for of in intents[::2]:
        assert (await operator.append(of, "proposals", proposal(2))).status_code == 200
        assert (await operator.append(of, "logs", log())).status_code == 200
        for status in ("enqueued", "submitted"):
            assert (await operator.move(of, status)).status_code == 200
        assert (await operator.move(of, "succeeded", transactionHash=HEX32)).status_code == 200
    for n in range(4):
        of = await operator.recorded(OperationsDraft(n))
        await operator.append(of, "proposals", operations_proposal(n))
        await operator.append(of, "logs", log(n))
        intents.append(of)
    short = IntentDraft(50, deadline=NOW_MS // 1000 + 600)
    return [*intents, await operator.recorded(short)]


def run(*arguments: str, data: Path, **environ: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data-dir", str(data)], env=environ)


def copy(source: Place, target: Place, *arguments: str) -> Result:
    """Run `muniment database copy`; its outcome."""
    return run("database", "copy", source.url, target.url, *arguments, data=target.settings.data_dir)


def copy_all(source: Place, target: Place, *arguments: str) -> Result:
    """Copy blocks, then the rest, which must succeed."""
    if source.blocks != target.blocks:
        result = run("blocks", "copy", source.blocks, target.blocks, data=target.settings.data_dir)
        assert result.exit_code == 0, result.output
    result = copy(source, target, *arguments)
    assert result.exit_code == 0, result.output
    return result
