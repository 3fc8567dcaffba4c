"""Checks of the queue of pins, and of the IPFS node that pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.errors import Refusal
from muniment.maintenance.doctor.findings import Finding, ok, warn
from muniment.outgoing import Outgoing
from muniment.pins import queue
from muniment.pins.node import Node, NodeFailed

if TYPE_CHECKING:
    from muniment.pins.queue import Backlog
    from muniment.settings import Settings
    from muniment.storage.database import Database

SECONDS_MAX: Final = 6.0
# A bundle of the largest size is sent in two minutes. Whoever imports thousands of functions waits longer.
WAIT_MS_MAX: Final = 3_600_000


async def check_pins(settings: Settings, database: Database, *, now_ms: int) -> list[Finding]:
    """Whether bundles wait for long or fail, and whether the node answers. The URL is not shown."""
    try:
        backlog = await queue.read_backlog(database)
    except Refusal as refusal:
        return [warn("pins", refusal.detail, "look at the database")]
    if not settings.ipfs_pin_url:
        return [judge_unused(backlog)]
    async with Outgoing(allow_private=True) as outgoing:
        node = Node(
            outgoing=outgoing, url=settings.ipfs_pin_url, authorization=settings.ipfs_pin_authorization,
            look_seconds_max=SECONDS_MAX,
        )  # fmt: skip
        try:
            found = ok("IPFS node", f"it answers, release {await node.version()}")
        except NodeFailed as error:
            remedy = "look at the node, MUNIMENT_IPFS_PIN_URL and MUNIMENT_IPFS_PIN_AUTHORIZATION; uploads go on"
            found = warn("IPFS node", str(error), remedy)
    return [judge(backlog, now_ms), found]


def judge(backlog: Backlog, now_ms: int) -> Finding:
    """The finding about the bundles that wait."""
    shown = f"{backlog.waiting} bundles wait to be pinned"
    if backlog.stuck:
        shown = f"{shown}, {backlog.stuck} of them failed {queue.STUCK_FAILURES} times or more"
        return warn("pins", shown, "`muniment pins list` says why; repair it, then `muniment pins retry`")
    if backlog.since_ms is not None and now_ms - backlog.since_ms > WAIT_MS_MAX:
        hours = (now_ms - backlog.since_ms) // 3_600_000
        return warn("pins", f"{shown}, one for {hours} hours", "look at the node and at the log of the service")
    return ok("pins", shown if backlog.waiting else "no bundle waits to be pinned")


def judge_unused(backlog: Backlog) -> Finding:
    """The finding when no node is named."""
    if backlog.waiting:
        remedy = "name the node again, or leave it: the bundles wait in the database and cost nothing"
        return warn("pins", f"{backlog.waiting} bundles wait, but MUNIMENT_IPFS_PIN_URL is empty", remedy)
    return ok("pins", "no IPFS node is named: pinning is off")
