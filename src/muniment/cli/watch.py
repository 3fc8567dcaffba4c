"""`muniment intents watch`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import chains_option, common_options, opened_context, registry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.operate.watch.follower import Step
    from muniment.operate.watch.heartbeat import Heartbeat
    from muniment.operate.watch.watcher import Start
    from muniment.service.running.metrics.recorder import Metrics
    from muniment.service.running.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """`from_block` is a block of the chain `chain_id`, or of the only followed chain."""

    once: bool
    interval_s: float
    as_json: bool
    from_block: int | None
    chain_id: int | None
    health: tuple[str, int] | None


def _place_of(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, int] | None:
    from muniment.health import parse_place

    try:
        return None if text == "off" else parse_place(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, and not 'off'") from None


@click.command()
@common_options
@chains_option
@click.option("--once", is_flag=True, help="Follow every chain to its head; exit status 1 when one was not reached.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3_600), default=4, show_default=True, help="Seconds between requests."
)
@click.option(
    "--from",
    "from_block",
    type=click.IntRange(0, 2**53 - 1),
    help="Read a chain again from this block, and then follow it; see above.",
)
@click.option("--chain", "chain_id", type=int, help="The chain of --from, when the service follows several chains.")
@click.option("--json", "as_json", is_flag=True, help="Print each step as a line of JSON.")
@click.option(
    "--health",
    default="127.0.0.1:9466",
    show_default=True,
    callback=_place_of,
    metavar="ADDRESS:PORT|off",
    help="Where /healthz, /readyz and /metrics are answered, unless with --once; of ten ports the first free one.",
)
def watch(
    config: Path | None,
    *,
    once: bool,
    interval: float,
    from_block: int | None,
    chain_id: int | None,
    as_json: bool,
    health: tuple[str, int] | None,
    **flags: object,
) -> None:
    """Follow the settlement contracts on chain. When several processes run, one follows and the others stand by.

    With --from BLOCK the registry deletes the events of that chain from BLOCK on, and reads them again. Until then
    intents have the status that operators wrote. Writes of operators are kept. The command can be repeated. A chain
    whose position is before BLOCK continues at its position; a new chain starts at BLOCK. First stop the process that
    follows the chains.
    """
    import asyncio

    from muniment.cli.logs import configure_logs
    from muniment.operate import databases

    options = _Options(
        once=once,
        interval_s=interval,
        as_json=as_json,
        from_block=from_block,
        chain_id=chain_id,
        health=None if once else health,
    )
    settings = registry_of(config, **flags)
    configure_logs(settings)
    if settings.migrates_at_start:
        databases.migrate(settings, patience_s=databases.START_PATIENCE_S)
    raise SystemExit(asyncio.run(_watch(settings, options)))


async def _watch(settings: Settings, options: _Options) -> int:
    """The exit status: 1 when no chain is configured, or one was not followed to its head with `once`."""
    import asyncio

    import structlog

    from muniment.operate.watch.heartbeat import Heartbeat
    from muniment.operate.watch.watcher import Watcher, followed_chains
    from muniment.service.app import Timekeeper

    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(opened_context(settings))
        timekeeper = Timekeeper(context)
        await timekeeper.look()
        stack.callback(asyncio.create_task(timekeeper.run()).cancel)
        if not (followed := followed_chains(context)):
            output.print_note("no chain has an RPC URL and a settler: nothing to follow")
            return 1
        heartbeat = Heartbeat(context, options.interval_s)
        watcher = Watcher(
            context=context, heartbeat=heartbeat, once=options.once, interval_s=options.interval_s,
            on_step=_print_step if options.as_json else _log_step,
            start=_start(options, [chain.id for chain in followed]),
        )  # fmt: skip
        if options.health is not None:
            url = await stack.enter_async_context(_endpoint(options.health, heartbeat, context.metrics))
            structlog.get_logger(__name__).info("health", url=f"{url}/readyz")
        return int(await output.until_stopped(watcher.watch()) is False)


def _endpoint(place: tuple[str, int], heartbeat: Heartbeat, metrics: Metrics) -> AbstractAsyncContextManager[str]:
    """The endpoint of the watcher, at `place` or a port after it; it yields its URL."""
    from muniment.health import PORTS_TRIED, health_endpoint
    from muniment.service.running.metrics.exposition import render
    from muniment.service.running.metrics.recorder import show_process

    def text() -> bytes:
        show_process(metrics)
        return render(metrics)

    metrics.gauge("build_info", version=version("muniment")).set(1)
    return health_endpoint(place, trouble=lambda: heartbeat.trouble, metrics=text, ports=PORTS_TRIED)


def _start(options: _Options, followed: Sequence[int]) -> Start | None:
    """The block to read again from. Raises `click.UsageError` when its chain is unclear."""
    from muniment.operate.watch.watcher import Start

    if options.from_block is None:
        if options.chain_id is not None:
            raise click.UsageError("--chain needs --from: it names the chain of that block")
        return None
    chain_id, known = options.chain_id, ", ".join(map(str, followed))
    if chain_id is None and len(followed) > 1:
        raise click.UsageError(f"--from needs --chain, because several chains are followed: {known}")
    if chain_id is not None and chain_id not in followed:
        raise click.UsageError(f"chain {chain_id} is not followed; followed chains: {known}")
    return Start(followed[0] if chain_id is None else chain_id, options.from_block)


def _print_step(step: Step) -> None:
    members = {
        "chainId": step.chain_id, "nextBlock": step.next_block, "head": step.head, "facts": step.facts,
        "intents": step.intents, "takenBackFrom": step.rolled_back,
    }  # fmt: skip
    output.print_json({name: value for name, value in members.items() if value is not None})


def _log_step(step: Step) -> None:
    import structlog

    structlog.get_logger(__name__).info("followed", **asdict(step))
