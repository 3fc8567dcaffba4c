"""The client proves that a record is in the log as it holds it, and believes no proof of another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import msgspec
import pytest
from tlog_world import KEY, add_triggers, turn

from builders import TriggerDraft, Wallet, deploy, register
from conftest import Clock
from muniment.client import AsyncRegistry, Forged, NotLoggedYet, Retry, Rules
from muniment.protocol.functions.types import Function
from muniment.protocol.log.notes import keys_of_log
from muniment.protocol.triggers.types import RecordedDeactivation, Trigger
from muniment.protocol.wire import decode_text
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.running.settings import Settings
from without_server import InProcess

NAME = "registry.example"
ALICE, BOB = Wallet(1), Wallet(2)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, tlog_name=NAME, tlog_key=KEY)


class _Content(httpx2.AsyncByteStream):
    """Content that is read as it comes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data


class Between(InProcess):
    """The service, with a proxy before it that answers with another content where `lies` has the path."""

    lies: dict[str, bytes]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = self.lies.get(request.url.path)
        return (
            httpx2.Response(200, stream=_Content(content))
            if content is not None
            else await super().handle_async_request(request)
        )


@pytest.fixture
async def between(context: Context) -> Between:
    made = Between(Application(context))
    made.lies = {}
    return made


@pytest.fixture
async def registry(between: Between) -> AsyncIterator[AsyncRegistry]:
    async with httpx2.AsyncClient(transport=between) as http:
        yield AsyncRegistry("http://test", http=http, protocol="Mimic", retry=Retry(tries=1))


async def test_every_kind_of_record_is_proved(
    client: httpx2.AsyncClient, registry: AsyncRegistry, context: Context, clock: Clock
) -> None:
    cid = await deploy(client, wallet=ALICE)
    await deploy(client, wallet=BOB)
    sig = (await register(client, TriggerDraft(cid, BOB, description="Every six hours ☂")))["sig"]
    trigger = await registry.triggers.get(sig)
    with pytest.raises(NotLoggedYet) as early:
        await registry.log.prove(trigger)
    assert early.value.facts["retryAfter"] == 2
    consent = {"triggerSigs": [sig], "signature": BOB.sign_deactivation([sig])}
    assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
    await turn(context, clock)
    function = await registry.functions.get(cid)
    ended = await client.get(f"/deactivations/{consent['signature']}")
    deactivation = msgspec.json.decode(ended.content, type=RecordedDeactivation, dec_hook=decode_text)
    found = [
        await registry.log.prove(function),
        await registry.log.prove(function, creator=BOB.address),
        await registry.log.prove(trigger),
        await registry.log.prove(deactivation),
    ]
    # The log began after them: its first entry, the records from before it, the entry that says so.
    assert [each.at for each in found] == [1, 2, 3, 4]
    assert {(each.origin, each.size, each.signed_at_s) for each in found} == {
        (f"{NAME}/log/1", 6, context.clock.now_ms() // 1000)
    }
    vkey = keys_of_log(f"{NAME}/log/1", bytes.fromhex(KEY))[0].verifier.text
    assert await registry.log.prove(await registry.triggers.get(sig), vkey=vkey) == found[2]
    followed = await registry.log.follow(None, Rules(context.clock.now_ms() // 1000))
    assert (followed.size, followed.faults) == (6, [])


async def test_no_other_record_is_proved(
    client: httpx2.AsyncClient, registry: AsyncRegistry, between: Between, context: Context, clock: Clock
) -> None:
    cid = await deploy(client)
    sigs = [(await register(client, TriggerDraft(cid, version=f"{n}.0.0")))["sig"] for n in range(1, 3)]
    await add_triggers(context, 300)
    await turn(context, clock)
    first, second = [await registry.triggers.get(sig) for sig in sigs]
    function: Function = await registry.functions.get(cid)
    assert (await registry.log.prove(first)).at == 2
    for changes in (
        {"description": "another"},
        {"created_at": "2020-01-01T00:00:00.000Z"},
        {"signer": Wallet(99).address},
    ):
        with pytest.raises(Forged, match="does not have this record"):
            await registry.log.prove(msgspec.structs.replace(first, **changes))
    with pytest.raises(Forged, match="does not have this record"):
        await registry.log.prove(msgspec.structs.replace(function, created_at="2020-01-01T00:00:00.000Z"))
    honest = (await client.get(f"/triggers/{first.sig}/proof")).content
    other = (await client.get(f"/triggers/{second.sig}/proof")).content
    lines = honest.split(b"\n")
    lies = {
        "that of another": other,
        "another index": honest.replace(b"\nindex 2\n", b"\nindex 3\n"),
        "another hash": b"\n".join([*lines[:3], lines[4], *lines[4:]]),
        "a hash less": b"\n".join([*lines[:3], *lines[4:]]),
        "another root": other.partition(b"\n\n")[0]
        + b"\n\n"
        + honest.partition(b"\n\n")[2].replace(b"\n304\n", b"\n303\n"),
        "nothing": b"",
        "no note": honest.partition(b"\n\n")[0],
    }
    for name, lie in lies.items():
        assert lie != honest, name
        between.lies = {f"/triggers/{first.sig}/proof": lie}
        with pytest.raises(Forged):
            await registry.log.prove(first)
    between.lies = {}
    foreign = keys_of_log(f"{NAME}/log/1", b"\x99" * 32)[0].verifier.text
    with pytest.raises(Forged, match="has no signature by"):
        await registry.log.prove(first, vkey=foreign)


async def test_the_keys_that_were_seen_first_are_kept(
    client: httpx2.AsyncClient, registry: AsyncRegistry, between: Between, context: Context, clock: Clock
) -> None:
    trigger: Trigger = await registry.triggers.get((await register(client, TriggerDraft(await deploy(client))))["sig"])
    await turn(context, clock)
    vkeys = [each.verifier.text for each in keys_of_log(f"{NAME}/log/1", b"\x99" * 32)]
    shown = msgspec.json.decode((await client.get("/log")).content)
    shown["epochs"][0]["vkeys"] = vkeys
    assert await registry.log.prove(trigger)
    between.lies = {"/log": msgspec.json.encode(shown)}
    assert await registry.log.prove(trigger)
    async with httpx2.AsyncClient(transport=between) as http:
        with pytest.raises(Forged, match="has no signature by"):
            await AsyncRegistry("http://test", http=http, retry=Retry(tries=1)).log.prove(trigger)
    between.lies = {"/log": b'{"epochs":[]}'}
    async with httpx2.AsyncClient(transport=between) as http:
        with pytest.raises(Forged, match="which the registry does not name"):
            await AsyncRegistry("http://test", http=http, retry=Retry(tries=1)).log.prove(trigger)
