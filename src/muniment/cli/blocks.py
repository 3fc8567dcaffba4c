"""`muniment blocks`."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import click

from muniment.cli import output
from muniment.cli.client.service import TRIES, FailedError, TryAgainError, connected, failures, place_of, place_options
from muniment.cli.options import common_options, json_summary_option, require_database, settings_of
from muniment.cli.removed import removed_command
from muniment.protocol.visible import visible


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


@blocks.command("pin")
@click.option("--kubo", required=True, metavar="URL", help="RPC of the IPFS node, like http://127.0.0.1:5001.")
@click.option("--follow/--once", "follows", default=None, help="Wait for new functions, or end after all that exist.")
@place_options
def pin_blocks(*, kubo: str, follows: bool | None, **flags: Any) -> None:
    """Let an IPFS node (Kubo) pin the bundles of a registry.

    Each bundle is checked against its CID before the node gets it. If the node wants credentials, put the header field
    Authorization into the file that MUNIMENT_KUBO_AUTHORIZATION_FILE names. With --follow a node or a registry that is
    away is waited for, and a bundle that is refused is tried again, at least once an hour.

    Exit status with --once: 0: the node has pinned all; 1: not those that are named; 4: it or the registry does not
    answer.
    """
    from muniment.cli.client.kubo import Kubo, NodeAway
    from muniment.cli.client.pins import Pinning

    if follows is None:
        raise click.UsageError("give --follow or --once")
    stop = output.StopRequest()
    with failures(), stop.listening():
        place = place_of(flags)
        with Kubo.at(kubo) as node, connected(place, tries=1 if follows else TRIES) as registry:
            pinning = Pinning(registry, node, stop, waits=follows)
            try:
                (pinning.follow if follows else pinning.pin_all)()
            except NodeAway as error:
                raise TryAgainError(visible(f"{error}. Try again, or see --kubo")) from error
            except output.StoppedWhileWaiting:
                raise SystemExit(stop.status) from None
    if pinning.refusals:
        raise FailedError(f"{output.counted(pinning.refusals, 'bundle')} not pinned")


pins = removed_command("pins", "`muniment blocks pin --kubo URL --follow` pins the bundles, from any machine")
