"""`muniment demo`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muniment.cli import output
from muniment.cli.client.service import failures
from muniment.cli.options import chains_option, common_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from muniment.service.running.settings import Settings

# Enough for a cold start on a slow disk; a warm start takes well under a second.
_START_SECONDS_MAX: Final = 30
# How long a Ctrl-C may go unnoticed.
_STEP_SECONDS: Final = 0.2


@click.command()
@common_options
@click.option("--url", help="URL of a running service; without it the command starts one, which runs until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the service that the command starts.")
@chains_option
def demo(config: Path | None, url: str | None, **flags: object) -> None:
    """Show the main operations over HTTP with a throw-away wallet."""
    from muniment.operate.walkthrough import development_nodes

    settings = settings_of(config, **flags)
    with failures(), output.errors_on_one_line():
        if url is not None:
            _walk(url, settings)
            return
        # SIGTERM reaches only this process. Ctrl-C reaches the service too, because both have the same terminal.
        stop = output.StopRequest(signals=(signal.SIGTERM,))
        with stop.listening(), _service(settings) as (service, address):
            _walk(address, settings, development_nodes(settings), leaves_trigger=True)
            console = f"The console, for a browser: {address}/console\n" if settings.console else ""
            output.print_text(f"\n{_where_next(address)}\n\n{console}The service keeps running; Ctrl-C stops it.")
            with stop.waiting():
                _wait_until_ended(service)


def _wait_until_ended(service: subprocess.Popen[str]) -> None:
    """Wait in steps. A signal that comes just before a system call begins does not end it, so a step is short."""
    while service.poll() is None:
        time.sleep(_STEP_SECONDS)


def _walk(url: str, settings: Settings, nodes: Sequence[str] = (), *, leaves_trigger: bool = False) -> None:
    from muniment.client import Bundle
    from muniment.operate.walkthrough import Walkthrough

    sample = files("muniment.cli") / "sample"
    bundle = Bundle((sample / "manifest.json").read_bytes(), (sample / "function.wasm").read_bytes())
    Walkthrough(
        url=url, bundle=bundle, nodes=nodes, protocol=settings.protocol_name, leaves_trigger=leaves_trigger,
        on_step=lambda step, outcome: output.print_text(f"  {step:<12} {outcome}"),
    ).run()  # fmt: skip


@contextmanager
def _service(settings: Settings) -> Generator[tuple[subprocess.Popen[str], str]]:
    """Run a service as a process until the end of the block; yield it with its URL."""
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
            output.print_text(line.strip())
            yield service, url
        except (KeyboardInterrupt, output.StoppedWhileWaiting):
            output.print_text("\nStopping.")
        finally:
            service.terminate()


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
