"""`muniment intents watch`: follow the settlement contracts of every configured chain until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
import structlog

from muniment.app import Timekeeper, build_context
from muniment.cli.logs import configure_logs
from muniment.cli.serve import migrate
from muniment.watch.watcher import Start, Watcher, followed_chains
from muniment.wire import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.settings import Settings
    from muniment.watch.follower import Step

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to follow. From `from_block` on a chain is read again: `chain_id`, or the only one that is followed."""

    once: bool
    interval_s: float
    as_json: bool
    from_block: int | None = None
    chain_id: int | None = None


def run(settings: Settings, options: Options) -> int:
    """Follow; the exit status: 1 when with `once` a chain was not followed to its head, or none is configured."""
    configure_logs(settings)
    if settings.migrates_at_start:
        migrate(settings)
    return asyncio.run(_watch(settings, options))


async def _watch(settings: Settings, options: Options) -> int:
    context = build_context(settings)
    try:
        await context.database.check()
        if not (followed := followed_chains(context)):
            click.echo("no chain has an RPC URL and a settler: nothing to follow", err=True)
            return 1
        watcher = Watcher(
            context=context,
            once=options.once,
            interval_s=options.interval_s,
            on_step=_print_json if options.as_json else _print_log,
            start=_start(options, [chain.id for chain in followed]),
        )
        timekeeper = Timekeeper(context)
        await timekeeper.look()
        keeping_time = asyncio.create_task(timekeeper.run())
        try:
            return await _until_stopped(watcher)
        finally:
            keeping_time.cancel()
    finally:
        await context.outgoing.close()
        await context.database.close()


def _start(options: Options, followed: Sequence[int]) -> Start | None:
    """Where to read again. Raises `click.UsageError` when the options do not say on which chain."""
    if options.from_block is None:
        if options.chain_id is not None:
            raise click.UsageError("--chain says whose block --from is, which is not given")
        return None
    chain_id = options.chain_id
    if chain_id is None and len(followed) > 1:
        raise click.UsageError(f"--from is a block of one chain: name it with --chain, of {_listed(followed)}")
    if chain_id is not None and chain_id not in followed:
        raise click.UsageError(f"chain {chain_id} is not followed, but {_listed(followed)}")
    return Start(followed[0] if chain_id is None else chain_id, options.from_block)


def _listed(chain_ids: Sequence[int]) -> str:
    return ", ".join(map(str, chain_ids))


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
