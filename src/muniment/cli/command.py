"""The `muniment` command and its sub-commands; what they need is imported when they run."""

# ruff: noqa: PLC0415 - a sub-command imports what it needs, so that `--help` is quick

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from muniment.cli.intent_commands import intents, operators
from muniment.cli.options import as_json_option, common, settings_of, told, told_in_one_line, with_chains
from muniment.cli.registry import (
    named_registry_of,
    registry_of,
    registry_with_blocks_of,
    require_database,
    secrets_of,
)
from muniment.settings import variable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muniment", message="muniment %(version)s")
def main() -> None:
    """Registry and intent service for wallet-signed automation on EVM chains."""
    # Files of a registry hold secrets, emails and profiles. They are their owner's alone, whichever command makes them.
    os.umask(0o077)
    _fill_standard_streams()


def _fill_standard_streams() -> None:
    """Lead standard streams that were closed at start nowhere.

    Python has none then, and the next file that is opened takes the number: a database, into which errors are printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - it stays open as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


@main.command()
@common
@click.option("--host", help="Address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one; default 8787.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that serve; default 1.")
@with_chains
def serve(config: Path | None, **flags: object) -> None:
    """Run the service."""
    from muniment.cli.serve import run

    run(settings_of(config, **flags))


@main.command()
@common
@click.option("--url", help="A running service; without it one is started, and stays up until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the service that is started.")
@with_chains
def demo(config: Path | None, url: str | None, **flags: object) -> None:
    """Show the main job done over HTTP with a throw-away wallet."""
    from muniment.cli.demo import run

    run(settings_of(config, **flags), url)


@main.command()
@common
def migrate(config: Path | None, **flags: object) -> None:
    """Bring the database to this release's schema."""
    from muniment.cli.serve import migrate as run

    with told_in_one_line():
        names = run(settings_of(config, **flags))
    click.echo("\n".join(f"applied {name}" for name in names) or "the database is up to date")


@main.command("config")
@common
def show_config(config: Path | None, **flags: object) -> None:
    """Print the effective settings, secrets masked."""
    for name, value in named_registry_of(config, **flags).shown().items():
        click.echo(f"{variable(name)}={value}")


@main.command()
@common
def verify(config: Path | None, **flags: object) -> None:
    """Compute every hash and check every signature of what is stored again."""
    from muniment.cli.verify import run

    with told_in_one_line():
        raise SystemExit(run(registry_with_blocks_of(config, **flags)))


_directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))


@main.command()
@common
@_directory
@as_json_option
def backup(config: Path | None, directory: Path, *, as_json: bool, **flags: object) -> None:
    """Back a registry on SQLite up to DIRECTORY, while it is served or not.

    That is its database as it is at this moment, the blocks of its functions, and its secrets where they are in the
    data directory. DIRECTORY holds nothing else. An earlier backup there is replaced once the new one is whole.
    """
    from muniment.cli.backup import run

    with told_in_one_line():
        run(settings_of(config, **flags), directory, as_json=as_json)


@main.command()
@common
@_directory
@click.option(
    "--rotate/--no-rotate",
    default=None,
    help="End every API key, token and nonce of before, or revive those of the backup; a terminal is asked.",
)
@as_json_option
def restore(config: Path | None, directory: Path, *, rotate: bool | None, as_json: bool, **flags: object) -> None:
    """Make a registry of the backup in DIRECTORY, in a data directory that holds none.

    The backup is checked first. What was interrupted leaves nothing that could be served; the same command again
    goes on.
    """
    from muniment.cli.restore import run

    with told_in_one_line():
        run(settings_of(config, **flags), directory, rotate=rotate, as_json=as_json)


@main.group()
def secrets() -> None:
    """The ring of secrets that tokens, nonces and API keys are made with."""


def _ring(config: Path | None, flags: dict[str, object]) -> Any:
    from muniment.auth.secrets import RingFile

    settings = secrets_of(config, **flags)
    if settings.secret:
        raise click.ClickException(f"the secrets come from {variable('secret')}; change them there")
    return RingFile(settings.data_dir)


@secrets.command("list")
@common
def list_secrets(config: Path | None, **flags: object) -> None:
    """Print the ids of the secrets, newest first; never the secrets."""
    from muniment.auth.secrets import ring_of

    with told_in_one_line():
        for secret in ring_of(_ring(config, flags)()).secrets:
            click.echo(secret.id)


@secrets.command()
@common
def rotate(config: Path | None, **flags: object) -> None:
    """Add a new secret; what older ones signed stays good. A running service takes it up at once."""
    told(lambda: f"new secret {_ring(config, flags).rotate().id}")


@secrets.command()
@common
def retire(config: Path | None, **flags: object) -> None:
    """Remove the oldest secret, and with it every token and API key made under it."""
    told(lambda: f"retired secret {_ring(config, flags).retire().id}")


@main.group()
def blocks() -> None:
    """The blocks that bundles are made of."""


@blocks.command("copy")
@common
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def copy_blocks(config: Path | None, source: str, target: str, *, as_json: bool, **flags: object) -> None:
    """Copy the blocks that TO lacks, each checked on the way.

    FROM and TO are file: (the data directory's), file:///path, database: (the service's own), or the URL of any
    database that has been migrated. What was interrupted goes on when it is started again. The status is 1 when a
    block is damaged; the others are copied.
    """
    from muniment.cli.blocks import copy

    settings = settings_of(config, **flags)
    with told_in_one_line():
        if not source.startswith("file:"):
            require_database(source, settings)
        raise SystemExit(copy(settings, source, target, as_json=as_json))


@main.group()
def database() -> None:
    """The database that a registry is kept in."""


@database.command("copy")
@common
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--blocks", "blocks_url", help="Where blocks are kept beside TO; default: what MUNIMENT_BLOCKS_URL says.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def copy_database(
    config: Path | None, source: str, target: str, blocks_url: str | None, *, as_json: bool, **flags: object
) -> None:
    """Copy a whole registry, but for its blocks, from one database to another that is empty.

    FROM and TO are URLs of databases, or database: (the service's own). Stop whoever writes to FROM, and take the
    blocks over with `muniment blocks copy` before. TO has nothing of it until it has everything. The status is 1 when
    FROM was written to meanwhile.
    """
    from muniment.cli.database_copy import copy

    settings = settings_of(config, **flags)
    if source == "database:":  # a place that is named is told as FROM
        require_database(source, settings)
    with told_in_one_line():
        raise SystemExit(copy(settings, source, target, blocks_url=blocks_url, as_json=as_json))


@main.group()
def epoch() -> None:
    """The epoch that cursors of listings are good in."""


@epoch.command("renew")
@common
def renew_epoch(config: Path | None, **flags: object) -> None:
    """Begin another epoch: cursors that were given out before are refused, and who follows listings begins again.

    Needed when the registry was set back to an earlier state by other means than `muniment restore`, such as a dump, a
    replica that lacked writes, Litestream or a copy of the disk: new rows get the numbers of those that are lost, and a
    cursor of before would pass them by. Run it before anything is served. It changes nothing else, and may be repeated.
    """
    from muniment.cli.epoch import renew

    told(lambda: renew(registry_of(config, **flags)))


@main.group()
def users() -> None:
    """What an operator knows of users."""


@users.command("set-email")
@common
@click.argument("address")
@click.argument("email", required=False)
def set_email(config: Path | None, address: str, email: str | None, **flags: object) -> None:
    """Set a user's EMAIL, or remove it when none is given. The user has logged in before."""
    from muniment.cli.users import set_email as run

    with told_in_one_line():
        click.echo(run(registry_of(config, **flags), address, email))


@main.group()
def chains() -> None:
    """The EVM chains that balances are read from."""


@chains.command("check")
@common
@with_chains
def check_chains(config: Path | None, **flags: object) -> None:
    """Ask every configured node what the service asks it, and say what is wrong."""
    from muniment.cli.chains import check_configured

    with told_in_one_line():
        raise SystemExit(check_configured(named_registry_of(config, **flags)))


main.add_command(operators)
main.add_command(intents)
