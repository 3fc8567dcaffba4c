"""The `muniment` command: the groups of its sub-commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from muniment.cli.backup import backup, restore
from muniment.cli.blocks import blocks, pins
from muniment.cli.chains import chains
from muniment.cli.checks import doctor, ping, verify
from muniment.cli.client.account import api_key, balances, login, logout, profiles, whoami
from muniment.cli.client.functions import deploy, functions
from muniment.cli.client.triggers import triggers
from muniment.cli.database import database, epoch
from muniment.cli.demo import demo
from muniment.cli.events import events
from muniment.cli.examples import add_examples
from muniment.cli.intents import intents
from muniment.cli.operators import operators
from muniment.cli.relayer import relayer
from muniment.cli.run import run
from muniment.cli.runs import runs
from muniment.cli.secrets import secrets
from muniment.cli.serve import migrate, serve, show_config
from muniment.cli.tlog import tlog
from muniment.cli.users import users
from muniment.cli.webhooks import webhooks


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell; it needs no network."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choices are the names of click's classes
    click.echo(kind(context.find_root().command, {}, "muniment", "_MUNIMENT_COMPLETE").source())


class _Sections(click.Group):
    """The sub-commands in two sections: those for the users of a registry, and those for its operators."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both sections."""
        used = [each.name for each in USE_A_REGISTRY]
        for title, is_used in (("Use a registry", True), ("Run a registry", False)):
            commands = [(name, self.commands[name]) for name in self.list_commands(ctx) if (name in used) is is_used]
            width = formatter.width - 6 - max(len(name) for name, _ in commands)
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in commands])


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muniment", message="muniment %(version)s")
def main() -> None:
    """Registry and intent service for wallet-signed automation on EVM chains."""
    # The files of a registry hold secrets, email addresses and profiles: only their owner can read them.
    os.umask(0o077)
    _open_missing_streams()


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that was closed at start.

    Otherwise the next file gets the number of the stream: a database, and Python would print errors into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


USE_A_REGISTRY: Final = (
    login, logout, whoami, profiles, api_key, balances, deploy, functions, triggers, run, runs, intents, events, verify,
    completion,
)  # fmt: skip
_RUN_A_REGISTRY: Final = (
    serve, demo, migrate, show_config, doctor, ping, backup, restore, secrets, blocks, database, epoch, users,
    chains, operators, relayer, pins, webhooks, tlog,
)  # fmt: skip
for _command in (*USE_A_REGISTRY, *_RUN_A_REGISTRY):
    main.add_command(_command)
add_examples(main)
