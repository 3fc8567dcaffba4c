"""The pages of runs: what became of a trigger that was due, why, what was read and told, and who says so."""

from __future__ import annotations

import re

import httpx2
import pytest

from builders import TriggerDraft, cron, deploy, event, once, register
from conftest import NOW_MS
from console_runs import RELAYERS
from console_world import World
from muniment.service.context import Context
from operator_client import operator_key
from page_site import Outline
from run_bodies import body_of, run_of

HOUR_MS = 3_600_000


async def text_of(reader: httpx2.AsyncClient, path: str) -> str:
    """The text of a page, spaces made one."""
    answer = await reader.get(f"/console/{path}")
    assert answer.status_code == 200, answer.text
    return " ".join(Outline(answer.text).text.split())


@pytest.mark.one_engine
async def test_a_run_says_what_came_of_it_what_it_read_and_who_recorded_it(
    reader: httpx2.AsyncClient, world: World
) -> None:
    page = await reader.get(f"/console/runs/{world.runs['intents']}")
    outline = Outline(page.text)
    text = " ".join(outline.text.split())
    for words in (
        "Run of Sweep rewards 2 intents",
        "“Sweep rewards to the treasury” Note by the signer’s client, not signed.",
        "intents", "by its schedule", "valid", "2, its trigger asks for 1",
        "7,000,000", "tokenPrice", "chainId 8453", '["1000000000000000000"]', "block 38,000,000", "Base",
        "not recorded here",
        "[Info] price 1.02", "unnamed", "proves nothing to a stranger", f"muniment runs verify {world.runs['intents']}",
    ):  # fmt: skip
        assert words in text, words
    assert f"../../console/intents/{world.runs['its intent']}" in outline.links
    assert f"../../console/runs?relayer={RELAYERS[1].address}" in outline.links
    assert f"../../executions/{world.runs['intents']}" in outline.links
    assert "Conflicts" not in text


@pytest.mark.one_engine
async def test_a_reason_is_a_sentence_and_a_gap_is_counted(reader: httpx2.AsyncClient, world: World) -> None:
    stopped = await text_of(reader, f"runs/{world.runs['in conflict']}")
    assert "The function declined to act. “price is above the limit”" in stopped
    missed = await text_of(reader, f"runs/{world.runs['missed']}")
    assert "No relayer of this operator ran then" in missed
    when = r"\d+ Nov 2026, \d\d:\d\d UTC \(\d+ hours ago\)"
    assert re.search(rf"Missed1 run, {when}Statusa note of one relayerFuel", missed), missed
    assert "runs verify" not in missed
    assert "pending" not in await text_of(reader, "runs?result=missed")
    assert "It read no chain." in missed
    assert "The function asked none." in missed


@pytest.mark.one_engine
async def test_two_verdicts_on_one_cause_name_each_other(reader: httpx2.AsyncClient, world: World) -> None:
    one, other = world.runs["nothing"], world.runs["in conflict"]
    for shown, named in ((one, other), (other, one)):
        page = await reader.get(f"/console/runs/{shown}")
        assert "Relayers came to different results for the same cause" in page.text
        assert f"../../console/runs/{named}" in Outline(page.text).links
    assert (await text_of(reader, "runs?result=nothing")).count("in conflict") == 1


async def test_a_trigger_has_its_runs_and_lists_have_the_last_one(reader: httpx2.AsyncClient, world: World) -> None:
    sig = world.triggers[0]["sig"]
    page = await reader.get(f"/console/triggers/{sig}")
    links = Outline(page.text).links
    for name in ("intents", "nothing", "in conflict", "missed"):
        assert f"../../console/runs/{world.runs[name]}" in links, name
    assert f"../../console/runs?triggerSig={sig}" in links
    cid = world.cids["Sweep rewards"]
    for path in ("triggers", f"functions/{cid}", f"addresses/{world.triggers[0]['signer']}"):
        links = Outline((await reader.get(f"/console/{path}")).text).links
        assert [each for each in links if each.endswith(world.runs["intents"])], path
        assert not [each for each in links if each.endswith(world.runs["nothing"])], path
    assert "last run" in await text_of(reader, "../console")
    assert 'last run <span class="state intents">' in (await reader.get("/console/triggers")).text


async def test_the_overview_counts_the_runs_of_a_day(reader: httpx2.AsyncClient, world: World) -> None:
    text = await text_of(reader, "../console")
    _, _, counted = text.partition("Runs, last 24 hoursAll runs")
    assert counted.startswith("intents 1nothing 1stopped 2missed 1Not carried out"), text
    assert world.runs


@pytest.mark.one_engine
async def test_an_intent_names_the_run_that_made_it(reader: httpx2.AsyncClient, world: World) -> None:
    made = await reader.get(f"/console/intents/{world.runs['its intent']}")
    assert f"../../console/runs/{world.runs['intents']}" in Outline(made.text).links
    other = await reader.get(f"/console/intents/{world.intents['failed'][0]}")
    assert not [each for each in Outline(other.text).links if "console/runs/0x" in each]


async def test_the_list_of_runs_is_filtered_and_found(reader: httpx2.AsyncClient, world: World) -> None:
    every = await text_of(reader, "runs")
    assert all(word in every for word in ("missed", "nothing", "declined", "intents", "gap"))
    page = await reader.get(f"/console/runs?result=stopped&triggerSig={world.triggers[0]['sig']}&relayer=")
    links = Outline(page.text).links
    assert [each for each in links if each.endswith(world.runs["in conflict"])]
    assert not [each for each in links if each.endswith(world.runs["hostile"])]
    found = await reader.get("/console/find", params={"q": world.runs["nothing"]})
    assert (found.status_code, found.headers["location"]) == (303, f"../console/runs/{world.runs['nothing']}")


@pytest.mark.one_engine
@pytest.mark.parametrize(
    ("config", "words"),
    [
        (cron(), "No relayer has recorded a run. Next due 21 Nov 2026, 00:00 UTC (in 4 hours)."),
        (event(), "No relayer has recorded a run. The next one is due with the next event."),
        (once(startDate=NOW_MS + 2 * HOUR_MS), "a run. Next due 20 Nov 2026, 21:48 UTC (in 2 hours)."),
        (once(), "No relayer has recorded a run. It was due 20 Nov 2026, 19:48 UTC (now)."),
        (cron(endDate=NOW_MS + 60_000), "No relayer has recorded a run."),
    ],
)
async def test_a_trigger_without_runs_says_when_it_is_due(
    reader: httpx2.AsyncClient, config: dict[str, object], words: str
) -> None:
    draft = TriggerDraft(await deploy(reader), config=config)
    trigger = await register(reader, draft)
    assert words in await text_of(reader, f"triggers/{trigger['sig']}")


@pytest.mark.one_engine
async def test_the_text_of_a_function_is_text(reader: httpx2.AsyncClient, world: World) -> None:
    outline = Outline((await reader.get(f"/console/runs/{world.runs['hostile']}")).text)
    assert outline.handlers == []
    assert not {"img", "iframe"} & set(outline.tags)
    assert not any(character in outline.text for character in "\u202e\u200b\x1b")
    assert "U+202E" in outline.text


async def test_an_orphaned_run_says_so(reader: httpx2.AsyncClient, context: Context) -> None:
    key = await operator_key(context)
    trigger = await register(reader, TriggerDraft(await deploy(reader), config=cron(schedule="* * * * *")))
    run = run_of(trigger, NOW_MS + 60_000)
    headers = {"x-operator-key": key}
    recorded = (await reader.post("/executions", json=body_of(run), headers=headers)).json()
    block = {"chainId": run.blocks[0].chain_id, "blockHash": run.blocks[0].hash}
    answer = await reader.post(f"/executions/{recorded['hash']}/orphan", json=block, headers=headers)
    assert answer.status_code == 200, answer.text
    text = await text_of(reader, f"runs/{recorded['hash']}")
    assert "The block that it was read from is not canonical any more." in text
    assert "says that the block is not canonical any more" in text
