"""`muniment serve`: one process, or several on one port, that stop in good order."""

from __future__ import annotations

import asyncio
import os

import click

from muniment.cli.logs import configure_logs
from muniment.errors import Refusal
from muniment.server.run import ServedApplication, listen, serve, settle_memory
from muniment.settings import SettingError, Settings, load_settings, variable
from muniment.storage import open_database


def run(settings: Settings) -> None:
    """Migrate if that is to be done at start, then serve until SIGTERM or Ctrl-C."""
    configure_logs(settings)
    try:
        _prepare(settings)
        listener = listen(settings.host, settings.port)
    except (Refusal, SettingError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    # What flags and files said is said again in the environment, where every worker reads it.
    said = settings.environment()
    if f"{variable('secret')}_FILE" in os.environ:
        del said[variable("secret")]  # the file stays the only place of the secrets
    os.environ.update(said)
    _announce(settings, listener.getsockname()[1])
    serve(
        listener, "muniment.cli.serve:load_application",
        workers=settings.workers, stop_seconds_max=settings.shutdown_timeout_s,
    )  # fmt: skip


def load_application() -> ServedApplication:
    """What each serving process loads: the application, with the settings and the logs of the environment."""
    from muniment.app import Application, build_context  # noqa: PLC0415 - the supervisor of several workers does without

    settings = load_settings()
    configure_logs(settings)
    application = Application(build_context(settings, shares_limits=True))
    context = application.context
    served = ServedApplication(
        application, application.lifespan,
        now_s=lambda: context.now_ms() / 1000, head_seconds_max=settings.body_timeout_s,
        connections_max=settings.connections_max,
        is_proxy=application.admission.is_proxy, client_name=application.admission.client_name,
    )  # fmt: skip
    settle_memory()
    return served


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
    if settings.data_dir.stat().st_mode & 0o077:
        click.echo(
            f"Note: others on this machine may enter {settings.data_dir}, which holds emails and profiles; "
            "chmod -R go= makes it the service's alone.",
            err=True,
        )
