"""The overview: four numbers and two legends, each a link to what it counts."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import httpx2
import pytest

from conftest import Clock
from console_world import World
from muniment.service.context import Context
from muniment.service.resources.triggers.counting import count_active
from page_site import Outline

_NUMBER = re.compile(r'<li><a href="([^"]*)"><strong>([^<]*)</strong> ([^<]*)</a>')
_LEGEND = re.compile(r'<li><a class="state (\w+)" href="([^"]*)">\w+ <strong>(\d+)</strong>')


async def counted(reader: httpx2.AsyncClient, path: str, kind: str) -> int:
    """The rows of a listing, on all its pages."""
    found, url = set[str](), path
    while url:
        answer = await reader.get(url)
        assert answer.status_code == 200, (url, answer.text)
        links = Outline(answer.text).links
        found |= {each for each in links if re.search(rf"console/{kind}/(0x|Qm)", each)}
        older = [each for each in links if "cursor=" in each]
        url = (
            urljoin(url, older[-1])
            if '<a class="button" href="?' in answer.text and 'rel="next"' in answer.text
            else ""
        )
    return len(found)


async def test_each_number_leads_to_as_many_records(reader: httpx2.AsyncClient, world: World, clock: Clock) -> None:
    clock.advance(seconds=1)
    page = (await reader.get("/console")).text
    numbers = [(href.replace("&amp;", "&"), number, words) for href, number, words in _NUMBER.findall(page)]
    assert [words for _, _, words in numbers][:3] == ["active triggers", "functions", "intents in 24 hours"]
    for (href, number, _), kind in zip(numbers, ("triggers", "functions", "intents", "intents"), strict=True):
        rows = await counted(reader, urljoin("/console", href), kind)
        if number.endswith("%"):
            ended = int(re.findall(r"of the (\d+) that ended succeeded", page)[0])
            ends = {"succeeded", "failed", "discarded", "expired"}
            legend = [int(count) for name, href, count in _LEGEND.findall(page) if "/intents?" in href and name in ends]
            assert ended == sum(legend)
            assert (100 * rows // ended, 0 < rows < ended) == (int(number.removesuffix(" %")), True)
        else:
            assert (rows, rows > 1) == (int(number), True), href
    assert numbers[0][1] == "4"
    del world


async def test_legends_lead_to_the_records_that_they_count(reader: httpx2.AsyncClient, world: World) -> None:
    page = (await reader.get("/console")).text
    legends = _LEGEND.findall(page)
    kinds = {"intents" if "/intents?" in href else "runs" for _, href, _ in legends}
    assert kinds == {"intents", "runs"}
    for name, href, number in legends:
        kind = "intents" if "/intents?" in href else "runs"
        assert await counted(reader, urljoin("/console", href.replace("&amp;", "&")), kind) == int(number), name
    del world


async def test_active_triggers_are_counted_before_and_after_a_sweep(
    world: World, context: Context, clock: Clock
) -> None:
    del world
    assert await count_active(context.database, clock.now_ms) == 4  # of six one is deactivated, one past its end
    await context.database.write(lambda tx: tx.execute("UPDATE triggers SET live = 0 WHERE deactivated = 0"))
    assert await count_active(context.database, clock.now_ms) == 1  # marked too early: the one with an end to come


@pytest.mark.one_engine
async def test_an_empty_registry_has_numbers_too(reader: httpx2.AsyncClient) -> None:
    text = " ".join(Outline((await reader.get("/console")).text).text.split())
    assert "0 active triggers0 functions0 intents in 24 hours– none has ended" in text
