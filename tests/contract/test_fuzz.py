"""Valid and invalid requests generated from the OpenAPI document: no crash, and only documented answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import hypothesis
import pytest
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from builders import TriggerDraft, Wallet, api_key_of, deploy, log_in, register
from conformance import check_answer, document
from conftest import Clock
from muniment.service.app import Application, build_context
from muniment.service.http.operation import METHODS
from muniment.service.resources.log.integrator import Integrator
from muniment.service.running.settings import Settings
from operator_client import IntentDraft, operator_key
from without_server import InProcess

SCHEMA: Any = schemathesis.openapi.from_dict(document())
# For each operation and test, beside the cases for each edge of a parameter: a request takes tens of milliseconds.
EXAMPLES = 15
ANNOUNCED: list[Any] = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
CHECKS = [not_a_server_error, *ANNOUNCED]
_URL = "http://test"
_CREDENTIALS = {"authorization", "x-auth-token", "x-api-key", "x-operator-key"}


@dataclass(frozen=True)
class Registry:
    """A registry with one function, one trigger, one intent and one webhook, and good credentials."""

    client: httpx2.AsyncClient
    runner: asyncio.Runner
    known: dict[str, str]
    credentials: dict[str, str]

    def send(self, request: httpx2.Request) -> httpx2.Response:
        return self.runner.run(self.client.send(request))


@asynccontextmanager
async def _registry(data_dir: Path, runner: asyncio.Runner) -> AsyncGenerator[Registry]:
    # Streams end at once: over a limit.
    settings = Settings(data_dir=data_dir, log_level="warning", feed_streams_max=0, tlog_name="log.example")
    context = build_context(settings, now_ms=(clock := Clock()))
    await context.database.migrate()
    transport = InProcess(Application(context))
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [check_answer]}
    async with httpx2.AsyncClient(transport=transport, base_url=_URL, event_hooks=hooks) as client:
        cid = await deploy(client)
        trigger = await register(client, TriggerDraft(cid))
        ended = await register(client, TriggerDraft(cid, version="2.0.0"))
        signature = Wallet().sign_deactivation([ended["sig"]])
        consent = {"triggerSigs": [ended["sig"]], "signature": signature}
        assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
        clock.advance(seconds=1)
        await Integrator(context).turn()
        key = await operator_key(context)
        intent = IntentDraft()
        put = await client.put(f"/intents/{intent.hash}", json=intent.body, headers={"x-operator-key": key})
        assert put.status_code == 200, put.text
        hook = {"url": "https://hooks.example.org/"}
        added = await client.post("/webhooks", json=hook, headers={"x-operator-key": key})
        known = {
            "id": added.json()["webhook"]["id"],
            "hash": intent.hash,
            "cid": cid,
            "sig": trigger["sig"],
            "signature": signature,
            "name": "manifest.json",
            "epoch": "1",
            "tile": "0/000.p/4",
            "code": "integrity",
            "address": Wallet().address,
        }
        credentials = {
            "x-auth-token": await log_in(client, Wallet()),
            "x-api-key": await api_key_of(client, Wallet()),
            "x-operator-key": key,
        }
        yield Registry(client, runner, known, credentials)
    await context.database.close()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with asyncio.Runner() as runner:
        opened = _registry(tmp_path_factory.mktemp("fuzz") / "data", runner)
        yield runner.run(opened.__aenter__())
        runner.run(opened.__aexit__(None, None, None))


@SCHEMA.parametrize()
@hypothesis.settings(max_examples=EXAMPLES)
def test_generated_requests_get_documented_answers(case: Any, registry: Registry) -> None:
    _send(case, registry)


# The known webhook stays, and no request goes to a URL that was made up.
@(
    SCHEMA.include(path_regex=r"\{|^/triggers")
    .exclude(path="/webhooks/{id}", method="DELETE")
    .exclude(path="/webhooks/{id}/test")
    .parametrize()
)
@hypothesis.settings(max_examples=EXAMPLES)
def test_generated_requests_about_existing_records_get_documented_answers(case: Any, registry: Registry) -> None:
    for name in case.path_parameters:
        case.path_parameters[name] = registry.known[name]
    _name_known(case.body, registry.known)
    _send(case, registry)


def _name_known(body: Any, known: dict[str, str]) -> None:
    """Put the CID of the registered function into a body, so that more of the body is checked."""
    if isinstance(body, dict):
        if isinstance(body.get("functionCid"), str):
            body["functionCid"] = known["cid"]
        for value in body.values():
            _name_known(value, known)


def _send(case: Any, registry: Registry) -> None:
    headers = registry.credentials if case.operation.definition.raw.get("security") else {}
    for name in [name for name in case.headers if name.lower() in _CREDENTIALS]:
        del case.headers[name]  # made-up ones are the matter of test_access
    made = requests.Request(**case.as_transport_kwargs(base_url=_URL, headers=headers)).prepare()
    sent: list[tuple[Any, Any]] = list(made.headers.items())
    request = httpx2.Request(made.method or "", made.url or "", headers=sent, content=_bytes(made.body))
    answer = registry.send(request)
    # An unknown method is 501 (RFC 9110 section 15.6.2). Any other answer from 500 on is a fault.
    is_known = made.method in METHODS or answer.status_code != HTTPStatus.NOT_IMPLEMENTED
    case.validate_response(answer, checks=CHECKS if is_known else ANNOUNCED)


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""
