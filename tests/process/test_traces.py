"""Spans of real service processes, as a collector gets them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, deploy, log_in, register
from collector import CLIENT, SERVER, Collector, Span
from ports import free_port
from postgres import Cluster
from service import Service

pytestmark = pytest.mark.long

CALLER = "00f067aa0ba902b7"
STATE = "vendor=one,other@tenant=two"


def traced(flags: str = "01") -> tuple[str, dict[str, str]]:
    """A new trace, and the header fields that continue it."""
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{CALLER}-{flags}", "tracestate": STATE}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


@pytest.fixture(scope="module")
def node() -> Iterator[Collector]:
    """A node of a chain that answers, though not with JSON-RPC."""
    with Collector() as started:
        yield started


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, collector: Collector, node: Collector
) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp(request.param)
    chains = directory / "chains.toml"
    chains.write_text(f'[[chains]]\nid = 8453\nrpc_urls = ["{node.url}/v1/secret-of-the-node"]\n')
    with ExitStack() as stack:
        environment = {
            "MUNIMENT_TRACE_ENDPOINT": collector.url, "MUNIMENT_CHAINS_FILE": str(chains),
            "MUNIMENT_ALLOW_PRIVATE_NETWORKS": "true", "MUNIMENT_MIGRATE_AT_START": "true",
        }  # fmt: skip
        if request.param == "postgres":
            environment["MUNIMENT_DATABASE_URL"] = stack.enter_context(Cluster()).url()
        yield stack.enter_context(Service(directory / "data", environment=environment))


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as made:
        yield made


async def a_draft(client: httpx2.AsyncClient) -> TriggerDraft:
    return TriggerDraft(await deploy(client), Wallet(secrets.randbelow(10**6) + 10))


def family(spans: list[Span]) -> tuple[Span, list[Span]]:
    """The span of the request, and its children, which all name it as their parent."""
    (server,) = [span for span in spans if span.kind == SERVER]
    children = [span for span in spans if span is not server]
    assert {span.parent_id for span in children} <= {server.span_id}
    assert {span.kind for span in children} <= {CLIENT}
    return server, children


async def test_a_create_is_a_span_of_its_caller_with_its_commit(
    client: httpx2.AsyncClient, collector: Collector
) -> None:
    draft = await a_draft(client)
    trace_id, headers = traced()
    client.headers.update(headers)
    record = await register(client, draft)
    server, children = family(collector.spans(trace_id, wanted=2))
    assert (server.name, server.parent_id, server.state) == ("POST /triggers", CALLER, STATE)
    assert server.attributes == {
        "http.request.method": "POST", "http.route": "/triggers", "url.path": "/triggers", "url.scheme": "http",
        "http.response.status_code": 200,
    }  # fmt: skip
    (commit,) = [child for child in children if child.name == "COMMIT"]
    assert commit.attributes["db.operation.name"] == "COMMIT"
    trace_id, headers = traced()
    await client.get(f"/triggers/{record['sig']}", headers=headers)
    server, (query,) = family(collector.spans(trace_id, wanted=2))
    assert server.attributes["http.route"] == "/triggers/{sig}"
    assert query.name == "SELECT triggers"
    assert query.attributes["db.system.name"] in {"sqlite", "postgresql"}
    assert query.attributes["db.collection.name"] == "triggers"


async def test_a_call_to_a_node_carries_the_trace_and_hides_the_nodes_key(
    client: httpx2.AsyncClient, collector: Collector, node: Collector
) -> None:
    token = await log_in(client, Wallet(5))
    trace_id, headers = traced()
    await client.get("/users/tokens", headers={**headers, "x-auth-token": token})
    _, children = family(collector.spans(trace_id, wanted=2))
    calls = {f"00-{trace_id}-{child.span_id}-01": child for child in children if child.name == "POST"}
    sent = [each for each in node.headers if trace_id in each.get("traceparent", "")]
    assert sent
    assert {each["traceparent"] for each in sent} == set(calls)
    assert {each["tracestate"] for each in sent} == {STATE}
    host, port = node.url.removeprefix("http://").split(":")
    for call in calls.values():
        assert call.attributes["server.address"] == host
        assert call.attributes["server.port"] == int(port)
        assert call.attributes["url.full"] == f"{node.url}/REDACTED"
        assert call.attributes["http.response.status_code"] == 200


async def test_no_secret_and_no_client_is_in_any_span(client: httpx2.AsyncClient, collector: Collector) -> None:
    wallet = Wallet(7)
    token = await log_in(client, wallet)
    trace_id, headers = traced()
    headers |= {"x-auth-token": token, "x-forwarded-for": "203.0.113.9"}
    key = ok(await client.get("/users/api-key", headers=headers)).json()["apiKey"]
    await client.get(f"/users/{wallet.address}/data", headers=headers, params={"secret": "of-the-query"})
    await client.get("/users/tokens", headers=headers)
    collector.until(lambda: len([each for each in collector.kept if each.trace_id == trace_id and each.kind == 2]) >= 3)
    sent = b"".join(collector.bodies)
    for hidden in (token, key, wallet.address, "of-the-query", "203.0.113.9", "secret-of-the-node"):
        assert hidden.encode() not in sent
        assert hidden.lower().encode() not in sent


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([("traceparent", f"00-{'1' * 32}-{CALLER}-00")], id="the caller does not record"),
        pytest.param([("traceparent", f"00-{'2' * 32}-{CALLER}-01")] * 2, id="several"),
        pytest.param([("traceparent", f"ff-{'3' * 32}-{CALLER}-01")], id="version ff"),
        pytest.param([("traceparent", f"00-{'g' * 32}-{CALLER}-01")], id="no hex"),
        pytest.param([("traceparent", f"00-{'0' * 32}-{CALLER}-01")], id="zeros"),
        pytest.param([("traceparent", f"00-{'5' * 32}-{CALLER}-01-more")], id="version 00 with more"),
        pytest.param([("traceparent", "00-" + "6" * 6000)], id="huge"),
        pytest.param([], id="none"),
    ],
)
async def test_a_request_without_a_valid_and_recorded_parent_is_served_without_a_span(
    client: httpx2.AsyncClient, collector: Collector, fields: list[tuple[str, str]]
) -> None:
    before = len(collector.kept)
    assert (await client.get("/functions", headers=fields)).status_code == 200
    trace_id, headers = traced()
    await client.get("/functions", headers=headers)
    collector.spans(trace_id, wanted=2)
    assert {span.trace_id for span in collector.kept[before:]} == {trace_id}


async def test_a_refusal_is_no_failure_of_the_span_and_an_unknown_method_makes_no_name(
    client: httpx2.AsyncClient, collector: Collector
) -> None:
    trace_id, headers = traced()
    assert (await client.get("/nowhere/%00" + "x" * 500, headers=headers)).status_code == 404
    server, _ = family(collector.spans(trace_id))
    assert (server.name, server.is_failed, server.state) == ("GET", False, STATE)
    assert server.attributes["url.path"] == "/nowhere/%00" + "x" * 188 + "…"
    trace_id, headers = traced()
    assert (await client.request("PUT", "/functions", headers=headers)).status_code == 405


def test_the_ratio_begins_traces_and_the_log_names_them(
    tmp_path: Path, collector: Collector, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {
        "MUNIMENT_TRACE_ENDPOINT": f"{collector.url}/v1/traces", "MUNIMENT_TRACE_RATIO": "1",
        "MUNIMENT_LOG_REQUESTS": "all", "MUNIMENT_LOG_LEVEL": "info",
    }  # fmt: skip
    before, made = len(collector.kept), list[Span]()
    for _ in range(5):
        with Service(tmp_path / "data", environment=environment) as service:
            httpx2.get(f"{service.url}/functions")
        made = collector.kept[before:]  # the stop sent what was left, unless the machine let it wait for two seconds
        if made:
            break
    assert set(collector.paths) == {"/v1/traces"}
    (server,) = [span for span in made if span.name == "GET /functions"]
    assert server.parent_id == ""
    assert server.trace_id in capfd.readouterr().err


@pytest.mark.timed
@pytest.mark.parametrize("fault", ["away", "slow", "refusing", "failing"])
def test_a_collector_that_fails_delays_no_request_and_fills_no_log(
    tmp_path: Path, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with Collector(delay_s=60 if fault == "slow" else 0, status=400 if fault == "refusing" else 503) as failing:
        url = f"http://127.0.0.1:{free_port()}" if fault == "away" else failing.url
        environment = {"MUNIMENT_TRACE_ENDPOINT": url, "MUNIMENT_TRACE_RATIO": "1"}
        with Service(tmp_path / "data", environment=environment) as service, httpx2.Client() as client:
            slowest, end = 0.0, time.monotonic() + 4
            while time.monotonic() < end:
                asked = time.monotonic()
                assert client.get(f"{service.url}/functions").status_code == 200
                slowest = max(slowest, time.monotonic() - asked)
            stopped = time.monotonic()
            service.stop(signal.SIGTERM)
            assert time.monotonic() - stopped < 10
    assert slowest < 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) <= 4, lines
    assert all("spans not delivered" in line for line in lines)


def test_the_missing_packages_of_the_extra_are_an_error_with_the_remedy(tmp_path: Path) -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; from muniment.__main__ import main; main()"
    environment = {**os.environ, "MUNIMENT_TRACE_ENDPOINT": "http://127.0.0.1:9"}
    command = [sys.executable, "-c", program, "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    said = (
        "Error: trace_endpoint is set, but the packages for traces are not installed: "
        "pip install 'muniment[server,traces]', or leave trace_endpoint empty\n"
    )
    assert ended.stderr == said
