"""`muniment secrets`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import common_options, secrets_of
from muniment.service.running.settings import variable

if TYPE_CHECKING:
    from muniment.service.auth.secrets import RingFile


@click.group()
def secrets() -> None:
    """The ring of secrets for tokens, nonces and API keys."""


def _ring(config: Path | None, flags: dict[str, object]) -> RingFile:
    """The file of the ring. Raises `click.ClickException` when the settings hold the secrets."""
    from muniment.service.auth.secrets import RingFile

    settings = secrets_of(config, **flags)
    if settings.secret:
        raise click.ClickException(f"the secrets come from {variable('secret')}; change them there")
    return RingFile(settings.data_dir)


@secrets.command("list")
@common_options
def list_secrets(config: Path | None, **flags: object) -> None:
    """Print the ids of the secrets, newest first; never the secrets."""
    from muniment.service.auth.secrets import ring_of

    output.print_text("\n".join(secret.id for secret in ring_of(_ring(config, flags)()).secrets))


@secrets.command()
@common_options
def rotate(config: Path | None, **flags: object) -> None:
    """Add a new secret. Signatures of older secrets stay valid. A running service uses it at once."""
    output.print_text(f"new secret {_ring(config, flags).rotate().id}")


@secrets.command()
@common_options
def retire(config: Path | None, **flags: object) -> None:
    """Remove the oldest secret, which revokes its tokens and API keys."""
    output.print_text(f"retired secret {_ring(config, flags).retire().id}")
