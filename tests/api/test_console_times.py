"""Times on pages: dates in words with how far away they are, and what a script needs to keep them true."""

from __future__ import annotations

import re

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, cron, deploy
from conftest import NOW_MS
from muniment.service.console.parts import dated, to_the_second
from page_site import Outline

DAY_MS = 86_400_000


@pytest.mark.one_engine
async def test_facts_have_dates_and_how_far_away_they_are(reader: httpx2.AsyncClient) -> None:
    config = cron(schedule="30 9 1 * *", endDate=NOW_MS + 90 * DAY_MS)
    signed = TriggerDraft(await deploy(reader), config=config).signed()
    ok(await reader.post("/triggers", json=signed))
    page = ok(await reader.get(f"/console/triggers/{signed['sig']}")).text
    shown = " ".join(Outline(page).text.split())
    assert "1 Dec 2026, 09:30 UTC (in 10 days)" in shown
    assert "18 Feb 2027, 19:48 UTC (in 90 days)" in shown
    assert '<time datetime="2026-12-01T09:30:00.000Z" data-as="dated">' in page
    assert "times.js" in page


@pytest.mark.one_engine
async def test_only_a_page_with_times_has_the_button_that_changes_their_zone(reader: httpx2.AsyncClient) -> None:
    for path, has_times in {"console/deploy": False, "console/find": False, "console/triggers": True}.items():
        await deploy(reader)
        if has_times:
            ok(await reader.post("/triggers", json=TriggerDraft(await deploy(reader)).signed()))
        page = ok(await reader.get(f"/{path}")).text
        assert ('id="zone"' in page, "times.js" in page) == (has_times, has_times), path
        assert "Times are UTC." in page


@pytest.mark.parametrize(
    ("time_ms", "words"),
    [
        (0, "1 Jan 1970, 00:00 UTC (20,777 days ago)"), (NOW_MS, "20 Nov 2026, 19:48 UTC (now)"),
        (253_402_300_799_999, "31 Dec 9999, 23:59 UTC (in 2,912,119 days)"),
        (253_402_300_800_000, "after the year 9999"),
        (2**256, "after the year 9999"),
    ],
)  # fmt: skip
def test_any_time_has_words(time_ms: int, words: str) -> None:
    assert re.sub(r"<[^>]*>", "", dated(time_ms, NOW_MS)) == words


def test_steps_have_seconds() -> None:
    made = to_the_second(NOW_MS + 7_000, NOW_MS)
    assert re.sub(r"<[^>]*>", "", made) == "20 Nov 2026, 19:48:07"
    assert 'title="in 7 seconds"' in made
