"""Access to every operation with every kind of credential. A new operation needs a row here."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, cron, deploy, log_in, register
from conformance import document
from conftest import Clock
from each_row import each_row
from limitless import unlimited_settings
from muniment.service.app import OPERATIONS as API, Application, build_context
from muniment.service.console.pages import OPERATIONS as CONSOLE
from muniment.service.context import Context
from muniment.service.resources.operators import new_key
from muniment.service.running.settings import Settings
from operator_client import IntentDraft, OperatorClient, log, operator_key, proposal
from runs_world import BLOCK, Relayer, hash_of, once_body, registered_once
from without_server import InProcess

OWNER = Wallet(7)
# No name is looked up for it: it has an empty label.
RECEIVER = "https://hooks.invalid/"


@dataclass(frozen=True)
class Row:
    """Statuses by credential: `x-auth-token`, `authorization`, `x-api-key`, `x-operator-key`."""

    nothing: int
    nonsense: int
    other_kind: int  # a good key where a token is due, a good token where a key is due, an API key as an operator's
    other_registry: int  # a good credential of a registry with other secrets
    good: int
    scheme: str = ""  # the one of the OpenAPI document; empty: none, or a token


def public(status: int = 200) -> Row:
    """The operation ignores credentials."""
    return Row(status, status, status, status, status)


WITH_TOKEN = Row(401, 401, 401, 401, 200)
WITH_KEY = Row(401, 403, 403, 403, 200, "apiKey")
WITH_OPERATOR_KEY = Row(401, 403, 403, 403, 200, "operatorKey")

TABLE = {
    "GET /triggers": public(),
    "GET /triggers/{sig}": public(),
    "POST /triggers": public(),  # the signature in the body is the credential
    "POST /triggers/sign-params": public(),
    "POST /triggers/preview": public(),
    "POST /triggers/deactivate": public(204),  # as above
    "POST /triggers/deactivate/sign-params": public(),
    "GET /deactivations/{signature}": public(404),
    "GET /deactivations/{signature}/proof": public(404),
    "GET /triggers/{sig}/proof": public(404),
    "GET /functions/{cid}/proof": public(404),
    "GET /log": public(404),
    "GET /log/{epoch}/checkpoint": public(404),
    "GET /log/{epoch}/tile/{tile}": public(404),
    "GET /events": public(),
    "GET /events/stream": public(),
    "GET /intents": public(),
    "GET /intents/{hash}": public(),
    "GET /intents/{hash}/moves": public(),
    "PUT /intents/{hash}": WITH_OPERATOR_KEY,
    "POST /intents/{hash}/proposals": WITH_OPERATOR_KEY,
    "POST /intents/{hash}/logs": WITH_OPERATOR_KEY,
    "POST /intents/{hash}/status": WITH_OPERATOR_KEY,
    "GET /executions": public(),
    "GET /executions/{hash}": public(),
    "POST /executions": WITH_OPERATOR_KEY,
    "POST /executions/{hash}/orphan": WITH_OPERATOR_KEY,
    "GET /functions": public(),
    "GET /functions/{cid}": public(),
    "GET /functions/{cid}/manifest": public(),
    "GET /functions/{cid}/wasm": public(),
    "GET /ipfs/{cid}": public(),
    "GET /ipfs/{cid}/{name}": public(),
    "POST /functions": WITH_KEY,
    "POST /users/nonce": public(),
    "POST /users/authenticate": public(),  # the signed nonce is the credential
    "GET /users/api-key": WITH_TOKEN,
    "POST /users/api-key/rotate": WITH_TOKEN,
    "GET /users/tokens": WITH_TOKEN,
    "GET /users/{address}/data": WITH_TOKEN,
    "POST /users/{address}/data": WITH_TOKEN,
    "GET /.well-known/jwks.json": public(),
    "GET /webhooks": WITH_OPERATOR_KEY,
    "POST /webhooks": WITH_OPERATOR_KEY,
    "GET /webhooks/{id}": WITH_OPERATOR_KEY,
    "PATCH /webhooks/{id}": WITH_OPERATOR_KEY,
    "DELETE /webhooks/{id}": replace(WITH_OPERATOR_KEY, good=204),
    "POST /webhooks/{id}/resume": replace(WITH_OPERATOR_KEY, good=409),  # the receiver has not answered a challenge
    "POST /webhooks/{id}/replay": WITH_OPERATOR_KEY,
    "POST /webhooks/{id}/rotate": WITH_OPERATOR_KEY,
    "POST /webhooks/{id}/test": WITH_OPERATOR_KEY,
    "GET /webhooks/{id}/attempts": WITH_OPERATOR_KEY,
    "GET /healthz": public(),
    "GET /readyz": public(),
    "GET /metrics": public(),  # for peers in `metrics_from`
    "GET /openapi.json": public(),
    "GET /": public(),  # 303 for browsers
    "GET /docs": public(),
    "GET /errors/{code}": public(),
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Streams end at once, because they are over a limit."""
    return replace(settings, feed_streams_max=0)


OPERATIONS = {
    f"{method.upper()} {path}": described
    for path, methods in document()["paths"].items()
    for method, described in methods.items()
}


@dataclass(frozen=True)
class World:
    """A registry with a function and a trigger, and credentials of all kinds."""

    client: httpx2.AsyncClient
    cid: str
    draft: TriggerDraft
    token: str
    key: str
    operator_key: str
    foreign_token: str
    foreign_key: str
    foreign_operator_key: str
    webhook: dict[str, Any]
    run: dict[str, Any]

    def carried(self, column: str) -> dict[str, str]:
        token, key, operator_key = {
            "nothing": ("", "", ""),
            "nonsense": ("nonsense", "nonsense", "nonsense"),
            "other_kind": (self.key, self.token, self.key),
            "other_registry": (self.foreign_token, self.foreign_key, self.foreign_operator_key),
            "good": (self.token, self.key, self.operator_key),
        }[column]
        sent = {
            "x-auth-token": token, "authorization": f"Bearer {token}", "x-api-key": key,
            "x-operator-key": operator_key,
        }  # fmt: skip
        return sent if token else {}

    async def body(self, operation: str) -> dict[str, Any]:
        """A valid body, so that only the credential decides."""
        params = {"functionCid": self.cid, "version": "1.0.0", "input": {}, "config": cron()}
        sig = self.draft.signed()["sig"]
        bodies: dict[str, Callable[[], Any]] = {
            "POST /triggers": self.draft.signed,
            "POST /triggers/sign-params": lambda: params,
            "POST /triggers/preview": lambda: params,
            "POST /triggers/deactivate": lambda: {"triggerSigs": [sig], "signature": OWNER.sign_deactivation([sig])},
            "POST /triggers/deactivate/sign-params": lambda: {"triggerSigs": [sig]},
            "POST /users/nonce": lambda: {"address": OWNER.address},
            "POST /users/api-key/rotate": dict,
            "POST /users/{address}/data": dict,
            "PUT /intents/{hash}": lambda: IntentDraft().body,
            "POST /intents/{hash}/proposals": proposal,
            "POST /intents/{hash}/logs": log,
            "POST /intents/{hash}/status": lambda: {"status": "enqueued"},
            "POST /executions": lambda: self.run,
            "POST /executions/{hash}/orphan": lambda: {"chainId": BLOCK["chainId"], "blockHash": BLOCK["hash"]},
            "POST /webhooks": lambda: {"url": RECEIVER},
            "PATCH /webhooks/{id}": lambda: {"batch": True},
            "POST /webhooks/{id}/replay": lambda: {"cursor": self.webhook["cursor"]},
        }
        if operation == "POST /functions":
            return {"files": Bundle().files}
        if operation == "POST /users/authenticate":
            nonce = (await self.client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
            return {"json": {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}}
        return {"json": bodies[operation]()} if operation in bodies else {}

    async def status(self, operation: str, column: str) -> int:
        method, _, path = operation.partition(" ")
        sig = self.draft.signed()["sig"]
        named = hash_of(self.run) if path.startswith("/executions") else IntentDraft().hash
        url = path.format(
            sig=sig, cid=self.cid, name="manifest.json", code="integrity", address=OWNER.address,
            hash=named, signature=OWNER.sign_deactivation([sig]),
            id=self.webhook["id"], epoch="1", tile="0/000",
        )  # fmt: skip
        query = {"format": "raw"} if path == "/ipfs/{cid}" else None
        headers = self.carried(column)
        response = await self.client.request(method, url, params=query, headers=headers, **await self.body(operation))
        return response.status_code


@dataclass(frozen=True)
class Foreign:
    """Credentials of a registry with the same settings but secrets of its own."""

    token: str
    key: str
    operator_key: str


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    async def made() -> Foreign:
        context = build_context(unlimited_settings(data_dir=tmp_path_factory.mktemp("foreign")), now_ms=Clock())
        await context.database.migrate()
        transport = InProcess(Application(context))
        async with httpx2.AsyncClient(transport=transport, base_url="http://foreign.test") as client:
            token, key = await log_in(client, OWNER), await api_key_of(client, OWNER)
            here = await client.get("/users/api-key", headers={"x-auth-token": token})
            assert here.json()["apiKey"] == key
        await context.database.close()
        return Foreign(token, key, new_key(secrets.token_bytes))

    return asyncio.run(made())


@pytest.fixture
async def world(client: httpx2.AsyncClient, context: Context, clock: Clock, foreign: Foreign) -> World:
    cid = await deploy(client, wallet=OWNER)
    draft = TriggerDraft(cid, OWNER)
    await register(client, draft)
    operator = OperatorClient(client, await operator_key(context))
    await operator.recorded()
    trigger = await registered_once(client)
    run = once_body(trigger, clock.now_ms, blocks=[BLOCK])
    await Relayer(client, operator.key).record(run)
    added = await client.post("/webhooks", json={"url": RECEIVER}, headers={"x-operator-key": operator.key})
    return World(
        client, cid, draft, await log_in(client, OWNER), await api_key_of(client, OWNER), operator.key,
        foreign.token, foreign.key, foreign.operator_key, added.json()["webhook"], run,
    )  # fmt: skip


def test_every_operation_has_a_row() -> None:
    assert set(TABLE) == set(OPERATIONS)


def test_the_document_names_a_credential_exactly_where_one_is_needed() -> None:
    needs = {operation for operation, row in TABLE.items() if row.nothing == 401}
    assert {operation for operation, described in OPERATIONS.items() if described.get("security")} == needs
    for scheme in ("apiKey", "operatorKey"):
        keyed = {each for each, described in OPERATIONS.items() if described.get("security") == [{scheme: []}]}
        assert keyed == {operation for operation, row in TABLE.items() if row.scheme == scheme}


@each_row("operation", [each for each in TABLE if each.startswith("GET ")])
async def test_an_operation_that_reads_admits_the_callers_of_the_access_table(world: World, operation: str) -> None:
    await _admits_as_the_table_says(world, operation)


@pytest.mark.parametrize("operation", [each for each in TABLE if not each.startswith("GET ")])
async def test_an_operation_that_writes_admits_the_callers_of_the_access_table(world: World, operation: str) -> None:
    await _admits_as_the_table_says(world, operation)


async def _admits_as_the_table_says(world: World, operation: str) -> None:
    row = TABLE[operation]
    for column in ("nothing", "nonsense", "other_kind", "other_registry"):
        assert await world.status(operation, column) == getattr(row, column), column
    assert await world.status(operation, "good") == row.good


async def test_a_caller_gets_only_their_own_key(world: World) -> None:
    stranger = await log_in(world.client, Wallet(8))
    answer = (await world.client.get("/users/api-key", headers={"x-auth-token": stranger})).json()
    assert answer["address"] == Wallet(8).address
    assert answer["apiKey"] != world.key


@each_row("operation", [each for each, row in TABLE.items() if row.nothing == 401])
async def test_nothing_is_stored_for_a_refused_caller(
    world: World, nothing_stored: Callable[[], Any], operation: str
) -> None:
    async with nothing_stored():
        for column in ("nothing", "nonsense", "other_kind", "other_registry"):
            assert await world.status(operation, column) in {401, 403}


def test_pages_are_read_without_a_credential() -> None:
    """Their scripts request what needs a credential, with the token of the tab."""
    assert {each.method for each in CONSOLE} == {"GET"}
    assert not any(each.takes_credential for each in CONSOLE)


def test_only_the_files_of_the_pages_are_scripts() -> None:
    """Pages run scripts of their own origin, so no upload may be served as a script."""
    types = {kind for each in API for answer in each.answers.values() for kind in answer.media_types}
    assert types
    assert not [kind for kind in types if "script" in kind]
