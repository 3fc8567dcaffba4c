"""`muniment intents watch`: follow the settlement contracts of every configured chain until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
import structlog

from muniment.app import build_context
from muniment.cli.logs import configure_logs
from muniment.cli.serve import migrate
from muniment.intents.watching import Watcher, followed_chains
from muniment.wire import encode

if TYPE_CHECKING:
    from muniment.intents.following import Step
    from muniment.settings import Settings

_log = structlog.get_logger(__name__)


def run(settings: Settings, *, once: bool, interval_s: float, as_json: bool) -> int:
    """Follow; the exit status: 1 when with `once` a chain was not followed to its head, or none is configured."""
    configure_logs(settings)
    if settings.migrates_at_start:
        migrate(settings)
    return asyncio.run(_watch(settings, once=once, interval_s=interval_s, as_json=as_json))


async def _watch(settings: Settings, *, once: bool, interval_s: float, as_json: bool) -> int:
    context = build_context(settings)
    try:
        await context.database.check()
        if not followed_chains(context):
            click.echo("no chain has an RPC URL and a settler: nothing to follow", err=True)
            return 1
        told = _print_json if as_json else _print_log
        return await _until_stopped(Watcher(context=context, once=once, interval_s=interval_s, told=told))
    finally:
        await context.outgoing.close()
        await context.database.close()


async def _until_stopped(watcher: Watcher) -> int:
    watching = asyncio.create_task(watcher.watch())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, watching.cancel)
    with suppress(asyncio.CancelledError):
        return int(not await watching)
    return 0


def _print_json(step: Step) -> None:
    """A line for a program."""
    members = {
        "chainId": step.chain_id, "nextBlock": step.next_block, "head": step.head, "facts": step.facts,
        "intents": step.intents, "takenBackFrom": step.taken_back,
    }  # fmt: skip
    click.echo(encode({name: value for name, value in members.items() if value is not None}))


def _print_log(step: Step) -> None:
    _log.info("followed", **asdict(step))
