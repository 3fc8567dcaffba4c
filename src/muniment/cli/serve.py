"""`muniment serve`: one process, or several on one port, that stop in good order."""

from __future__ import annotations

import asyncio
import os
import signal

import click
import uvicorn
from uvicorn.supervisors import Multiprocess

from muniment.auth.secrets import RingFile
from muniment.cli.logs import configure_logs
from muniment.errors import Refusal
from muniment.settings import SettingError, Settings
from muniment.storage import open_database

# Idle connections of relayers and proxies; most proxies close after 60 s, so they close first.
KEEP_ALIVE_SECONDS = 75


def run(settings: Settings) -> None:
    """Migrate, then serve until SIGTERM or Ctrl-C."""
    configure_logs(settings)
    try:
        migrate(settings)
        if not settings.secret:
            RingFile(settings.data_dir)()
    except (Refusal, SettingError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    # What flags and files said is said again in the environment, where every worker reads it.
    os.environ.update(settings.environment())
    config = uvicorn.Config(
        "muniment.app:create_app", factory=True, host=settings.host, port=settings.port, workers=settings.workers,
        loop="uvloop", http="httptools", lifespan="on", log_config=None, access_log=False,
        proxy_headers=False, server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
    )  # fmt: skip
    listener = config.bind_socket()
    _announce(settings, listener.getsockname()[1])
    if settings.workers > 1:
        Multiprocess(config, [listener]).run()
        return
    # uvicorn stops in good order at a signal and then raises it again; by then everything is done, so end with 0.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _done)
    server = uvicorn.Server(config)
    server.run([listener])
    if not server.started:
        raise SystemExit(3)


def _done(*_: object) -> None:
    """Nothing is left to do."""


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
