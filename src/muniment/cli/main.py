"""The `muniment` command: the groups of its sub-commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import click
from click.shell_completion import get_completion_class

from muniment.cli.examples import add_examples

# The commands, and where each one is.
_USE_A_REGISTRY: Final = {
    "login": "client.account:login", "logout": "client.account:logout", "whoami": "client.account:whoami",
    "profiles": "client.account:profiles", "api-key": "client.account:api_key", "balances": "client.account:balances",
    "deploy": "client.functions:deploy", "functions": "client.functions:functions",
    "triggers": "client.triggers:triggers", "run": "run:run", "runs": "runs:runs", "intents": "intents:intents",
    "events": "events:events", "verify": "checks:verify", "completion": "main:completion",
}  # fmt: skip
_RUN_A_REGISTRY: Final = {
    "serve": "serve:serve", "demo": "demo:demo", "migrate": "serve:migrate", "config": "serve:show_config",
    "doctor": "checks:doctor", "ping": "checks:ping", "backup": "backup:backup", "restore": "backup:restore",
    "secrets": "secrets:secrets", "blocks": "blocks:blocks", "database": "database:database", "epoch": "database:epoch",
    "users": "users:users", "chains": "chains:chains", "operators": "operators:operators",
    "relayer": "relayer:relayer", "webhooks": "webhooks:webhooks", "tlog": "tlog:tlog",
}  # fmt: skip

# The commands that are gone.
_REMOVED: Final[Mapping[str, str]] = {"pins": "blocks:pins"}


class _Commands(MutableMapping[str, click.Command]):
    """The commands by name. The module of a command is loaded when the command is read: together they take 2 MB."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """`places` has the module in this package, and the name there, of each command."""
        self._known: dict[str, str | click.Command] = {**places}

    def __getitem__(self, name: str) -> click.Command:
        known = self._known[name]
        if isinstance(known, str):
            module, _, attribute = known.partition(":")
            known = cast("click.Command", getattr(import_module(f"muniment.cli.{module}"), attribute))
            add_examples(known, name)
            self._known[name] = known
        return known

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str, default: Any = None) -> Any:
        # Without this, a `KeyError` of a module that is loaded would read as an unknown command.
        return self[name] if name in self._known else default

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


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
        for title, names in (("Use a registry", _USE_A_REGISTRY), ("Run a registry", _RUN_A_REGISTRY)):
            commands = [(name, self.commands[name]) for name in self.list_commands(ctx) if name in names]
            width = formatter.width - 6 - max(len(name) for name, _ in commands)
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(width)) for name, command in commands])


@click.group(
    cls=_Sections,
    commands=_Commands({**_USE_A_REGISTRY, **_RUN_A_REGISTRY, **_REMOVED}),
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
