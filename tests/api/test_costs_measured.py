"""What requests are charged, beside the CPU time that they take: in single reads, which cost one unit."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, LiteralString

import httpx2
import pytest
from intents_world import intent_body, log_body, proposal_body, record
from tlog_world import KEY, turn

from answers import ok
from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, log_in, once, register
from conftest import Clock
from feed_writing import add_events
from muniment.service.app import OPERATIONS, Application
from muniment.service.console.pages import OPERATIONS as CONSOLE
from muniment.service.context import Context
from muniment.service.http.reply import Streamed
from muniment.service.http.request import NO_BODY, Body, Request
from muniment.service.running.settings import Settings
from operator_client import operator_key
from runs_world import Relayer, hash_of, once_body, with_intents

pytestmark = [pytest.mark.one_engine, pytest.mark.timed, pytest.mark.spoils_events]

# Triggers in the table; the longest walk by offset that is served.
ROWS: Final = 100_200
ALICE = Wallet(1)
# Reads of each kind, and writes that come together, twice; the least counts, since others on the machine only ever add
# to it.
READS, TOGETHER = 12, 40
READ = "GET /triggers/{sig}"
# A unit is the time that a read took when units were set. A read is cheaper now: in `make bench` its ratio to the peer
# was 0.96 then, and is 1.25.
READS_PER_UNIT: Final = 1.25
# Measurements of a request that seems too dear.
ATTEMPTS: Final = 5
# Not in the table: operators have no limit; one waits for other servers, and streams are charged while they go on.
OPERATORS = {
    "PUT /intents/{hash}", "POST /intents/{hash}/proposals", "POST /intents/{hash}/logs", "POST /intents/{hash}/status",
    "POST /executions", "POST /executions/{hash}/orphan", "GET /intents/{hash}/moves", "GET /metrics",
    "GET /webhooks", "POST /webhooks", "GET /webhooks/{id}", "PATCH /webhooks/{id}", "DELETE /webhooks/{id}",
    "POST /webhooks/{id}/rotate", "POST /webhooks/{id}/replay", "POST /webhooks/{id}/resume",
    "POST /webhooks/{id}/test", "GET /webhooks/{id}/attempts",
}  # fmt: skip
ELSEWHERE = {"GET /users/tokens", "GET /events/stream"}
# A process makes so many checks a second and no more, whoever asks.
CHECKS = {"GET /readyz"}
# The console: files that are content as any other, under the name of a release.
FILES = {"GET /console/assets/{release}/{name}", "GET /console/assets/{release}/{folder}/{name}"}


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", database_url=database_url, log_level="error",
        rate_limit_client="1000000/10s", rate_limit_login="off", rate_limit_stop="off", rate_limit_owner="off",
        tlog_name="registry.example", tlog_key=KEY,
    )  # fmt: skip


class Sent:
    """A body that arrived with its head."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self) -> tuple[bytes, bool]:
        return self._data, False

    async def wait(self) -> None:
        """It is there."""


@dataclass(frozen=True)
class Asked:
    """A request of an operation, with its dearest parameters. `bodies` has one for each call, or one for all.

    Bodies that are good once come in several `parts`, one for each measurement.
    """

    operation: str
    target: str
    bodies: Sequence[Any] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 200
    parts: int = 1

    def part(self, number: int) -> Asked:
        size = len(self.bodies) // self.parts
        at = size * (number % self.parts)
        return replace(self, bodies=self.bodies[at : at + size])

    def request(self, number: int) -> Request:
        path, _, query = self.target.partition("?")
        named = {name.encode(): value.encode() for name, value in self.headers.items()}
        body: Body = NO_BODY
        if self.bodies:
            given = self.bodies[number % len(self.bodies)]
            data = given if isinstance(given, bytes) else json.dumps(given).encode()
            named = {b"content-type": b"application/json", b"content-length": b"%d" % len(data), **named}
            body = Sent(data)
        method = self.operation.partition(" ")[0]
        return Request(
            method, path, query.encode(), [*named.items()], body, peer="192.0.2.1", named=named, head_bytes_max=2_000
        )


async def ask(app: Application, asked: Asked, number: int) -> None:
    """Ask once, and take all of the answer."""
    reply = await app.respond(asked.request(number))
    assert reply.status == asked.status, (asked.operation, asked.target, getattr(reply, "body", b""))
    if isinstance(reply, Streamed):
        async for _ in reply.chunks:
            pass


async def measure(app: Application, asked: Asked) -> tuple[float, float]:
    """CPU seconds of a request, the least of some, and the units that one was charged.

    Writes come together, as those of a flood do: the commit is not the work of one of them.
    """
    limiter, seconds, units = app.context.limiter, list[float](), list[float]()
    together = TOGETHER if len(asked.bodies) == 1 else max(len(asked.bodies) // 2, 1)
    for at in range(0, 2 * together if asked.bodies else READS, together):
        charged, started = limiter.units_charged("client"), time.process_time()
        if together == 1:
            await ask(app, asked, at)
        else:
            await asyncio.gather(*(ask(app, asked, number) for number in range(at, at + together)))
        seconds.append((time.process_time() - started) / together)
        units.append((limiter.units_charged("client") - charged) / together)
    return min(seconds), min(units)


_COPIES: LiteralString = """INSERT INTO triggers
  (sig, signer, digest, function_digest, protocol, live, deactivated, end_date_ms, created_at_ms, record)
  WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
  SELECT CAST(randomblob(64) || x'1b' AS BLOB), signer, randomblob(32), function_digest, protocol,
         n % 2, 1 - n % 2, end_date_ms, created_at_ms, record
  FROM n CROSS JOIN (SELECT * FROM triggers ORDER BY seq DESC LIMIT 1)"""


async def seeded(context: Context, client: httpx2.AsyncClient, clock: Clock) -> list[Asked]:
    """A registry that looks lived in, and the requests for each operation."""
    cid = await deploy(client, Bundle(inputs={"note": "string"}))
    draft = TriggerDraft(cid, ALICE, {"note": "string"}, input={"note": "x" * 300})
    sigs = [(await register(client, replace(draft, version=f"0.0.{n}")))["sig"] for n in range(50 * 12)]
    sig = (await register(client, draft))["sig"]
    await turn(context, clock)
    await context.database.write(lambda tx: tx.execute(_COPIES, (ROWS,)))
    start = (await client.get("/events")).headers["link"].partition("cursor=")[2].partition(">")[0]
    await add_events(context.settings.data_dir, "", 6_000)
    full = intent_body(1, proposals=[proposal_body(n) for n in range(50)], logs=[log_body(n) for n in range(50)])
    hashes = await record(context, full, *(intent_body(n) for n in range(2, 120)))
    own = Relayer(client, await operator_key(context))
    due = await register(client, replace(draft, version="9.0.0", config=once()))
    runs = [once_body(due, clock.now_ms, **with_intents(f"0x{n:064x}")) for n in range(8)]
    for run in runs:
        await own.record(run)
    token, key = {"x-auth-token": await log_in(client, ALICE)}, {"x-api-key": await api_key_of(client, ALICE)}
    listed = [sigs[50 * n :][:50] for n in range(12)]
    ended = [{"triggerSigs": each, "signature": ALICE.sign_deactivation(each)} for each in listed]
    asked = {"functionCid": cid, "version": "1.0.0", "input": draft.input, "config": draft.config}
    logins = [await login_of(client, Wallet(200 + n)) for n in range(2 * TOGETHER * ATTEMPTS)]
    new = [replace(draft, version=f"2.0.{n}").signed() for n in range(2 * TOGETHER)]
    long = [replace(draft, version=f"3.0.{n}", input={"note": "x" * 20_000}).signed() for n in range(2 * TOGETHER)]
    forged = {
        **new[0],
        "description": "other",
        "typedData": {**new[0]["typedData"], "values": long[0]["typedData"]["values"]},
    }
    profile = f"/users/{ALICE.address}/data"
    signature = ended[0]["signature"]
    return [
        Asked("GET /triggers", "/triggers?limit=1"),
        Asked("GET /triggers", "/triggers?limit=100"),
        Asked("GET /triggers", "/triggers?limit=100&offset=100000"),
        Asked("GET /triggers", "/triggers?offset=100000&active=false&sort=1"),
        Asked("GET /triggers", "/triggers?offset=1000"),
        Asked("GET /triggers", "/triggers?limit=100&sigs=" + ",".join(sigs[:100])),
        Asked("GET /triggers/{sig}", f"/triggers/{sig}"),
        Asked("POST /triggers", "/triggers", new),
        Asked("POST /triggers", "/triggers", new),
        Asked("POST /triggers", "/triggers", long),
        Asked("POST /triggers", "/triggers", [forged], status=400),
        Asked("POST /triggers/sign-params", "/triggers/sign-params", [asked]),
        Asked("POST /triggers/preview", "/triggers/preview", [asked]),
        Asked(
            "POST /triggers/preview",
            "/triggers/preview",
            [{**asked, "config": {**draft.config, "schedule": "0 0 29 2 1"}}],
        ),
        Asked("POST /triggers/deactivate", "/triggers/deactivate", ended, status=204),
        Asked("POST /triggers/deactivate", "/triggers/deactivate", ended, status=204),
        Asked("GET /deactivations/{signature}", f"/deactivations/{signature}"),
        Asked(
            "POST /triggers/deactivate/sign-params", "/triggers/deactivate/sign-params", [{"triggerSigs": sigs[:100]}]
        ),
        Asked("GET /functions", "/functions?limit=100"),
        Asked("GET /functions", "/functions?name=hello"),
        uploaded([Bundle(version=f"2.0.{n}") for n in range(12)], key),
        uploaded([Bundle(version=f"3.0.{n}", wasm=large(n)) for n in range(12)], key),
        uploaded([Bundle(version="no", wasm=large(0))], key, 400),
        Asked("GET /executions", "/executions?limit=1"),
        Asked("GET /executions", "/executions?limit=100"),
        Asked("GET /executions", f"/executions?latest=1&triggerSigs={','.join(sigs[:100])}"),
        Asked("GET /executions/{hash}", f"/executions/{hash_of(runs[0])}"),
        Asked("GET /intents", "/intents?limit=1"),
        Asked("GET /intents", "/intents?limit=100&generation=all"),
        Asked("GET /intents/{hash}", f"/intents/{hashes[0]}"),
        Asked("GET /functions/{cid}", f"/functions/{cid}"),
        Asked("GET /functions/{cid}/manifest", f"/functions/{cid}/manifest"),
        Asked("GET /functions/{cid}/wasm", f"/functions/{cid}/wasm"),
        Asked("GET /ipfs/{cid}", f"/ipfs/{cid}?format=car"),
        Asked("GET /ipfs/{cid}", f"/ipfs/{cid}?format=raw"),
        Asked("GET /ipfs/{cid}/{name}", f"/ipfs/{cid}/function.wasm?format=car"),
        Asked("GET /ipfs/{cid}/{name}", f"/ipfs/{cid}/manifest.json"),
        Asked("GET /events", "/events"),
        Asked("GET /events", f"/events?cursor={start}&limit=500"),
        Asked("GET /events", f"/events?cursor={start}&limit=1"),
        Asked("GET /events", f"/events?cursor={start}&limit=1&owner={Wallet(99).address}"),
        Asked("GET /triggers/{sig}/proof", f"/triggers/{sig}/proof"),
        Asked("GET /functions/{cid}/proof", f"/functions/{cid}/proof"),
        Asked("GET /deactivations/{signature}/proof", f"/deactivations/{signature}/proof", status=404),
        Asked("POST /users/nonce", "/users/nonce", [{"address": ALICE.address}]),
        Asked("POST /users/authenticate", "/users/authenticate", logins, parts=ATTEMPTS),
        Asked("POST /users/authenticate", "/users/authenticate", [logins[0]], status=401),
        Asked("GET /users/api-key", "/users/api-key", headers=token),
        Asked("POST /users/api-key/rotate", "/users/api-key/rotate", [{}], headers=token),
        Asked("GET /users/{address}/data", profile, headers=token),
        Asked("POST /users/{address}/data", profile, [{"name": "A"}], headers=token),
        Asked("GET /.well-known/jwks.json", "/.well-known/jwks.json"),
        Asked("GET /healthz", "/healthz"),
        Asked("GET /openapi.json", "/openapi.json"),
        Asked("GET /docs", "/docs"),
        Asked("GET /errors/{code}", "/errors/overloaded"),
        Asked("GET /log", "/log"),
        Asked("GET /log/{epoch}/checkpoint", "/log/1/checkpoint"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/0/000.p/1"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/0/001.p/240"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/entries/000.p/1"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/entries/000.p/255"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/entries/001.p/240"),
        Asked("GET /log/{epoch}/tile/{tile}", "/log/1/tile/entries/000"),
        *(Asked(f"GET {path}", path) for path in ("/console", "/console/deploy", "/console/triggers/new")),
        *(Asked(f"GET {path}", path) for path in ("/console/account", "/console/service", "/robots.txt")),
        Asked("GET /console/account", f"/console/account?address={ALICE.address}"),
        Asked("GET /console/find", f"/console/find?q={sig}", status=303),
        Asked("GET /console/addresses/{address}", f"/console/addresses/{ALICE.address}"),
        Asked("GET /console/functions", "/console/functions"),
        Asked("GET /console/functions/{cid}", f"/console/functions/{cid}"),
        Asked("GET /console/triggers", "/console/triggers?offset=100000&active=false&sort=1"),
        Asked("GET /console/triggers/{sig}", f"/console/triggers/{sig}"),
        Asked("GET /console/runs", "/console/runs"),
        Asked("GET /console/runs/{hash}", f"/console/runs/{hash_of(runs[0])}"),
        Asked("GET /console/intents", "/console/intents"),
        Asked("GET /console/intents/{hash}", f"/console/intents/{hashes[0]}"),
        Asked("GET /console/log", "/console/log"),
        Asked("GET /console/triggers/{sig}/proof", f"/console/triggers/{sig}/proof"),
        Asked("GET /console/functions/{cid}/proof", f"/console/functions/{cid}/proof"),
        Asked("GET /console/deactivations/{signature}/proof", f"/console/deactivations/{signature}/proof", status=204),
        Asked("GET /", "/", headers={"accept": "text/html"}, status=303),
    ]


async def login_of(client: httpx2.AsyncClient, wallet: Wallet) -> dict[str, str]:
    nonce = ok(await client.post("/users/nonce", json={"address": wallet.address})).json()["nonce"]
    return {"address": wallet.address, "signature": wallet.sign_text(nonce)}


def uploaded(bundles: Sequence[Bundle], key: Mapping[str, str], status: int = 200) -> Asked:
    """The upload of these, as httpx2 writes it."""
    kind = "multipart/form-data; boundary=x"
    requests = [
        httpx2.Request("POST", "http://test/", files=each.files, headers={"content-type": kind}) for each in bundles
    ]
    return Asked("POST /functions", "/functions", [r.read() for r in requests], {"content-type": kind, **key}, status)


def large(number: int) -> bytes:
    """A module of 2 MiB, most of it in a section that a module may have for anything."""
    return Bundle().wasm + b"\0\x80\x80\x80\1\0" + bytes([number]) * (2**21 - 1)


async def reads_of(app: Application, asked: Asked, read: Asked) -> tuple[float, float]:
    """What a request costs, in single reads and in units. What seems too dear is measured again, up to four times."""
    reads, units = float("inf"), 0.0
    for attempt in range(ATTEMPTS):
        read_s, _ = await measure(app, read)
        seconds, units = await measure(app, asked.part(attempt))
        reads = min(reads, seconds / read_s)
        if not is_too_dear(reads, units):
            break
    return reads, units


def is_too_dear(reads: float, units: float) -> bool:
    return reads > 2 * units * READS_PER_UNIT


async def test_no_request_takes_more_than_twice_the_cpu_time_that_it_is_charged(
    app: Application, context: Context, client: httpx2.AsyncClient, clock: Clock
) -> None:
    table = await seeded(context, client, clock)
    listed = {f"{each.method} {each.path}" for each in (*OPERATIONS, *CONSOLE)}
    assert listed - {each.operation for each in table} == OPERATORS | ELSEWHERE | CHECKS | FILES
    read = next(each for each in table if each.operation == READ)
    dear: list[str] = []
    for asked in table:
        reads, units = await reads_of(app, asked, read)
        line = f"{reads:8.1f} reads, {units:8.1f} units: {asked.operation} {asked.target[:70]}"
        print(line)
        if is_too_dear(reads, units):
            dear.append(line)
    assert dear == []
