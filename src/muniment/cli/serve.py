"""`muniment serve`: one process, or several on one port, that stop in good order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from typing import TYPE_CHECKING

import click
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from muniment.cli.connections import BoundedHeads
from muniment.cli.logs import configure_logs
from muniment.errors import Refusal
from muniment.settings import SettingError, Settings, load_settings, variable
from muniment.storage import open_database

if TYPE_CHECKING:
    from muniment.app import Application

# Idle connections of relayers and proxies; most proxies close after 60 s, so they close first.
KEEP_ALIVE_SECONDS = 75
# Connections that wait to be accepted, while a process starts for instance; the kernel has a cap of its own.
BACKLOG = 2_048
# Containers more than were freed, at which young ones are looked through: a few megabytes, if all were garbage.
_ALLOCATIONS_PER_COLLECTION = 20_000


def run(settings: Settings) -> None:
    """Migrate if that is to be done at start, then serve until SIGTERM or Ctrl-C."""
    configure_logs(settings)
    try:
        _prepare(settings)
        listener = _listen(settings)
    except (Refusal, SettingError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    # What flags and files said is said again in the environment, where every worker reads it.
    said = settings.environment()
    if f"{variable('secret')}_FILE" in os.environ:
        del said[variable("secret")]  # the file stays the only place of the secrets
    os.environ.update(said)
    config = uvicorn.Config(
        "muniment.cli.serve:load_application", factory=True, workers=settings.workers, backlog=BACKLOG,
        loop="uvloop", http=BoundedHeads, ws="none", lifespan="on", log_config=None, access_log=False,
        proxy_headers=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
    )  # fmt: skip
    if settings.workers > 1:
        supervisor = Multiprocess(config, [listener])
        _announce(settings, listener.getsockname()[1])
        supervisor.run()
        if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
            raise SystemExit(STARTUP_FAILURE)
        return
    server = uvicorn.Server(config)
    # uvicorn takes over the signals when its loop runs, and raises one that stopped it again when it is done. Before
    # that a signal must not be lost, and after it there is nothing left to do: for both its own handler is right.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, server.handle_exit)
    _announce(settings, listener.getsockname()[1])
    server.run([listener])


def load_application() -> Application:
    """What each serving process loads: the application, with the settings and the logs of the environment."""
    from muniment.app import create_app  # noqa: PLC0415 - the supervisor of several workers does without

    configure_logs(load_settings())
    application = create_app()
    # What is loaded stays, and a request leaves no cycles: looking for some through everything, as often as Python
    # does by default, took a thirtieth of a create, and stopped all requests for tens of milliseconds now and then.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    return application


def _prepare(settings: Settings) -> None:
    """Do once, and where an error is told in one line, what each process would do or trip over."""
    from muniment.app import build_context  # noqa: PLC0415 - `migrate` and `--help` do without

    async def try_out() -> None:
        context = build_context(settings)
        context.secrets()
        await context.outgoing.close()
        await context.database.close()

    if settings.migrates_at_start:
        migrate(settings)
    asyncio.run(try_out())


def _listen(settings: Settings) -> socket.socket:
    """The socket that all processes accept from. Who connects before one is ready waits instead of being refused."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {settings.host} port {settings.port}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """What went wrong, without the address that Python repeats behind it."""
    return (error.strerror or str(error)).partition(" (while")[0]


def migrate(settings: Settings) -> list[str]:
    """Apply the missing migrations; their names."""

    async def apply() -> list[str]:
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            return await database.migrate()
        finally:
            await database.close()

    return asyncio.run(apply())


def _announce(settings: Settings, port: int) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    click.echo(f"Muniment listens on http://{host}:{port} (data in {settings.data_dir}); reference at /docs")
    if settings.listens_beyond_this_machine and settings.protocol_name == Settings().protocol_name:
        click.echo(
            f"Note: triggers are signed under the domain '{settings.protocol_name} Protocol - Registry', which names "
            "no deployment: a consent given to one registry of that name can be shown to another. See docs/running.md.",
            err=True,
        )
