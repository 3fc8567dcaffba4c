"""`muniment serve`, `muniment migrate` and `muniment config`."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import chains_option, common_options, named_registry_of, settings_of, settings_options
from muniment.cli.removed import removed_option
from muniment.service.running.removed import REMOVED
from muniment.service.running.settings import BARE_NONCES_NOTE, Settings, variable

if TYPE_CHECKING:
    from muniment.service.server.run import ServedApplication


@click.command()
@settings_options
@click.option("--host", help="Address to listen on, such as 0.0.0.0 or ::; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0: any free port; default 8787.")
@removed_option("--workers", REMOVED["workers"])
@chains_option
def serve(config: Path | None, **flags: object) -> None:
    """Run the service."""
    from muniment.cli.logs import configure_logs, warn_of_unread_variables
    from muniment.operate import databases
    from muniment.service.server.run import listen, serve as serve_on

    settings = settings_of(config, **flags)
    configure_logs(settings)
    warn_of_unread_variables()
    with ExitStack() as held:
        with output.errors_on_one_line():
            databases.refuse_another_revision(settings)
            held.enter_context(databases.served_alone(settings))
            if settings.migrates_at_start:
                databases.migrate(settings, patience_s=databases.START_PATIENCE_S)
            listener = held.enter_context(listen(settings.host, settings.port))

        def begin() -> ServedApplication:
            with output.errors_on_one_line():
                served = _application(settings)
            _announce(settings, listener)
            return served

        serve_on(listener, begin, stop_seconds_max=settings.shutdown_timeout_s)


def _application(settings: Settings) -> ServedApplication:
    """The application, made where its event loop runs."""
    from muniment.service.app import Application, build_context
    from muniment.service.server.run import ServedApplication, settle_memory

    application = Application(build_context(settings))
    context = application.context
    context.secrets()  # an unusable secret ends the start
    served = ServedApplication(
        application, application.lifespan,
        now_s=lambda: context.clock.now_ms() / 1000, head_seconds_max=settings.body_timeout_s,
        connections_max=settings.connections_max,
        is_proxy=application.admission.is_proxy, client_names=application.admission.client_names,
    )  # fmt: skip
    context.metrics.read_from(lambda: served.shared.connections, "http_connections")
    context.metrics.read_from(lambda: served.shared.delayed.count, "http_requests_parked")
    settle_memory()
    return served


def _announce(settings: Settings, listener: socket.socket) -> None:
    address, port = listener.getsockname()[:2]
    host = settings.host or address
    places = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    if address == "::" and not listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY):
        places += f" and http://0.0.0.0:{port}"
    pages = "console at /console, reference at /docs" if settings.console else "reference at /docs"
    output.print_text(f"Muniment listens on {places} (data in {settings.data_dir}); {pages}")
    if settings.listens_beyond_this_machine and settings.protocol_name == Settings().protocol_name:
        output.print_note(
            f"Note: triggers are signed under the domain '{settings.protocol_name} Protocol - Registry', which is the "
            "default of every deployment: a consent to one registry of that name is valid in another. See "
            "docs/run/running.md."
        )
    if settings.takes_relayed_nonces:
        output.print_note(f"Note: {BARE_NONCES_NOTE}. MUNIMENT_BARE_NONCES=false takes words only.")
    if settings.data_dir.stat().st_mode & 0o077:
        output.print_note(
            f"Note: other users of this machine can enter {settings.data_dir}, which holds email addresses and "
            "profiles; chmod -R go= makes it private."
        )


@click.command()
@common_options
def migrate(config: Path | None, **flags: object) -> None:
    """Migrate the database to the schema of this release."""
    from muniment.operate import databases

    settings = settings_of(config, **flags)
    names = databases.migrate(settings)
    output.print_text("\n".join(f"applied {name}" for name in names) or "the database is up to date")


@click.command("config")
@common_options
def show_config(config: Path | None, **flags: object) -> None:
    """Print the effective settings, with masked secrets."""
    for name, value in named_registry_of(config, **flags).shown().items():
        output.print_text(f"{variable(name)}={value}")
