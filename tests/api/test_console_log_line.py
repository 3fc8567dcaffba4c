"""The overview and the page of the service say the state of the transparency log."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
from tlog_world import turn

from answers import ok
from builders import deploy
from conftest import Clock
from muniment.service.context import Context
from muniment.service.resources.log import store
from muniment.service.resources.log.operating import freeze
from muniment.service.running.settings import Settings
from page_site import Outline

PAGES = ["/console", "/console/service"]
pytestmark = pytest.mark.parametrize("path", PAGES)


@pytest.fixture
def tlog_name() -> str:
    return "registry.example"


@pytest.fixture
def settings(settings: Settings, tlog_name: str) -> Settings:
    return replace(settings, tlog_name=tlog_name, tlog_key="11" * 32)


async def test_a_log_that_grows(reader: httpx2.AsyncClient, context: Context, clock: Clock, path: str) -> None:
    assert "It has not begun" in ok(await reader.get(path)).text
    await turn(context, clock)
    await deploy(reader)
    outline = Outline(ok(await reader.get(path)).text)
    assert "open: registry.example/log/1, 2 signed entries. Keys and entries" in outline.text  # the third is not signed
    assert "Nothing new is logged" not in outline.text
    (link,) = (each for each in outline.links if each.endswith("log"))
    answer = ok(await reader.get(str(httpx2.URL(f"http://test{path}").join(link))))
    assert "registry.example/log/1" in answer.text


async def test_a_log_that_stands(reader: httpx2.AsyncClient, context: Context, clock: Clock, path: str) -> None:
    await turn(context, clock)
    await freeze(context)
    text = Outline(ok(await reader.get(path)).text).text
    assert "frozen: registry.example/log/1, 2 signed entries" in text
    assert "Nothing new is logged: an operator has frozen it. The registry serves on" in text
    epoch = await store.newest(context.database)
    assert epoch
    why = '<b>"\u202e'
    sql = "UPDATE tlog_epochs SET state = 'halted', why = ?"
    await context.database.write(lambda tx: tx.execute(sql, (why,)))
    page = ok(await reader.get(path)).text
    assert "halted: registry.example/log/1" in Outline(page).text
    assert "Nothing new is logged: <b>" in Outline(page).text
    assert why not in page


@pytest.mark.parametrize("tlog_name", [""])
async def test_a_registry_without_a_log_shows_none(reader: httpx2.AsyncClient, path: str) -> None:
    answer = await reader.get(path)
    assert (answer.status_code, "ransparency log" in answer.text) == (200, False)
