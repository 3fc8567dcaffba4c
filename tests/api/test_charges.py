"""What a request is charged for: what it asks, and what it is answered, however either is written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from builders import Bundle, TriggerDraft, Wallet, api_key_of, deploy, register
from feed_writing import add_events
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.http import admission
from muniment.service.http.reply import Ready
from muniment.service.http.request import NO_BODY, ClientGone, Request
from muniment.service.running.settings import Settings

pytestmark = [pytest.mark.one_engine, pytest.mark.spoils_events]


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data", database_url=database_url, log_level="error",
        rate_limit_client="1000000/10s", rate_limit_login="off", rate_limit_stop="off", rate_limit_owner="off",
    )  # fmt: skip


async def charged(client: httpx2.AsyncClient, context: Context, path: str) -> int:
    """The units that a request is charged."""
    before = context.limiter.units_charged("client")
    assert (await client.get(path)).status_code == 200
    return context.limiter.units_charged("client") - before


@pytest.mark.parametrize(
    ("plain", "encoded"),
    [
        ("/triggers?limit=100", "/triggers?lim%69t=100"),
        ("/functions?offset=1001", "/functions?%6Fffset=1001"),
        ("/intents?offset=1001&limit=50", "/intents?offs%65t=1001&%6c%69%6d%69%74=50"),
        ("/triggers?limit=100", "/triggers?limit=%31%30%30"),
    ],
)
async def test_a_listing_costs_what_it_asks_for_however_that_is_spelled(
    client: httpx2.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch, plain: str, encoded: str
) -> None:
    # A collection of garbage in the thread of a long read takes longer.
    monkeypatch.setattr(admission, "LONG_READ_NS_FREE", 10**12)
    assert await charged(client, context, plain) == await charged(client, context, encoded) >= 8


async def test_a_page_is_charged_for_the_bytes_that_leave(client: httpx2.AsyncClient, context: Context) -> None:
    """Also where it leaves in slices that are no whole number of units."""
    cid = await deploy(client, Bundle(inputs={"note": "string"}))
    for number in range(14):
        draft = TriggerDraft(cid, Wallet(number + 1), {"note": "string"}, input={"note": "x" * 18_000})
        await register(client, draft)
    size = len((await client.get("/triggers?limit=14")).content)
    assert size // 2**16 == 4
    assert await charged(client, context, "/triggers?limit=14") == 2 + 4


async def test_a_page_of_the_console_is_charged_for_what_it_lists(client: httpx2.AsyncClient, context: Context) -> None:
    first = await charged(client, context, "/console/triggers")
    assert await charged(client, context, "/console/triggers?offs%65t=100000") >= first + 780


async def test_a_request_that_is_cut_off_is_charged_for_what_has_come(
    app: Application, client: httpx2.AsyncClient, context: Context
) -> None:
    kind = b"multipart/form-data; boundary=x"
    fields = [(b"content-type", kind), (b"x-api-key", (await api_key_of(client, Wallet())).encode())]
    begun = b'--x\r\nContent-Disposition: form-data; name="file"; filename="function.wasm"\r\n\r\n' + bytes(2**18)
    request = Request(
        "POST", "/functions", b"", fields, CutOff([begun, *[bytes(2**16)] * 4]),
        peer="192.0.2.1", named=dict(fields), head_bytes_max=2_000,
    )  # fmt: skip
    before = context.limiter.units_charged("client")
    with pytest.raises(ClientGone):
        await app.respond(request)
    assert context.limiter.units_charged("client") - before >= 40 + 2**19 // 8_192


class CutOff:
    """A body whose client goes away."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def take(self) -> tuple[bytes, bool]:
        if not self._pieces:
            raise ClientGone
        return self._pieces.pop(0), True

    async def wait(self) -> None:
        """There always is something to take."""


async def test_a_page_of_events_is_charged_for_its_events_and_for_the_rows_that_a_filter_leaves_out(
    client: httpx2.AsyncClient, context: Context
) -> None:
    start = (await client.get("/events")).headers["link"].partition("cursor=")[2].partition(">")[0]
    await add_events(context.settings.data_dir, "", 1_000)
    while (size := len((await client.get(f"/events?cursor={start}&limit=500")).content)) < 500:
        await asyncio.sleep(0.01)  # until this process sees what another has committed
    assert await charged(client, context, f"/events?cursor={start}&limit=500") == 4 + size // 1_024 + 500 // 80
    unmatched = f"/events?cursor={start}&owner={Wallet(99).address}"
    assert await charged(client, context, unmatched) == 4 + 1_000 // 80
    assert await charged(client, context, "/events?limit=500") == 4


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/triggers?limit=1&a=" + "%41" * 5_000, []),
        ("/triggers/" + "%41" * 5_000, []),
        ("/nothing" + "/" * 15_000, []),
        ("/triggers?limit=1", [(b"if-none-match", b"," * 15_000)]),
        ("/events/stream?types=none", [(b"a", b"b" * 15_000)]),
        ("/users/api-key", [(b"x-auth-token", b"a." * 7_500)]),
    ],
    ids=["query", "path", "unknown path", "field", "stream", "credential"],
)
async def test_a_long_head_is_charged_for_its_length(
    app: Application, context: Context, target: str, fields: list[tuple[bytes, bytes]]
) -> None:
    """Its parts are decoded, split and compared, whatever the operation costs; a usual head is part of that."""
    path, _, query = target.partition("?")

    async def charged_for(path: str, query: str, fields: list[tuple[bytes, bytes]], size: int) -> int:
        named = dict(fields)
        request = Request(
            "GET", path, query.encode(), fields, NO_BODY, peer="192.0.2.1", named=named, head_bytes_max=size
        )
        before = context.limiter.units_charged("client")
        await app.respond(request)
        return context.limiter.units_charged("client") - before

    usual = await charged_for(path[:20], query[:20], [(name, value[:20]) for name, value in fields], 900)
    assert await charged_for(path, query, fields, 20_000) >= usual + 14_000 // 512


async def test_the_answer_to_an_unknown_path_of_the_console_does_not_grow_with_its_depth(app: Application) -> None:
    """Each link of a page leads up to the root."""
    accept = [(b"accept", b"text/html")]
    for depth in (10, 10_000):
        request = Request(
            "GET", "/console/" + "a/" * depth, b"", accept, NO_BODY,
            peer="192.0.2.1", named=dict(accept), head_bytes_max=20_100,
        )  # fmt: skip
        reply = await app.respond(request)
        assert isinstance(reply, Ready)
        assert (reply.status, len(reply.body) < 2**14) == (404, True), len(reply.body)
