"""`muniment webhooks deliver`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import common_options, require_database, secrets_of

if TYPE_CHECKING:
    from muniment.settings import Settings


@click.command("deliver")
@common_options
def deliver_events(config: Path | None, **flags: object) -> None:
    """Deliver events to webhooks until SIGTERM or Ctrl-C, as `serve` does too: one process of all delivers at a time.

    For a registry whose serving processes may not reach the Internet, or are too busy.
    """
    import asyncio

    from muniment.cli.logs import configure_logs
    from muniment.webhooks.managing import are_on

    settings = secrets_of(config, **flags)
    with output.errors_on_one_line():
        if not are_on(settings):
            raise ValueError("the setting `webhooks` or `feed` is off: nothing is delivered")
        require_database(settings.database_url, settings)
        configure_logs(settings)
        asyncio.run(_deliver(settings))


async def _deliver(settings: Settings) -> None:
    """Deliver until SIGTERM or Ctrl-C, which the event loop handles: another handler would not wake it."""
    import asyncio
    import signal
    from contextlib import suppress

    from muniment.app import Timekeeper, build_context
    from muniment.metrics.process import show_gauges
    from muniment.metrics.recorder import open_metrics
    from muniment.webhooks.deliverer import Deliverer

    context = build_context(settings, metrics=open_metrics(settings.data_dir, role="webhooks"))
    try:
        await context.database.check()
        timekeeper = Timekeeper(context)
        await timekeeper.look()
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(timekeeper.run()), group.create_task(show_gauges(context.metrics))]
            delivering = group.create_task(Deliverer(context).run())
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, delivering.cancel)
            with suppress(asyncio.CancelledError):
                await delivering
            for task in others:
                task.cancel()
    finally:
        await context.outgoing.close()
        await context.outgoing_webhooks.close()
        await context.database.close()
        context.metrics.close()
