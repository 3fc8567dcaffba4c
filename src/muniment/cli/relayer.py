"""`muniment relayer`."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muniment.cli import output
from muniment.cli.client.service import failures
from muniment.cli.options import settings_of
from muniment.cli.sandbox import opened_sandbox

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry
    from muniment.guest.confinement import Confinement
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.explaining import Explanation
    from muniment.relayer.loop import Relayer
    from muniment.relayer.settings import RelayerSettings

# The newest runs of a trigger that `explain` shows: of the registry, and of the journal.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of `muniment relayer`. With `dry` nothing is recorded, here or in the registry."""

    config: Path
    once: bool
    dry: bool
    opens_all: bool


@click.group(invoke_without_command=True)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default="relayer.toml",
    show_default=True,
    help="TOML file of the relayer.",
)
@click.option("--once", is_flag=True, help="Run what is due now, publish it, and end; exit status 1 if work is left.")
@click.option("--dry", is_flag=True, help="Print the runs and their intents, and record nothing.")
@click.option("--any", "opens_all", is_flag=True, help='Treat lists that are not set as "*" (any).')
@click.pass_context
def relayer(context: click.Context, /, **given: Any) -> None:
    """Run the triggers that are due, and record runs and intents.

    The file names the registry, the operator key, and whom this relayer serves: docs/use/run-functions.md explains it.
    A journal belongs to one process; several relayers, each with its own journal, can serve one registry.
    """
    import asyncio

    from muniment.cli.logs import configure_logs, warn_of_unread_variables

    context.obj = options = _Options(**given)
    if context.invoked_subcommand is not None:
        return
    configure_logs(settings_of(None))
    warn_of_unread_variables()
    with failures():
        raise SystemExit(asyncio.run(_work(options)))


@relayer.command("explain")
@click.argument("sig")
@output.shape_options
@click.pass_obj
def explain_trigger(options: _Options, sig: str, *, as_json: bool | None) -> None:
    """Say why the trigger SIG did not run, and when it runs next.

    It reads the trigger and its runs from the registry, and what this relayer saw from the journal, if that is on
    this machine. The relayer may be running.
    """
    import asyncio

    from muniment.protocol.wire import moment
    from muniment.relayer.settings import load_relayer_settings

    with failures():
        settings = load_relayer_settings(options.config, os.environ, opens_all=options.opens_all)
        found = asyncio.run(_explained(settings, sig))
    next_run = None if found.next_run_ms is None else moment(found.next_run_ms)
    if output.is_for_programs(as_json):
        output.print_json({"sentences": found.sentences, "nextRun": next_run})
    else:
        output.print_text("\n".join(found.sentences))


async def _work(options: _Options) -> int:
    """The exit status: 1 when work is left with `once`."""
    import structlog

    from muniment.relayer.program import Printing, assembled
    from muniment.relayer.settings import load_relayer_settings

    async with opened_sandbox() as sandbox:
        warn_of_missing(sandbox.confinement)
        settings = load_relayer_settings(options.config, os.environ, opens_all=options.opens_all)
        if settings.exposed_key_file is not None:
            structlog.get_logger(__name__).warning(
                "other users can read the operator key", file=str(settings.exposed_key_file),
                remedy="chmod 600; then run `muniment operators revoke` and `add`: others may know the key",
            )  # fmt: skip
        if settings.operator_key is None and not options.dry:
            raise ValueError(
                "a relayer writes as an operator: give the key that `muniment operators add` printed in "
                "MUNIMENT_OPERATOR_KEY or in the file of operator_key_file; `--dry` needs none"
            )
        printing = Printing(output.print_json) if options.dry else None
        async with assembled(settings, sandbox, publishing=printing) as made:
            if options.once:
                return int(not await output.until_stopped(made.once()))
            await _serve(made, settings)
            return 0


def warn_of_missing(confinement: Confinement) -> None:
    """A line of the log about what this system does not confine functions by; none where it has everything."""
    import structlog

    if missing := confinement.missing:
        structlog.get_logger(__name__).warning("sandbox_incomplete", missing=", ".join(missing))


async def _serve(made: Relayer, settings: RelayerSettings) -> None:
    import structlog

    from muniment.health import health_endpoint

    async with AsyncExitStack() as stack:
        if settings.health_port is not None:
            place = "127.0.0.1", settings.health_port
            url = await stack.enter_async_context(
                health_endpoint(place, trouble=made.trouble, metrics=lambda: made.metrics().encode())
            )
            structlog.get_logger(__name__).info("health", url=f"{url}/readyz")
        await output.until_stopped(made.serve())


async def _explained(settings: RelayerSettings, sig: str) -> Explanation:
    import time

    from muniment.chains.catalogue import load_chains
    from muniment.protocol.triggers.typed_data import EVENT
    from muniment.relayer.clock import RegistryClock
    from muniment.relayer.explaining import Told, explain
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.program import connected, own_ms

    clock = RegistryClock(own_ms, time.monotonic)
    async with connected(settings, clock) as registry:
        trigger = await registry.triggers.get(sig)
        runs: list[Run] = []
        async for run in registry.runs.list(trigger_sig=sig, newest_first=True, limit=_SHOWN):
            runs.append(run)
            if len(runs) == _SHOWN:
                break
        older = await _older(registry, trigger, settings)
    told = None
    if settings.state.is_file():
        with Journal.reading(settings.state) as journal:
            told = Told(known=journal.known(trigger.sig), entries=journal.runs_of(trigger.sig)[:_SHOWN])
    read = set[int]()
    if trigger.config["type"] == EVENT:
        read = {chain_id for chain_id, chain in load_chains(settings.chains_file).items() if chain.rpc_urls}
    return explain(trigger, runs, settings, told, own_ms(), read_chains=read, older=older)


async def _older(registry: AsyncRegistry, trigger: Trigger, settings: RelayerSettings) -> int:
    """How many event triggers of the same signer, up to those that a relayer reads, were registered before."""
    from muniment.protocol.triggers.typed_data import EVENT

    count = 0
    if trigger.config["type"] == EVENT:
        async for each in registry.triggers.list(signer=trigger.signer, active=True, on_forged=lambda _: None):
            if count == settings.event_triggers_per_signer_max or each.created_at > trigger.created_at:
                break
            is_before = (each.created_at, each.sig) < (trigger.created_at, trigger.sig)
            count += is_before and each.config["type"] == EVENT and not settings.served.refused(each)
    return count
