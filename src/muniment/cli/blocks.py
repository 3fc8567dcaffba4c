"""`muniment blocks` and `muniment pins`."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import (
    common_options,
    in_database,
    json_option,
    json_summary_option,
    require_database,
    settings_of,
)

if TYPE_CHECKING:
    from muniment.service.pins.queue import Pin


@click.group()
def blocks() -> None:
    """The blocks of bundles."""


@blocks.command("copy")
@common_options
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_summary_option
def copy_blocks(config: Path | None, source: str, target: str, *, as_json: bool, **flags: object) -> None:
    """Copy the blocks that TO lacks, and check each of them.

    FROM and TO are file: (in the data directory), file:///path, s3://bucket/prefix, database: (the service's own), or
    the URL of any migrated database. After an interruption, run the command again to copy the rest. Exit status 1: a
    block is damaged; all others are copied.
    """
    from muniment.operate.copy_blocks import copy

    settings = settings_of(config, **flags)
    stop = output.StopRequest(signals=(signal.SIGINT,), ends_at_second=True)
    if not source.startswith("file:"):
        require_database(source, settings)
    with stop.listening(), output.progress_bars(shows_count=True) as draw:
        summary = copy(
            settings, source, target,
            on_progress=partial(draw, "blocks") if output.shows_progress() else None,
            on_finding=output.print_note, is_stopping=stop.is_made,
        )  # fmt: skip
    output.print_result(summary, str(summary), as_json=as_json)
    raise SystemExit(stop.status if summary.interrupted else int(summary.damaged > 0))


@click.group()
def pins() -> None:
    """The bundles that the IPFS node is to pin."""


@pins.command("list")
@common_options
@click.option("--pinned", "is_pinned", is_flag=True, help="Print pinned bundles, newest first.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Number of bundles.")
@json_option
def list_pins(config: Path | None, *, is_pinned: bool, limit: int, as_json: bool, **flags: object) -> None:
    """Print the waiting bundles, the longest wait first."""
    from muniment.protocol.wire import iso_time
    from muniment.service.pins import queue

    found = in_database(config, flags, lambda db: queue.listed(db, is_pinned=is_pinned, limit=limit))
    rows = [
        {
            "cid": pin.cid, "state": "taken" if pin.is_taken else "pinned" if is_pinned else "waiting",
            "since": iso_time(pin.waits_since_ms if pin.pinned_at_ms is None else pin.pinned_at_ms),
            "due": iso_time(pin.due_at_ms) if pin.pinned_at_ms is None else None,
            "failures": pin.failures, "error": pin.error,
        }
        for pin in found
    ]  # fmt: skip
    empty = "no pinned bundles" if is_pinned else "no bundles wait"
    output.print_result(rows, "\n".join(map(_line, found)), as_json=as_json, empty=empty)


@pins.command("retry")
@common_options
@click.argument("cids", metavar="[CID]...", nargs=-1)
def retry_pins(config: Path | None, cids: tuple[str, ...], **flags: object) -> None:
    """Let the service try waiting bundles at once. Without a CID: all of them.

    Run it after you have repaired the node. A bundle that is being sent is left alone.
    """
    from muniment.protocol.ipfs.cid import Cid
    from muniment.service.pins import queue

    digests = [Cid.parse(cid).digest for cid in cids]
    count = in_database(config, flags, lambda db: db.write(lambda tx: queue.retry(tx, _now_ms(), digests)))
    output.print_text(_due(count))


@pins.command("recheck")
@common_options
def recheck_pins(config: Path | None, **flags: object) -> None:
    """Let the service check every pinned bundle at the node. It sends those that the node lacks.

    Run it after you configure another node, or when the node has lost data. A restore does the same.
    """
    from muniment.service.pins import queue

    count = in_database(config, flags, lambda db: db.write(lambda tx: queue.recheck(tx, _now_ms())))
    output.print_text(_due(count))


def _line(pin: Pin) -> str:
    from muniment.protocol.wire import iso_time

    if pin.pinned_at_ms is not None:
        return f"{pin.cid}  pinned {iso_time(pin.pinned_at_ms)}"
    times = output.counted(pin.failures, "time")
    failed = f", failed {times}, next try {iso_time(pin.due_at_ms)}" if pin.failures else ""
    why = f": {pin.error}" if pin.error else ""
    return f"{pin.cid}  waiting since {iso_time(pin.waits_since_ms)}{failed}{why}"


def _due(count: int) -> str:
    return f"{output.counted(count, 'bundle')} {'is' if count == 1 else 'are'} due now"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
