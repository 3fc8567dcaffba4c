"""Requests of every operation, for `shards.py`: each name comes with a call that sends one request."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2

from muniment.service.resources.log.integrator import Integrator

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
# By name: type checking of this folder does not see those.
_builders: Any = import_module("builders")
_operators: Any = import_module("operator_client")
_runs: Any = import_module("runs_world")

Case = tuple[str, Awaitable[Any]]
OWNER: Any = _builders.Wallet(31)
_UNKNOWN = "0x" + "1" * 128 + "1b"


async def cases(client: httpx2.AsyncClient, context: Any) -> AsyncIterator[Case]:
    """The requests of all operations; what they need is there before each is yielded."""
    async for case in _of_users(client):
        yield case
    async for case in _of_functions(client):
        yield case
    async for case in _of_triggers(client):
        yield case
    async for case in _of_the_log(client, context):
        yield case
    operator = _operators.OperatorClient(client, await _operators.operator_key(context))
    async for case in _of_intents(client, operator, _operators.IntentDraft, _operators.proposal, ""):
        yield case
    form = ", several operations"
    async for case in _of_intents(client, operator, _operators.OperationsDraft, _operators.operations_proposal, form):
        yield case
    others = (_of_lists_of_intents(client), _of_runs(client, operator), _of_the_feed(client, operator.headers))
    for each in others:
        async for case in each:
            yield case
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/.well-known/jwks.json"):
        yield f"GET {path}", client.get(path)
    yield "GET /", client.get("/", headers={"accept": "text/html"})
    yield "GET /errors/{code}", client.get("/errors/unknown-path")


async def _of_runs(client: httpx2.AsyncClient, operator: Any) -> AsyncIterator[Case]:
    """Runs of a trigger of one run, which is due when it is registered."""
    trigger = await _runs.registered_once(client)
    made = _runs.once_body(trigger, _milliseconds(trigger["createdAt"]), blocks=[_runs.BLOCK])
    own = _runs.Relayer(client, operator.key)
    yield "POST /executions", own.post(made)
    name = _runs.hash_of(made)
    yield "GET /executions/{hash}", client.get(f"/executions/{name}")
    sig, relayer = trigger["sig"], own.address
    for query in ("", f"triggerSig={sig}", f"relayer={relayer}", "result=nothing", f"triggerSigs={sig}&latest=1"):
        asked = "&".join(f"{part.partition('=')[0]}=" for part in query.split("&") if part)
        yield f"GET /executions{'?' if asked else ''}{asked}", client.get(f"/executions?{query}")
    yield "POST /executions/{hash}/orphan", own.orphan(name, _runs.BLOCK)


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1_000 + 0.5)


async def _of_the_feed(client: httpx2.AsyncClient, headers: dict[str, str]) -> AsyncIterator[Case]:
    """The feed, and webhooks of an operator; their receiver is not reached."""
    link = (await client.get("/events")).headers["link"]
    yield "GET /events", client.get(link[1 : link.index(">")])
    body = {"url": "https://receiver.invalid/"}
    yield "POST /webhooks", client.post("/webhooks", json=body, headers=headers)
    made = (await client.post("/webhooks", json=body, headers=headers)).json()["webhook"]
    path = f"/webhooks/{made['id']}"
    yield "GET /webhooks", client.get("/webhooks", headers=headers)
    yield "GET /webhooks/{id}", client.get(path, headers=headers)
    yield "PATCH /webhooks/{id}", client.patch(path, json={"batch": True}, headers=headers)
    yield "POST /webhooks/{id}/test", client.post(f"{path}/test", headers=headers)
    yield "GET /webhooks/{id}/attempts", client.get(f"{path}/attempts", headers=headers)
    replay = {"cursor": made["cursor"]}
    yield "POST /webhooks/{id}/replay", client.post(f"{path}/replay", json=replay, headers=headers)
    yield "POST /webhooks/{id}/rotate", client.post(f"{path}/rotate", headers=headers)
    yield "GET /.well-known/webhooks/{id}", client.get(f"/.well-known/webhooks/{made['id']}")
    yield "DELETE /webhooks/{id}", client.delete(path, headers=headers)


async def _of_users(client: httpx2.AsyncClient) -> AsyncIterator[Case]:
    nonce = (await client.post("/users/nonce", json={"address": OWNER.address})).json()["nonce"]
    login = {"address": OWNER.address, "signature": OWNER.sign_text(nonce)}
    yield "POST /users/nonce", client.post("/users/nonce", json={"address": OWNER.address})
    yield "POST /users/authenticate", client.post("/users/authenticate", json=login)
    headers = {"x-auth-token": await _builders.log_in(client, OWNER)}
    yield "GET /users/api-key", client.get("/users/api-key", headers=headers)
    yield "GET /users/{address}/data", client.get(f"/users/{OWNER.address}/data", headers=headers)
    profile = {"name": "An owner"}
    yield "POST /users/{address}/data", client.post(f"/users/{OWNER.address}/data", json=profile, headers=headers)
    yield "GET /users/tokens", client.get("/users/tokens", headers=headers)
    yield "POST /users/api-key/rotate", client.post("/users/api-key/rotate", headers=headers)


async def _of_functions(client: httpx2.AsyncClient) -> AsyncIterator[Case]:
    headers = {"x-api-key": await _builders.api_key_of(client, OWNER)}
    files = _builders.Bundle(name="Measured").files
    yield "POST /functions", client.post("/functions", files=files, headers=headers)
    cid = await _builders.deploy(client)
    for path in ("/functions/{cid}", "/functions/{cid}/manifest", "/functions/{cid}/wasm"):
        yield f"GET {path}", client.get(path.replace("{cid}", cid))
    yield "GET /ipfs/{cid}", client.get(f"/ipfs/{cid}?format=car")
    yield "GET /ipfs/{cid}/{name}", client.get(f"/ipfs/{cid}/manifest.json")
    yield "GET /functions", client.get("/functions")
    yield "GET /functions?creator=", client.get(f"/functions?creator={OWNER.address}")


async def _of_triggers(client: httpx2.AsyncClient) -> AsyncIterator[Case]:
    cid = await _builders.deploy(client)
    made = [_builders.TriggerDraft(cid, OWNER, version=f"{number}.0.0") for number in range(1, 4)]
    first, second = [(await _builders.register(client, each))["sig"] for each in made[:2]]
    yield "POST /triggers", client.post("/triggers", json=made[2].signed())
    yield "GET /triggers/{sig}", client.get(f"/triggers/{first}")
    for query in ("", f"signer={OWNER.address}", f"functionCid={cid}", f"signer={OWNER.address}&functionCid={cid}"):
        name = "&".join(f"{part.partition('=')[0]}=" for part in query.split("&") if part)
        yield f"GET /triggers{'?' if name else ''}{name}", client.get(f"/triggers?{query}")
    asked = {name: made[2].values[name] for name in ("functionCid", "version", "input", "config")}
    yield "POST /triggers/sign-params", client.post("/triggers/sign-params", json=asked)
    yield "POST /triggers/preview", client.post("/triggers/preview", json=asked)
    sigs = [first, second]
    yield (
        "POST /triggers/deactivate/sign-params",
        client.post("/triggers/deactivate/sign-params", json={"triggerSigs": sigs}),
    )
    consent = {"triggerSigs": sigs, "signature": OWNER.sign_deactivation(sigs)}
    yield "POST /triggers/deactivate", client.post("/triggers/deactivate", json=consent)
    yield "GET /deactivations/{signature}", client.get(f"/deactivations/{consent['signature']}")


async def _of_the_log(client: httpx2.AsyncClient, context: Any) -> AsyncIterator[Case]:
    await Integrator(context).turn()
    (trigger,) = (await client.get("/triggers?sort=1&limit=1")).json()
    ended = (await client.get(f"/triggers/{trigger['sig']}")).json()
    yield "GET /log", client.get("/log")
    yield "GET /log/{epoch}/checkpoint", client.get("/log/1/checkpoint")
    yield "GET /log/{epoch}/tile/{tile}", client.get("/log/1/tile/0/000.p/2")
    yield "GET /triggers/{sig}/proof", client.get(f"/triggers/{trigger['sig']}/proof")
    yield "GET /functions/{cid}/proof", client.get(f"/functions/{trigger['functionCid']}/proof")
    path = f"/deactivations/{ended['deactivateSig']}/proof"
    yield "GET /deactivations/{signature}/proof", client.get(path)


async def _of_intents(
    client: httpx2.AsyncClient, operator: Any, draft: Any, proposal: Any, form: str
) -> AsyncIterator[Case]:
    yield f"PUT /intents/{{hash}}{form}", operator.put(draft(1))
    name = await operator.recorded(draft(2))
    yield f"GET /intents/{{hash}}{form}", client.get(f"/intents/{name}")
    yield f"GET /intents/{{hash}}/moves{form}", client.get(f"/intents/{name}/moves")
    yield f"POST /intents/{{hash}}/proposals{form}", operator.append(name, "proposals", proposal(1))
    yield f"POST /intents/{{hash}}/logs{form}", operator.append(name, "logs", _operators.log(1))
    yield f"POST /intents/{{hash}}/status{form}", operator.move(name, "enqueued")


async def _of_lists_of_intents(client: httpx2.AsyncClient) -> AsyncIterator[Case]:
    user: str = _operators.USER.address
    settler: str = _operators.SETTLER
    for query in ("", f"user={user}", f"settler={settler}", f"configSig={_UNKNOWN}", "status=created", "op=1"):
        name = query.partition("=")[0]
        yield f"GET /intents{f'?{name}=' if name else ''}", client.get(f"/intents?{query}")
