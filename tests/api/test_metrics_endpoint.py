"""GET /metrics: who gets it, and what requests of every kind count."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, cron, deploy, log_in, register
from muniment.service.app import Application, build_context
from muniment.service.context import Context
from muniment.service.running.metrics.families import FAMILIES, PREFIX
from operator_client import IntentDraft, OperatorClient, operator_key
from run_bodies import body_of, next_run_of
from scraped import Scraped
from without_server import InProcess


async def scraped(client: httpx2.AsyncClient) -> Scraped:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    return Scraped(answer.text)


async def asked_from(
    context: Context, peer: str, networks: str | None = None, headers: dict[str, str] | None = None
) -> httpx2.Response:
    """The answer to a peer; `networks` is the setting, None its default."""
    settings = context.settings if networks is None else replace(context.settings, metrics_from=networks)
    transport = InProcess(Application(replace(context, settings=settings)), peer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get("/metrics", headers=headers)


@pytest.mark.one_engine
async def test_every_metric_is_there_with_its_type(client: httpx2.AsyncClient) -> None:
    lines = (await scraped(client)).lines
    for family in FAMILIES:
        assert f"# TYPE {PREFIX}{family.name} {family.type}" in lines


LET_IN = [
    ("127.0.0.1", None), ("127.9.9.9", None), ("::1", None), ("::ffff:127.0.0.1", None),
    ("10.1.2.3", "10.0.0.0/8"), ("10.1.2.3", "192.0.2.0/24, 10.0.0.0/8"), ("2001:db8::7", "2001:db8::/64"),
]  # fmt: skip
KEPT_OUT = [
    ("192.0.2.1", None), ("10.1.2.3", None), ("::2", None), ("", None), ("unix", None), ("127.0.0.1", ""),
    ("127.0.0.1", "10.0.0.0/8"), ("11.0.0.1", "10.0.0.0/8"),
]  # fmt: skip
OF_PROXIES = (
    "Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Via", "True-Client-IP",
    "CF-Connecting-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-Original-Forwarded-For", "X-Forward-For",
    "X_Forwarded_For", "X-ProxyUser-Ip", "X-Envoy-External-Address", "CF-Ray", "CDN-Loop",
)  # fmt: skip


@pytest.mark.one_engine
async def test_a_peer_in_the_setting_gets_the_metrics(context: Context) -> None:
    for peer, networks in LET_IN:
        assert (await asked_from(context, peer, networks)).status_code == 200, (peer, networks)


@pytest.mark.one_engine
async def test_for_another_peer_the_path_does_not_exist(context: Context) -> None:
    for peer, networks in KEPT_OUT:
        refused = await asked_from(context, peer, networks)
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown-path"), (peer, networks)


@pytest.mark.one_engine
async def test_through_a_proxy_the_path_does_not_exist(context: Context) -> None:
    for name in OF_PROXIES:
        assert (await asked_from(context, "127.0.0.1", headers={name: "127.0.0.1"})).status_code == 404, name


@pytest.mark.one_engine
async def test_the_header_fields_of_prometheus_are_not_those_of_a_proxy(context: Context) -> None:
    headers = {
        "Accept": "text/plain;version=0.0.4;q=0.3,*/*;q=0.1", "Accept-Encoding": "gzip", "Authorization": "Bearer x",
        "User-Agent": "Prometheus/2.53.3", "X-Prometheus-Scrape-Timeout-Seconds": "10", "traceparent": "00",
    }  # fmt: skip
    assert (await asked_from(context, "127.0.0.1", headers=headers)).status_code == 200


@pytest.mark.one_engine
async def test_the_refusal_is_that_of_an_unknown_path(context: Context) -> None:
    limited = replace(context.settings, rate_limit_client="20000/20s")
    transport = InProcess(Application(replace(context, settings=limited)), "192.0.2.1")  # fmt: skip
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as stranger:
        found, unknown = [await stranger.get(path) for path in ("/metrics", "/metricz")]
    changing = {"x-request-id", "content-length", "date"}
    assert {*found.headers} - changing == {*unknown.headers} - changing
    assert found.json() | {"requestId": ""} == unknown.json() | {"requestId": ""}


@pytest.mark.one_engine
async def test_metrics_are_answered_under_overload_and_never_charged(
    app: Application, client: httpx2.AsyncClient
) -> None:
    app.admission.overload.level, app.admission.overload.in_flight = 3, 10_000
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert "ratelimit" not in answer.headers


async def test_requests_are_counted_by_method_route_and_status(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    for _ in range(3):
        await client.get(f"/functions/{cid}")
    await client.head(f"/functions/{cid}")
    await client.get("/functions/nonsense")
    found = await scraped(client)
    route = "/functions/{cid}"
    assert found.value("http_requests_total", method="GET", route=route, status="200") == 3
    assert found.value("http_requests_total", method="HEAD", route=route, status="200") == 1
    assert found.value("http_requests_total", method="GET", route=route, status="400") == 1
    assert found.value("http_request_duration_seconds_count", method="GET", route=route) == 4
    assert found.value("refused_total", code="invalid-cid") == 1
    assert found.value("refused_total", code="unknown-path") == 0
    assert found.value("wasm_validation_seconds_count") == 1
    assert found.value("http_requests_in_flight") == 1


async def test_whatever_a_stranger_sends_adds_no_series(client: httpx2.AsyncClient) -> None:
    async def strange(number: int) -> None:
        await client.get(f"/nothing-{number}")
        await client.get(f"/triggers/0x{number:0130x}")
        await client.get(f"/functions/{number}?x={number}", headers={"x-request-id": f"r-{number}"})
        await client.request(f"BREW{number}", "/functions")
        await client.request(f"BREW{number}", f"/nothing-{number}")
        await client.post("/users/nonce", json={"address": Wallet(number).address})

    await strange(1)
    before = (await scraped(client)).samples.keys()
    for number in range(2, 8):
        await strange(number)
    found = await scraped(client)
    assert {name for name in found.samples.keys() - before if dict(name[1]).get("route") != "/metrics"} == set()
    assert found.labels("http_requests_total", "method") <= {"GET", "POST", "other"}
    assert "BREW" not in "".join(found.lines)
    assert Wallet(7).address not in "".join(found.lines)


async def test_the_work_of_the_database_is_measured(client: httpx2.AsyncClient) -> None:
    before = await scraped(client)
    cid = await deploy(client)
    await register(client, TriggerDraft(cid))
    await client.get("/functions?offset=5000")
    found = await scraped(client)
    for kind in ("read", "write"):
        name = "database_query_duration_seconds_count"
        was, now = (each.value(name, kind=kind, target="primary") for each in (before, found))
        assert (now or 0) > (was or 0), kind
    commits = found.value("commit_duration_seconds_count") or 0
    assert commits >= 3  # the key, the function, the trigger
    assert (found.value("write_group_size_count") or 0) >= 3
    assert (found.value("write_group_size_sum") or 0) >= 3
    assert found.value("writes_waiting") == 0
    assert found.value("database_errors_total", kind="read", target="primary") == 0


async def test_log_ins_are_counted_by_their_outcome(client: httpx2.AsyncClient) -> None:
    await log_in(client, Wallet(1))
    body = {"address": Wallet(2).address, "signature": Wallet(2).sign_text("another text")}
    assert (await client.post("/users/authenticate", json=body)).status_code == 401
    found = await scraped(client)
    assert found.value("logins_total", outcome="succeeded") == 1
    assert found.value("logins_total", outcome="failed") == 1


async def test_triggers_are_counted_by_their_outcome(client: httpx2.AsyncClient) -> None:
    draft = TriggerDraft(await deploy(client))
    await register(client, draft)
    await register(client, draft)
    sigs = [draft.signed()["sig"]]
    for _ in range(2):
        body = {"triggerSigs": sigs, "signature": draft.wallet.sign_deactivation(sigs)}
        assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
    found = await scraped(client)
    assert [found.value("triggers_total", outcome=each) for each in ("created", "repeated", "deactivated")] == [1, 1, 1]


async def test_moves_of_intents_are_counted_by_the_status(client: httpx2.AsyncClient, context: Context) -> None:
    operator = OperatorClient(client, await operator_key(context))
    await operator.recorded(IntentDraft().saying(status="created"))
    headers = {"x-operator-key": operator.key}
    moved = await client.post(f"/intents/{IntentDraft().hash}/status", json={"status": "enqueued"}, headers=headers)
    assert moved.status_code == 200
    found = await scraped(client)
    assert found.value("intent_moves_total", outcome="created") == 1
    assert found.value("intent_moves_total", outcome="enqueued") == 1
    assert found.value("intent_moves_total", outcome="failed") == 0


async def test_runs_are_counted_by_result_and_status_and_conflicts_once(
    client: httpx2.AsyncClient, context: Context
) -> None:
    keys = [await operator_key(context, name) for name in ("a", "b")]
    trigger = await register(client, TriggerDraft(await deploy(client), config=cron(schedule="* * * * *")))
    nothing, stopped = (
        next_run_of(trigger),
        next_run_of(trigger, result="stopped", reason={"code": "abort", "text": ""}),
    )
    for run, key in ((nothing, keys[0]), (nothing, keys[0]), (stopped, keys[1]), (stopped, keys[1])):
        answer = await client.post("/executions", json=body_of(run), headers={"x-operator-key": key})
        assert answer.status_code == 200, answer.text
    found = await scraped(client)
    assert found.value("runs_total", result="nothing", status="valid") == 2
    assert found.value("runs_total", result="stopped", status="valid") == 2
    assert found.value("runs_total", result="missed", status="pending") == 0
    assert found.value("run_conflicts_total") == 1


async def test_charges_and_refusals_of_limits_are_counted_by_policy(context: Context) -> None:
    settings = replace(context.settings, rate_limit_client="3/1h", rate_limit_stop="60/60s")
    app = Application(build_context(settings))
    transport = InProcess(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        statuses = [(await client.get("/nothing")).status_code for _ in range(5)]
        found = await scraped(client)
    await app.context.database.close()
    await app.context.outgoing.close()
    assert statuses == [404, 404, 404, 429, 429]
    assert found.value("rate_limit_units_total", policy="client") == 3 + 1  # and this scrape
    assert found.value("rate_limit_refused_total", policy="client") == 2
    assert found.value("refused_total", code="rate-limited") == 2
    assert found.value("rate_limit_units_total", policy="stop") == 0


async def test_the_machine_is_described(client: httpx2.AsyncClient, context: Context) -> None:
    found = await scraped(client)
    assert found.value("ready") == 1
    assert 0 < (found.value("disk_free_bytes") or 0) < (found.value("disk_size_bytes") or 0)
    is_sqlite = context.settings.database_url.startswith("sqlite")
    assert (found.value("sqlite_wal_bytes") is not None) == is_sqlite
    assert found.value("backup_age_seconds") is None


async def test_a_touched_mark_is_a_backup(client: httpx2.AsyncClient, context: Context) -> None:
    context.settings.backup_mark.touch()
    found = await scraped(client)
    assert found.value("backup_age_seconds") is not None


@pytest.mark.one_engine
async def test_a_process_that_is_not_ready_says_so(app: Application, client: httpx2.AsyncClient) -> None:
    app._stopping = True
    assert (await scraped(client)).value("ready") == 0


async def test_an_upload_is_counted_with_its_key(client: httpx2.AsyncClient) -> None:
    headers = {"x-api-key": await api_key_of(client, Wallet(3))}
    await client.post("/functions", files=Bundle(wasm=b"\0asm\2\0\0\0").files, headers=headers)
    found = await scraped(client)
    assert found.value("refused_total", code="invalid-wasm") == 1
    assert found.value("wasm_validation_seconds_count") == 1
