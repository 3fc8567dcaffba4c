"""The page of the transparency log, and the proofs that scripts ask for without an error in the browser."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
from tlog_world import turn

from answers import ok
from builders import TriggerDraft, Wallet, deploy
from conftest import Clock
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.running.settings import Settings
from page_site import Outline


@pytest.fixture
def tlog_name() -> str:
    return "registry.example"


@pytest.fixture
def settings(settings: Settings, tlog_name: str) -> Settings:
    return replace(settings, tlog_name=tlog_name, tlog_key="11" * 32)


async def text_of(reader: httpx2.AsyncClient) -> str:
    return " ".join(Outline(ok(await reader.get("/console/log")).text).text.split())


async def test_keys_checkpoint_and_newest_entries(reader: httpx2.AsyncClient, context: Context, clock: Clock) -> None:
    assert "It has not begun" in await text_of(reader)
    await turn(context, clock)
    cid = await deploy(reader)
    trigger = ok(await reader.post("/triggers", json=TriggerDraft(cid).signed())).json()
    sigs = [trigger["sig"]]
    await reader.post("/triggers/deactivate", json={"triggerSigs": sigs, "signature": Wallet().sign_deactivation(sigs)})
    await turn(context, clock)
    await turn(context, clock)
    page = ok(await reader.get("/console/log")).text
    outline = Outline(page)
    epoch = await store.newest(context.database)
    assert epoch
    assert epoch.note
    for key in epoch.vkeys.split("\n"):
        assert f'data-copy="{key}"' in page
    assert epoch.note.split("\n")[2] in outline.text
    shown = " ".join(outline.text.split())
    assert f"Signed entries{epoch.note_size}" in shown
    for words in ("trigger registered", "function deployed", "1 trigger ended", "the epoch begins"):
        assert words in shown, words
    assert shown.index("1 trigger ended") < shown.index("trigger registered") < shown.index("function deployed")
    assert "none has signed the last checkpoint" in shown
    assert "muniment tlog verify" in shown
    assert {f"../console/triggers/{trigger['sig']}", f"../console/functions/{cid}"} <= set(outline.links)
    for link in outline.links:
        if "tile/entries" in link or link.endswith("checkpoint"):
            ok(await reader.get(str(httpx2.URL("http://test/console/log").join(link))))


async def test_a_stopped_log_says_so_and_escapes_why(
    reader: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    why = '<b>"\u202e'
    await context.database.write(lambda tx: tx.execute("UPDATE tlog_epochs SET state = 'halted', why = ?", (why,)))
    page = ok(await reader.get("/console/log")).text
    assert "Nothing new is logged: &lt;b&gt;&quot;U+202E" in page
    assert why not in page


@pytest.mark.one_engine
@pytest.mark.parametrize("tlog_name", [""])
async def test_a_registry_without_a_log_has_no_page_of_it(reader: httpx2.AsyncClient) -> None:
    answer = await reader.get("/console/log")
    assert answer.status_code == 404
    assert "keeps no transparency log" in answer.text


async def test_no_proof_yet_is_an_answer_without_content(
    reader: httpx2.AsyncClient, context: Context, clock: Clock
) -> None:
    await turn(context, clock)
    cid = await deploy(reader)
    sigs = [ok(await reader.post("/triggers", json=TriggerDraft(cid).signed())).json()["sig"]]
    end = Wallet().sign_deactivation(sigs)
    await reader.post("/triggers/deactivate", json={"triggerSigs": sigs, "signature": end})
    paths = [f"functions/{cid}/proof", f"triggers/{sigs[0]}/proof", f"deactivations/{end}/proof"]
    for path in paths:
        early = await reader.get(f"/console/{path}")
        assert (early.status_code, early.content, early.headers["cache-control"]) == (204, b"", "no-store"), path
        assert (await reader.get(f"/{path}")).status_code == 404
    await turn(context, clock)
    await turn(context, clock)
    for path in paths:
        assert ok(await reader.get(f"/console/{path}")).content == ok(await reader.get(f"/{path}")).content, path
    unknown = await reader.get(f"/console/triggers/{Wallet(3).sign_deactivation(sigs)}/proof")
    assert unknown.status_code == 404
