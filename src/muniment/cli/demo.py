"""`muniment demo`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muniment import durable
from muniment.cli import output
from muniment.cli.client.service import failures
from muniment.cli.options import chains_option, common_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from muniment.client import Bundle
    from muniment.service.running.settings import Settings

# Enough for a cold start on a slow and busy machine; a warm start takes well under a second.
_START_SECONDS_MAX: Final = 120
# How long a Ctrl-C may go unnoticed.
_STEP_SECONDS: Final = 0.2


@click.command()
@common_options
@click.option("--url", help="URL of a running service; without it the command starts one, which runs until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the service that the command starts.")
@chains_option
def demo(config: Path | None, url: str | None, **flags: object) -> None:
    """Show the main operations over HTTP with a throw-away wallet.

    Without --url it starts a service and a relayer. A registry without records gets a day of sample data first. One
    trigger is left active, which the relayer runs; while it is active, a later start shows no operations.
    """
    from muniment.operate.walkthrough import development_nodes
    from muniment.service.running.directory_lock import locked_directory

    settings = settings_of(config, **flags)
    with failures(), output.errors_on_one_line():
        if url is not None:
            _walk(url, settings)
            return
        # SIGTERM reaches only this process. Ctrl-C reaches the service too, because both have the same terminal.
        stop = output.StopRequest(signals=(signal.SIGTERM,))
        _refuse_another_revision(settings)
        with locked_directory(settings.data_dir):
            day = _sample_day(settings)  # which any signal may interrupt: the next start goes on
        with stop.listening(), _service(settings, day) as (service, address):
            left = _walk(address, settings, development_nodes(settings), leaves_trigger=True)
            with _relayer(settings, address), stop.waiting():
                output.print_text(f"\n{_where_next(address)}\n\n{_pages(settings, address, left)}")
                output.print_text("The service keeps running; Ctrl-C stops it.")
                _wait_until_ended(service)


def _refuse_another_revision(settings: Settings) -> None:
    """Raise `click.ClickException` for a database of another revision, and name a place for a new one."""
    from muniment.operate import databases
    from muniment.protocol.errors import AnotherRevision
    from muniment.service.storage import sqlite_file

    try:
        databases.refuse_another_revision(settings)
    except AnotherRevision as error:
        is_ours = sqlite_file(settings.database_url, data_dir=settings.data_dir) is not None
        place = ". For a new one beside it: `muniment demo --data-dir DIR`, or `make run DATA=DIR`" if is_ours else ""
        raise click.ClickException(f"{error}{place}") from error


def _wait_until_ended(service: subprocess.Popen[str]) -> None:
    """Wait in steps. A signal that comes just before a system call begins does not end it, so a step is short."""
    while service.poll() is None:
        time.sleep(_STEP_SECONDS)


def _walk(url: str, settings: Settings, nodes: Sequence[str] = (), *, leaves_trigger: bool = False) -> str | None:
    """Walk through the service, unless the trigger of an earlier walk is active still; the trigger that is left."""
    from muniment.operate.walkthrough import Walkthrough

    walk = Walkthrough(
        url=url, bundle=_sample(), nodes=nodes, protocol=settings.protocol_name, leaves_trigger=leaves_trigger,
        on_step=lambda step, outcome: output.print_text(f"  {step:<12} {outcome}"),
    )  # fmt: skip
    return (walk.find_left() if leaves_trigger else None) or walk.run()


def _sample() -> Bundle:
    from muniment.client import Bundle

    folder = files("muniment.cli") / "sample"
    return Bundle((folder / "manifest.json").read_bytes(), (folder / "function.wasm").read_bytes())


def _sample_day(settings: Settings) -> str:
    """Fill the registry with a day of sample data, if it has no record; what was done, in a line, or nothing.

    Before the service starts, because the times of the records are in the past.
    """
    from muniment.operate import databases
    from muniment.operate.sample_day.standing import standing

    if settings.migrates_at_start:
        databases.migrate(settings, patience_s=databases.START_PATIENCE_S)
    found = standing(settings, time.time_ns() // 1_000_000)
    if found.holds == "all":
        return ""
    if found.holds == "others":
        return "It has records or a transparency log already, so no sample data were added."
    from muniment.operate.sample_day.filling import fill

    made = fill(settings, _sample(), found.begin_ms)
    return (
        f"Sample data of the last 24 hours: {made.functions} functions, {made.triggers} triggers, {made.runs} runs, "
        f"{made.intents} intents.\nTheir wallets are test accounts whose keys everybody knows: send them nothing."
    )


def _pages(settings: Settings, url: str, left: str | None) -> str:
    """Where to look in a browser; nothing without the console."""
    if not settings.console:
        return ""
    trigger = f"The active trigger: {url}/console/triggers/{left}\n" if left else ""
    return f"{trigger}The console, for a browser: {url}/console"


@contextmanager
def _service(settings: Settings, day: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run a service as a process until the end of the block; yield it with its URL. `day` is told after its start."""
    # Clients reach it at its own URL, not at the public one of the settings.
    ours = {"MUNIMENT_LOG_LEVEL": "warning", "MUNIMENT_PUBLIC_URL": ""}
    if not settings.tlog_name:
        ours["MUNIMENT_TLOG_NAME"] = "demo.invalid"
    environment = {**os.environ, **settings.environment(), **ours}
    command = [sys.executable, "-m", "muniment", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:  # noqa: S603 - this program
        assert service.stdout is not None  # noqa: S101 - it is a pipe
        try:
            line = service.stdout.readline()
            if "listens on " not in line:
                raise OSError("the service did not start; its message is above")
            url = line.partition("listens on ")[2].split()[0]
            _wait_until_ready(url)
            output.print_text(f"{line.strip()}\n{day}".strip())
            yield service, url
        except (KeyboardInterrupt, output.StoppedWhileWaiting):
            output.print_text("\nStopping.")
        finally:
            service.terminate()


@contextmanager
def _relayer(settings: Settings, url: str) -> Generator[None]:
    """Run a relayer of the service at `url` as a process until the end of the block, if its libraries are there."""
    if missing := [name for name in ("wasmtime", "eth_abi") if find_spec(name) is None]:
        output.print_note(f"No relayer: it needs {' and '.join(missing)}. Type: pip install 'muniment[relayer]'")
        yield
        return
    directory = settings.data_dir / "relayer"
    durable.make_directory(directory)
    file = directory / "relayer.toml"
    chains = f"chains_file = {json.dumps(str(Path(settings.chains_file).absolute()))}\n" if settings.chains_file else ""
    file.write_text(
        f"[relayer]\nregistry = {json.dumps(url)}\nprotocol = {json.dumps(settings.protocol_name)}\n"
        f'signers = ["*"]\nfunctions = ["*"]\nchains = ["*"]\n{chains}',
        "utf-8",
    )
    # It is given by the environment, so no file has it.
    environment = {**os.environ, "MUNIMENT_OPERATOR_KEY": _new_operator_key(settings), "MUNIMENT_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "muniment", "relayer", "--config", str(file)]
    with subprocess.Popen(command, env=environment) as relayer:  # noqa: S603 - this program
        output.print_text("A relayer runs too: `muniment runs list` shows the first run within a minute or so.")
        try:
            yield
        finally:
            relayer.terminate()


def _new_operator_key(settings: Settings) -> str:
    """A new key for the operator of the demo, in place of the one of an earlier demo."""
    from muniment.operate import databases
    from muniment.operate.sample_day.operator import renew_key

    return databases.run(settings, lambda database: renew_key(database, time.time_ns() // 1_000_000))


def _wait_until_ready(url: str) -> None:
    from muniment.operate.http_request import ping

    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        try:
            ping(url, path="/readyz")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _where_next(url: str) -> str:
    return (
        f"Where to look next:\n  {url}/docs in a browser: every operation and error\n"
        f"  curl {url}/functions\n  curl '{url}/triggers?active=false'\n  curl {url}/openapi.json"
    )
