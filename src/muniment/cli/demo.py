"""`muniment demo`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muniment import durable
from muniment.cli import output
from muniment.cli.client.service import failures
from muniment.cli.options import chains_option, common_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from muniment.service.running.settings import Settings

# Enough for a cold start on a slow and busy machine; a warm start takes well under a second.
_START_SECONDS_MAX: Final = 120
# How long a Ctrl-C may go unnoticed.
_STEP_SECONDS: Final = 0.2
# On every page of the console.
_NOTICE: Final = (
    "Sample data, public wallets: everybody knows their keys, those of the test accounts of anvil and Hardhat. Import "
    "one to stop its triggers; send it nothing."
)


@click.command()
@common_options
@click.option("--url", help="URL of a running service; without it the command starts one, which runs until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the service that the command starts.")
@chains_option
def demo(config: Path | None, url: str | None, **flags: object) -> None:
    """Show the main operations over HTTP with a throw-away wallet.

    Without --url it starts a service and a relayer. A registry without records gets a day of sample data first. One
    trigger of a public test wallet is left active, which the relayer runs; while it is active, a later start shows no
    operations.
    """
    from muniment.cli import walk

    settings = settings_of(config, **flags)
    with failures(), output.errors_on_one_line():
        if url is not None:
            walk.walk(url, settings.protocol_name)
            return
        from muniment.operate.databases import served_alone
        from muniment.operate.sample_day import add_sample_day

        # SIGTERM reaches only this process. Ctrl-C reaches the service too, because both have the same terminal.
        stop = output.StopRequest(signals=(signal.SIGTERM,))
        _refuse_another_revision(settings)
        # Before the service starts, because the times of the records are in the past. Any signal may interrupt it.
        with served_alone(settings):
            day = add_sample_day(settings, walk.sample())
        ends = suppress(KeyboardInterrupt, output.StoppedWhileWaiting)
        settings = _at_own_url(settings)
        with ends, stop.listening(), _service(settings) as (service, line):
            left, steps = walk.walk_and_leave(settings.own_url, settings)
            output.print_text(f"{line}\n{_pages(settings, left)}{day}\n{steps}")
            with _relayer(settings, settings.own_url), stop.waiting():
                output.print_text(_where_next(settings.own_url, left))
                # In steps: a signal that comes just before a system call begins does not end it.
                while service.poll() is None:
                    time.sleep(_STEP_SECONDS)


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


def _at_own_url(settings: Settings) -> Settings:
    """The settings with a free port for port 0; clients log in at the URL of this machine, not at a public one."""
    from muniment.service.server.run import listen

    if not settings.port:
        with listen(settings.host, 0) as free:
            settings = replace(settings, port=free.getsockname()[1])
    return replace(settings, public_url=settings.own_url, console_notice=_NOTICE)


def _pages(settings: Settings, left: str) -> str:
    url = settings.own_url
    pages = f"The console, for a browser: {url}/console\nThe active trigger: {url}/console/triggers/{left}\n"
    return pages if settings.console else ""


def _where_next(url: str, left: str) -> str:
    from muniment.operate.sample_day.records import KEYS

    return (
        f"\nWhere to look next:\n  {url}/docs in a browser: every operation and error\n"
        f"  curl {url}/functions\n  curl '{url}/triggers?active=false'\n  curl {url}/openapi.json\n\n"
        "To stop the active trigger, import its wallet into a browser's and press Stop on its page, or type:\n"
        f"  MUNIMENT_PRIVATE_KEY={KEYS[0].hex()} muniment triggers deactivate --yes --url {url} {left}\n\n"
        "The service keeps running; Ctrl-C stops it."
    )


@contextmanager
def _service(settings: Settings) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run a service as a process until the end of the block; yield it with the line that it prints."""
    from muniment.operate.http_request import ping

    ours = {"MUNIMENT_LOG_LEVEL": "warning"}
    if not settings.tlog_name:
        ours["MUNIMENT_TLOG_NAME"] = "demo.invalid"
    environment = {**os.environ, **settings.environment(), **ours}
    command = [sys.executable, "-m", "muniment", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as service:  # noqa: S603 - this program
        assert service.stdout is not None  # noqa: S101 - it is a pipe
        try:
            line = service.stdout.readline().strip()
            if "listens on " not in line:
                raise OSError("the service did not start; its message is above")
            deadline = time.monotonic() + _START_SECONDS_MAX
            while True:
                try:
                    ping(settings.own_url, path="/readyz")
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                time.sleep(0.05)
            yield service, line
        except (KeyboardInterrupt, output.StoppedWhileWaiting):
            output.print_text("\nStopping.")
            raise
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
        output.print_text(f"A relayer runs too: `muniment runs list --url {url}` shows the first run within a minute.")
        try:
            yield
        finally:
            relayer.terminate()


def _new_operator_key(settings: Settings) -> str:
    """A new key for the operator of the demo, in place of the one of an earlier demo."""
    from muniment.operate import databases
    from muniment.operate.sample_day import renew_key

    return databases.run(settings, lambda database: renew_key(database, time.time_ns() // 1_000_000))
