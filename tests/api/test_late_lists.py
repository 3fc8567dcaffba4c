"""What may be read from a late replica: lists, the feed and pages of the console. All else is read from the primary."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from applications import client_of
from builders import TriggerDraft, Wallet, api_key_of, deploy, log_in, register
from console_world import OWNERS, World
from muniment.protocol.errors import DatabaseUnavailable
from muniment.service.app import Application
from muniment.service.context import Context
from muniment.service.storage.database import Reader
from page_site import reader, world
from without_server import InProcess

__all__ = ["reader", "world"]  # the fixtures

pytestmark = pytest.mark.one_engine
LATE = "only a late answer is to be had"


@pytest.fixture
def late(context: Context) -> Application:
    """The same registry, in which each read of what may be late is refused."""

    def refuse() -> Reader:
        raise DatabaseUnavailable(LATE)

    return Application(replace(context, list_reader=refuse))


@pytest.fixture
async def late_client(late: Application) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(late) as made:
        yield made


async def test_single_records_are_never_late(world: World, late_client: httpx2.AsyncClient) -> None:
    ended: dict[str, Any] = world.triggers[1]
    shown = (await late_client.get(f"/triggers/{ended['sig']}")).json()
    cids, hashes = world.cids.values(), [each for listed in world.intents.values() for each in listed]
    paths = [
        *(f"/functions/{cid}{file}" for cid in cids for file in ("", "/manifest", "/wasm")),
        *(f"/triggers/{each['sig']}" for each in world.triggers), f"/deactivations/{shown['deactivateSig']}",
        *(f"/intents/{each}{part}" for each in hashes for part in ("", "/moves")),
        *(f"/executions/{each}" for kind, each in world.runs.items() if kind != "its intent"),
    ]  # fmt: skip
    for path in paths:
        assert (await late_client.get(path)).status_code == 200, path


async def test_what_decides_is_never_late(late_client: httpx2.AsyncClient) -> None:
    await log_in(late_client, Wallet(1))
    await api_key_of(late_client, Wallet(1))
    trigger = await register(late_client, TriggerDraft(await deploy(late_client)))
    sigs = [trigger["sig"]]
    asked = await late_client.post("/triggers/deactivate/sign-params", json={"triggerSigs": sigs})
    assert asked.status_code == 200, asked.text
    body = {"triggerSigs": sigs, "signature": Wallet(1).sign_deactivation(sigs)}
    assert (await late_client.post("/triggers/deactivate", json=body)).status_code == 204


async def test_the_account_page_shows_what_was_just_stopped(world: World, late: Application) -> None:
    ended, active = world.triggers[1], world.triggers[5]
    assert ended["signer"] == active["signer"]
    async with httpx2.AsyncClient(transport=InProcess(late), base_url="http://test") as window:
        page = (await window.get(f"/console/account?address={ended['signer']}")).text
    assert [f'data-sig="{each["sig"]}"' in page for each in (ended, active)] == [False, True]


async def test_lists_the_feed_and_other_pages_may_be_late(late: Application) -> None:
    pages = ["", "/triggers", "/functions", "/intents", "/runs", "/service", f"/addresses/{OWNERS[0].address}"]
    paths = ["/functions", "/triggers", "/intents", "/executions", "/events", *(f"/console{page}" for page in pages)]
    async with httpx2.AsyncClient(transport=InProcess(late), base_url="http://test") as window:
        for path in paths:
            answer = await window.get(path)
            assert (answer.status_code, LATE in answer.text) == (503, True), path
