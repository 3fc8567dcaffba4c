"""Requests that offer HTTP/2, as Java's client and `curl --http2` send them: served as HTTP/1.1, then closed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, deploy, register
from connection import Connection
from service import Service

OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABk"}
SIG = "0x" + "11" * 64 + "1b"
BODY = json.dumps({"triggerSigs": [SIG]}).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests here."""
    with Service(tmp_path_factory.mktemp("upgrades") / "data") as started:
        yield started


def whole() -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def chunked() -> bytes:
    pieces = [BODY[:1], BODY[1:60], BODY[60:]]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("framed", [whole(), chunked()], ids=["length", "chunked"])
async def test_a_body_after_an_offer_is_read_wherever_it_is_cut(service: Service, framed: bytes) -> None:
    offer = "".join(f"{name}: {value}\r\n" for name, value in OFFER.items()).encode()
    head = b"POST /triggers/deactivate/sign-params HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    before = b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n"
    stream = before + head + offer + framed
    for cut in range(1, len(stream) + 1):
        connection = await Connection.open(service.url)
        await connection.send(stream[:cut])
        await asyncio.sleep(0.0005)
        await connection.send(stream[cut:])
        health, params = [await connection.answer() for _ in range(2)]
        assert (health.status, params.status, json.loads(params.body)["message"]) == (200, 200, SIG), cut
        assert params.headers["connection"] == "close", cut
        assert await connection.is_closed_by_server(), cut
        await connection.close()


async def test_a_client_that_offers_with_every_request_registers_and_reads(service: Service) -> None:
    async with httpx2.AsyncClient(base_url=service.url, headers=OFFER) as client:
        record = await register(client, TriggerDraft(await deploy(client)))
        assert ok(await client.get(f"/triggers/{record['sig']}")).json() == record
        refused = await client.post("/triggers", json={})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-body")
        assert len(ok(await client.get("/triggers")).json()) == 1
