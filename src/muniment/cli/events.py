"""`muniment events`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from muniment.cli import output
from muniment.cli.options import common_options, json_option, settings_of
from muniment.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


F = TypeVar("F", bound="Callable[..., Any]")
# Options, the parameters of GET /events that they stand for, and what they choose.
_FILTERS: Final = {
    "--type": ("types", "events of this type, like trigger.created"),
    "--owner": ("owner", "events about this signer, creator or user"),
    "--signer": ("signer", "trigger events of this signer"),
    "--function": ("functionCid", "events about the function with this CID"),
    "--user": ("user", "intent events of this user"),
    "--config-sig": ("configSig", "intent events of this trigger"),
    "--settler": ("settler", "intent events of this settlement contract"),
}


def filter_options(command: F) -> F:
    """Add the options to a command; `take_filters` reads them from its keyword arguments."""
    for option, (parameter, chosen) in reversed(_FILTERS.items()):
        text = f"Only {chosen}; can be repeated."
        command = click.option(option, _argument(parameter), multiple=True, help=text)(command)
    return command


def take_filters(flags: dict[str, Any]) -> dict[str, list[str]]:
    """The values that were given for parameters of GET /events, which are removed from `flags`."""
    found = {parameter: list(flags.pop(_argument(parameter))) for parameter, _ in _FILTERS.values()}
    return {parameter: values for parameter, values in found.items() if values}


def _argument(parameter: str) -> str:
    return f"only_{parameter.lower()}"


_COLORS: Final = {"created": "green", "deactivated": "red", "changed": "yellow", "logged": "blue"}
# Signatures and hashes begin like this and go on; the rest is in the JSON.
_SHORT: Final = 18
_DETAILS: Final = ("status", "version", "proposals", "logs", "signer", "creator", "user")


class _CommandFailedError(click.ClickException):
    """The command of `--exec` failed. The event comes again at the next start."""

    exit_code = 3


@click.group()
def events() -> None:
    """The change feed of a service."""


@events.command("follow")
@common_options
@click.option("--url", default="", help="URL of the service; default: the host and port of the settings.")
@filter_options
@click.option(
    "--state", type=click.Path(path_type=Path, dir_okay=False),
    help="File that keeps the position, where the next start continues.",
)  # fmt: skip
@click.option("--reset", is_flag=True, help="If the position is too old, continue from now instead of ending.")
@click.option("--exec", "command", default="", help="Shell command to run for each event, with its JSON as input.")
@json_option
def follow_events(
    config: Path | None, url: str, state: Path | None, command: str, *, reset: bool, as_json: bool, **flags: Any
) -> None:
    """Show changes as they happen, until Ctrl-C.

    A line for each event; JSON with --json and where the output is no terminal. With --state nothing is missed between
    two starts. With --exec an event counts as seen when the command has succeeded; a failure ends this with status 3.
    A signal ends this after the present event; a second one ends it at once.
    """
    from muniment.operate.follow_events import EventFollower

    filters = [(parameter, value) for parameter, values in take_filters(flags).items() for value in values]
    settings = settings_of(config, **flags)
    show = _print_json if as_json or not sys.stdout.isatty() else _print_line
    stop = output.StopRequest(ends_at_second=True)
    follower = EventFollower(
        url or settings.own_url, filters, _runner(command, stop) if command else show, output.print_note,
        state=state, stores_each=bool(command), begins_again=reset, waiting=stop.waiting,
    )  # fmt: skip
    with output.errors_on_one_line(), stop.listening():
        try:
            follower.run()
        except (output.StoppedWhileWaiting, KeyboardInterrupt):
            raise SystemExit(stop.status) from None


def _runner(command: str, stop: output.StopRequest) -> Callable[[Mapping[str, Any]], None]:
    def run(event: Mapping[str, Any]) -> None:
        done = subprocess.run(command, shell=True, input=json.dumps(event).encode(), check=False)  # noqa: S602 - the caller's own command
        if done.returncode and stop.is_made():  # Ctrl-C in a terminal ends the command too
            raise output.StoppedWhileWaiting
        if done.returncode:
            raise _CommandFailedError(f"the command ended with status {done.returncode} at the event {event['id']}")

    return run


def _print_json(event: Mapping[str, Any]) -> None:
    click.echo(json.dumps(event, separators=(",", ":")))


def _print_line(event: Mapping[str, Any]) -> None:
    name: str = event["type"].removeprefix("muniment.")
    subject = event["subject"] if len(event["subject"]) <= _SHORT else f"{event['subject'][:_SHORT]}…"
    data: Mapping[str, Any] = event["data"]
    details = " ".join(f"{each}={data[each]}" for each in _DETAILS if each in data)
    styled = click.style(printable(f"{name:20}"), fg=_COLORS.get(name.rpartition(".")[2]))
    click.echo(f"{printable(event['time'])}  {styled}  {printable(f'{subject:{_SHORT + 1}}  {details}')}".rstrip())
