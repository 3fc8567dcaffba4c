"""The checks of the queue of pins and of the IPFS node."""

from __future__ import annotations

from dataclasses import replace

from breaking import breaks
from each_row import each_row
from muniment.operate.doctor.findings import Examined, Level
from muniment.operate.doctor.nodes import check_ipfs_node, check_pins, judge_pins, judge_unused
from muniment.service.context import Context
from muniment.service.pins.queue import Backlog
from pin_node import pin_node

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@each_row(
    ("backlog", "level", "message"),
    [
        (Backlog(0, 0, None), Level.OK, "no bundle waits to be pinned"),
        (Backlog(3, 0, NOW_MS - HOUR_MS), Level.OK, "3 bundles wait to be pinned"),
        (Backlog(3, 0, NOW_MS - 2 * HOUR_MS), Level.WARN, "3 bundles wait to be pinned, one for 2 hours"),
        (Backlog(3, 1, NOW_MS), Level.WARN, "3 bundles wait to be pinned, 1 of them failed 5 times or more"),
    ],
)
def test_bundles_that_wait_long_or_fail_are_a_warning(backlog: Backlog, level: Level, message: str) -> None:
    found = judge_pins(backlog, NOW_MS)
    assert (found.level, found.message) == (level, message)


@breaks("pins")
def test_bundles_that_wait_for_a_node_that_is_not_named_are_a_warning() -> None:
    assert judge_unused(Backlog(0, 0, None)).level is Level.OK
    found = judge_unused(Backlog(2, 0, NOW_MS))
    assert (found.level, found.message) == (Level.WARN, "2 bundles wait, but MUNIMENT_IPFS_PIN_URL is empty")


async def test_a_node_that_answers_is_named_with_its_release(context: Context) -> None:
    with pin_node(authorization="Bearer right") as node:
        settings = replace(context.settings, ipfs_pin_url=node.url, ipfs_pin_authorization="Bearer right")
        examined = Examined(settings, opened=context.database)
        assert (await check_pins(examined)).level is Level.OK
        found = await check_ipfs_node(examined)
        assert (found.level, found.message) == (Level.OK, "it answers, release 0.99.0-test")
        settings = replace(settings, ipfs_pin_authorization="Bearer wrong")
        found = await check_ipfs_node(Examined(settings))
        assert found.level is Level.WARN
        assert found.message == "version answered 403: 403 - Forbidden, you said Bearer ********"


@breaks("IPFS node")
async def test_a_node_that_is_away_is_a_warning(context: Context) -> None:
    settings = replace(context.settings, ipfs_pin_url="http://127.0.0.1:9")
    found = await check_ipfs_node(Examined(settings))
    assert (found.level, found.message) == (Level.WARN, "version: unreachable")
