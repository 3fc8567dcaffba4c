"""`muniment verify`, `muniment doctor` and `muniment ping`."""

from __future__ import annotations

from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import (
    chains_option,
    common_options,
    json_option,
    registry_of,
    registry_with_blocks_of,
    settings_of,
)


@click.command()
@common_options
@click.option("--url", "-u", help="Check what this running service shows, instead of stored data.")
@click.option("--remote", help="Like --url, and compare the service with its transparency log.")
@click.option("--protocol", help="With --url and --remote: protocol name of that registry; default: Mimic.")
def verify(config: Path | None, url: str | None, remote: str | None, protocol: str | None, **flags: object) -> None:
    """Check every hash and every signature of the stored data.

    With --url it reads everything that a service shows. With --remote it reads the whole transparency log too: what is
    listed must be logged, and what is logged must be listed. Exit status: 0 all is well, 1 (with --url: 5) something
    is wrong.
    """
    if remote is not None:
        from muniment.cli.verifying import verify_remote

        if config is not None or url is not None or any(flags.values()):
            raise click.UsageError("--remote: leave out --url, --config, --database-url and --data-dir")
        verify_remote(remote, protocol)
        return
    if url is not None:
        from muniment.cli.verifying import verify_service

        if config is not None or any(flags.values()):
            raise click.UsageError("--url: leave out --config, --database-url and --data-dir")
        verify_service({"url": url, "protocol": protocol, "profile": None, "wallet": None})
        return
    from muniment.operate.verify import verify as verify_registry

    settings = registry_with_blocks_of(config, **flags)
    summary = verify_registry(
        settings,
        on_finding=output.print_text,
        on_checked=lambda name, count: output.print_text(f"{name}: {count} checked"),
    )
    output.print_text(f"faults: {summary.wrong}" if summary.wrong else "all signatures and hashes match")
    raise SystemExit(int(summary.wrong > 0))


@click.command()
@common_options
@chains_option
@click.option("--url", default="", help="Public URL of the service, to check TLS and the proxy too.")
@click.option("--backup", type=click.Path(path_type=Path, file_okay=False), help="Directory of the newest backup.")
@json_option
def doctor(config: Path | None, url: str, backup: Path | None, *, as_json: bool, **flags: object) -> None:
    """Examine machine, settings, database, chains and proxy.

    It takes at most ten seconds.

    Run it as the service's user, with the service's settings. It changes no record. Exit status: 0 all is well, 1 a
    warning, 2 a failed check.
    """
    from muniment.operate.doctor.examination import examine
    from muniment.operate.doctor.findings import Examined, status_of

    settings = registry_of(config, **flags)
    findings, is_over = examine(Examined(settings, url, backup))
    shown = {"status": status_of(findings), "findings": [finding.shown() for finding in findings]}
    output.print_result(shown, "\n".join(map(str, findings)), as_json=as_json)
    if not is_over:
        output.end_at_once(status_of(findings))
    raise SystemExit(status_of(findings))


@click.command()
@common_options
@click.option("--url", default="", help="URL of the service; default: the host and port of the settings.")
@click.option("--alive", is_flag=True, help="Ask only whether the process runs (/healthz), not whether it is ready.")
def ping(config: Path | None, url: str, *, alive: bool, **flags: object) -> None:
    """Ask a running service whether it is ready. Exit status: 0 ready, else 1, after at most five seconds."""
    from muniment.operate.http_request import ping as ask_service

    settings = settings_of(config, **flags)
    output.print_text(ask_service(url or settings.own_url, path="/healthz" if alive else "/readyz"))
