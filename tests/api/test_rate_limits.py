"""The units of a client: charged once, shown in every answer, refused with a time that is never too early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, log_in, register
from muniment.protocol.errors import RateLimited
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http import admission
from muniment.service.http.admission import ClientAddresses
from muniment.service.http.request import NO_BODY, Request
from muniment.service.running.limits.limiter import PROXY_NOTE, Limiter
from muniment.service.running.settings import Settings
from without_server import InProcess, Pieces, request_of

pytestmark = pytest.mark.one_engine

QUOTA = 100


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", database_url=database_url, log_level="error",
        rate_limit_client=f"{QUOTA}/100s", rate_limit_login="10/100s", rate_limit_stop="3/100s",
    )  # fmt: skip


class Ticks:
    """The clock of the limits, in nanoseconds."""

    now = 10**15

    def __call__(self) -> int:
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def app(context: Context, settings: Settings, ticks: Ticks) -> Application:
    limiter = Limiter(settings.rate_limits, ticks)
    return Application(replace(context, limiter=limiter))


def of(app: Application, address: str) -> httpx2.AsyncClient:
    """A client at this address."""
    return httpx2.AsyncClient(transport=InProcess(app, address), base_url="http://test")


async def remaining(client: httpx2.AsyncClient) -> int:
    """Units that are left after this question."""
    answer = await client.get("/functions/x")
    return int(answer.headers["ratelimit"].partition("r=")[2].partition(";")[0])


async def drain(client: httpx2.AsyncClient, method: str, path: str, **given: Any) -> tuple[int, httpx2.Response]:
    """Ask until it is refused; how often it was served, and the refusal."""
    for served in range(10_000):
        answer = await client.request(method, path, **given)
        if answer.status_code == 429:
            return served, answer
    raise AssertionError("it is never refused")


async def test_beyond_the_quota_requests_are_refused_until_the_announced_time(
    app: Application, client: httpx2.AsyncClient, ticks: Ticks
) -> None:
    served, refused = await drain(client, "GET", "/triggers?limit=1")
    assert served == QUOTA // 2
    problem = refused.json()
    assert (problem["code"], problem["policy"], problem["violated-policies"]) == ("rate-limited", "client", ["client"])
    wait = int(refused.headers["retry-after"])
    assert problem["retryAfter"] == wait
    assert refused.headers["ratelimit"] == f'"client";r=0;t={wait}'
    assert refused.headers["ratelimit-policy"] == '"client";q=100;w=100'
    ticks.pass_seconds(wait)
    assert (await client.get("/triggers?limit=1")).status_code == 200
    async with of(app, "192.0.2.7") as other:
        assert (await other.get("/triggers")).status_code == 200, "another address has limits of its own"


async def test_every_answer_shows_the_remaining_units_except_cacheable_ones(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    record = await register(client, TriggerDraft(cid))
    for path in (f"/triggers/{record['sig']}", "/triggers", "/nowhere", "/triggers/0x"):
        answer = await client.get(path)
        assert answer.headers["ratelimit-policy"] == '"client";q=100;w=100', path
        assert answer.headers["ratelimit"].startswith('"client";r='), path
    assert "ratelimit" not in (await client.get(f"/functions/{cid}/manifest")).headers
    tag = (await client.get(f"/triggers/{record['sig']}")).headers["etag"]
    unchanged = await client.get(f"/triggers/{record['sig']}", headers={"if-none-match": tag})
    assert (unchanged.status_code, "ratelimit" in unchanged.headers) == (304, False)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_flood_of_questions_about_health_is_refused_and_no_other_flood_refuses_one(
    client: httpx2.AsyncClient, path: str
) -> None:
    await drain(client, "GET", "/triggers")
    served, refused = await drain(client, "GET", path)
    assert served == QUOTA
    assert refused.json()["policy"] == "client"


async def test_a_nonce_counts_as_a_login_of_the_client_that_asked_for_it(
    app: Application, client: httpx2.AsyncClient
) -> None:
    """10,000 requests for a stranger's address are refused to that caller, and the owner logs in."""
    wallet = Wallet()
    async with of(app, "192.0.2.7") as stranger:
        served, refused = await drain(stranger, "POST", "/users/nonce", json={"address": wallet.address})
        assert (served, refused.json()["policy"]) == (10, "login")
    assert await api_key_of(client, wallet)


async def test_a_refused_request_changes_nothing(client: httpx2.AsyncClient, nothing_stored: Callable[[], Any]) -> None:
    cid = await deploy(client)
    body = TriggerDraft(cid).signed()
    await drain(client, "GET", "/triggers")
    async with nothing_stored():
        assert (await client.post("/triggers", json=body)).status_code == 429


async def test_deactivations_have_a_limit_of_their_own(client: httpx2.AsyncClient) -> None:
    """So no flood from the same address stands before them."""
    await drain(client, "GET", "/triggers")
    body = {"triggerSigs": ["0x" + "11" * 64 + "1b"], "signature": "0x" + "22" * 64 + "1b"}
    answers = [(await client.post("/triggers/deactivate", json=body)).status_code for _ in range(4)]
    assert answers == [404, 404, 404, 429]


async def test_a_proxy_that_is_missing_in_the_settings_is_a_note_without_its_address(
    app: Application, client: httpx2.AsyncClient
) -> None:
    assert "notes" not in (await client.get("/readyz")).json()
    async with of(app, "10.1.2.3") as proxy:
        answer = await proxy.get("/readyz", headers={"x-forwarded-for": "192.0.2.9"})
    assert answer.json()["notes"] == [PROXY_NOTE]
    assert "10.1.2.3" not in answer.text


async def test_a_credential_is_charged_to_its_wallet(app: Application, client: httpx2.AsyncClient) -> None:
    async with of(app, "192.0.2.7") as first:
        key = await api_key_of(first, Wallet())
        await drain(first, "GET", "/triggers")
        headers = {"x-api-key": key}
        upload = await first.post("/functions", files=Bundle().files, headers=headers)
        assert upload.status_code == 200, "the address has used up its limit, the wallet has not"
        assert upload.headers["ratelimit-policy"] == '"client";q=400;w=100'
    served, refused = await drain(client, "POST", "/functions", files={"x": b""}, headers=headers)
    assert 3 <= served <= 6, "four times the quota, from whatever address"
    assert refused.json()["policy"] == "client"


async def test_a_wrong_credential_is_charged_to_the_address(client: httpx2.AsyncClient) -> None:
    headers = {"x-auth-token": "not.a.token"}
    served, _ = await drain(client, "GET", "/users/api-key", headers=headers)
    assert served == QUOTA // 9, "one for the request, eight for finding out"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("x-auth-token", "a"), ("x-auth-token", "b")], QUOTA),
        ([("x-long", "x" * 40_000)], 1),  # 77 units each
        ([], QUOTA),
    ],
)
async def test_a_refusal_before_a_credential_is_charged_to_the_address(
    client: httpx2.AsyncClient, headers: list[tuple[str, str]], expected: int
) -> None:
    served, refusal = await drain(client, "GET", "/users/api-key", headers=headers)
    assert (served, refusal.json()["code"]) == (expected, "rate-limited")


async def test_a_long_body_is_charged_by_its_length_however_it_comes(client: httpx2.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(24):
            yield b"[" * 1024

    url = "/triggers/sign-params"
    for content in (b"[" * 24 * 1024, pieces()):
        before = await remaining(client)
        answer = await client.post(url, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        # The operation, the half KiB above four, and the question; what is told is rounded.
        assert abs(before - await remaining(client) - (4 + 40 + 1)) <= 1


async def test_long_bodies_of_log_ins_use_up_the_units_of_the_address_and_short_ones_do_not(
    client: httpx2.AsyncClient,
) -> None:
    headers = {"content-type": "application/json"}
    answers = [
        await client.post("/users/authenticate", content=content, headers=headers)
        for content in (b"[" * 30 * 1024, b"[" * 30 * 1024, b"{}")
    ]
    assert [each.status_code for each in answers] == [400, 429, 400]
    assert answers[1].json()["violated-policies"] == ["client"]


async def test_a_long_body_with_a_token_is_charged_to_its_wallet(client: httpx2.AsyncClient) -> None:
    owner = Wallet(9)
    headers = {"x-auth-token": await log_in(client, owner), "content-type": "application/json"}
    url = f"/users/{owner.address}/data"
    answers = [await client.post(url, content=b"[" * 60 * 1024, headers=headers) for _ in range(5)]
    assert [each.status_code for each in answers] == [400, 400, 400, 429, 429]


def test_a_refusal_is_parked_for_the_seconds_that_it_announces(app: Application) -> None:
    client = app.admission._limiter.client("192.0.2.1")
    request = Request("GET", "/", b"", (), NO_BODY, peer="192.0.2.1", named={}, head_bytes_max=0)
    request.charge(client.client, QUOTA)
    with pytest.raises(RateLimited) as refused:
        request.charge(client.client, 1)
    assert request.wait_s == refused.value.facts["retryAfter"] == 1


async def test_a_request_that_waits_for_its_body_is_not_in_flight(app: Application) -> None:
    seen: list[int] = []

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"{", b"}"):
            await asyncio.sleep(0.01)
            seen.append(app.admission.overload.in_flight)
            yield piece

    fields = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    request = request_of("POST", b"/triggers/preview", b"", fields, Pieces(pieces()), "192.0.2.1")
    reply = await app.respond(request)
    assert (reply.status, seen, app.admission.overload.in_flight) == (400, [0, 0], 0)


async def test_a_signature_that_does_not_verify_costs_more(client: httpx2.AsyncClient) -> None:
    cid = await deploy(client)
    body = TriggerDraft(cid).signed()
    body["typedData"]["values"]["executionFeeLimit"] = "7"
    served, _ = await drain(client, "POST", "/triggers", json=body)
    assert served <= QUOTA // 16 + 1


async def test_a_page_and_a_long_read_cost_more_than_a_record(
    client: httpx2.AsyncClient, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A collection of garbage in the thread of a long read takes longer.
    monkeypatch.setattr(admission, "LONG_READ_NS_FREE", 10**12)
    assert (await drain(client, "GET", "/triggers?limit=96"))[0] == -(-QUOTA // 8)
    ticks.pass_seconds(1_000)
    assert (await drain(client, "GET", "/triggers?offset=5000"))[0] == -(-QUOTA // 41)


async def test_under_overload_reads_go_on_for_longer_than_uploads_and_deactivations_for_ever(
    app: Application, client: httpx2.AsyncClient
) -> None:
    overload = app.admission.overload
    overload.level = 1
    refused = await client.post("/triggers/preview", json={})
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "overloaded", "1")
    assert (await client.get("/triggers")).status_code == 200
    overload.level = 2
    for query in ("offset=5", "offs%65t=5", "offset=%35"):
        assert (await client.get(f"/triggers?{query}")).json()["code"] == "overloaded"
    assert (await client.get("/triggers?offset=0&sort=1")).status_code == 200
    overload.level, overload.in_flight = 3, 10_000
    assert (await client.get("/triggers")).status_code == 503
    body = {"triggerSigs": ["0x" + "11" * 64 + "1b"], "signature": "0x" + "22" * 64 + "1b"}
    assert (await client.post("/triggers/deactivate", json=body)).status_code == 404
    assert (await client.get("/healthz")).status_code == 200


async def test_a_client_beside_a_proxy_is_no_proxy_that_is_missing(context: Context) -> None:
    """Such a client asks through the proxy: the address that the proxy forwards is the proxy's own."""
    app = Application(replace(context, clients=ClientAddresses([ip_network("10.1.2.3")])))
    for peer, forwarded, notes in (
        ("10.1.2.3", "10.1.2.3", None),
        ("::ffff:10.1.2.3", "10.1.2.3", None),
        ("::ffff:10.1.2.4", "192.0.2.9", [PROXY_NOTE]),
    ):
        async with of(app, peer) as proxy:
            answer = await proxy.get("/readyz", headers={"x-forwarded-for": forwarded})
        assert (answer.status_code, answer.json().get("notes")) == (200, notes), peer
