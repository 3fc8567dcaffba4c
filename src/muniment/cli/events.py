"""`muniment events`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from muniment.cli import output
from muniment.cli.client.patience import until_answered
from muniment.cli.client.service import connected, failures, follow_options, place_of, place_options
from muniment.cli.output import print_json, shape_options
from muniment.protocol.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from muniment.client import Checkpoint, Event, Page, Registry


F = TypeVar("F", bound="Callable[..., Any]")
# Options, the parameters of GET /events that they stand for, and what they choose.
_FILTERS: Final = {
    "--type": ("types", "events of this type, like trigger.created"),
    "--owner": ("owner", "events about this signer, creator or user"),
    "--signer": ("signer", "trigger and run events of this signer"),
    "--function": ("functionCid", "events about the function with this CID"),
    "--user": ("user", "intent events of this user"),
    "--config-sig": ("configSig", "intent and run events of this trigger"),
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


_COLORS: Final = {"created": "green", "recorded": "green", "deactivated": "red", "changed": "yellow", "logged": "blue"}
# Signatures and hashes begin like this and go on; the rest is in the JSON.
_SHORT: Final = 18
_DETAILS: Final = ("result", "status", "version", "proposals", "logs", "signer", "creator", "user")


class _CommandFailedError(click.ClickException):
    """The command of `--exec` failed. The event comes again at the next start."""

    exit_code = 3


@click.group()
def events() -> None:
    """The change feed of a service."""


@events.command("follow")
@filter_options
@follow_options
@click.option("--reset", is_flag=True, help="If the position is too old, continue from now instead of ending.")
@click.option("--exec", "command", default="", help="Shell command to run for each event, with its JSON as input.")
@place_options
@shape_options
def follow_events(*, state: Path | None, command: str, reset: bool, as_json: bool | None, **flags: Any) -> None:
    """Show changes as they happen, until Ctrl-C.

    One line per event, as JSON with --json or if the output is not a terminal. With --state no event is missed between
    two runs. With --exec an event counts as seen when the command has succeeded; if it fails, `follow` ends with status
    3. A signal ends `follow` after the current event; a second signal ends it at once.
    """
    from muniment.client import Checkpoint

    filters, stop = take_filters(flags), output.StopRequest(ends_at_second=True)
    show = print_json if output.is_for_programs(as_json) else _print_line
    with failures(), stop.listening():
        place = place_of(flags)
        with connected(place, tries=1) as registry:
            follower = _Follower(
                registry, filters, Checkpoint(state, of="events", url=place.profile.url),
                _runner(command, stop) if command else show, stop, stores_each=bool(command), begins_again=reset,
            )  # fmt: skip
            try:
                follower.run()
            except (output.StoppedWhileWaiting, KeyboardInterrupt):
                raise SystemExit(stop.status) from None


@dataclass(frozen=True, slots=True)
class _Follower:
    """Gives each event to `handle`, once and in order.

    The position is stored after each page, or with `stores_each` after each event.
    """

    registry: Registry
    filters: Mapping[str, Sequence[str]]
    position: Checkpoint
    handle: Callable[[Event], None]
    stop: output.StopRequest
    stores_each: bool
    begins_again: bool

    def run(self) -> None:
        """Follow until an error, or a signal."""
        after = self.position.read()
        while True:
            page = self._page(after)
            try:
                for event in page:
                    with self.stop.waiting():  # lets a signal end the loop between two events
                        pass
                    self.handle(event)
                    after = event.id
                    if self.stores_each:
                        self.position.write(after)
                after = page.cursor
            finally:
                self.position.write(after)

    def _page(self, after: str | None) -> Page[Event]:
        """The next page; without `after`, an empty one that says where the feed is now."""
        from muniment.client import CursorTooOld, Page

        events = self.registry.events
        if after is not None:
            try:
                return until_answered(partial(events.page, after, self.filters), self.stop)
            except CursorTooOld:
                if not self.begins_again:
                    raise
            output.print_note("the position is too old, so events were missed: starting with events from now on")
        return Page([], until_answered(events.begin, self.stop))


def _runner(command: str, stop: output.StopRequest) -> Callable[[Event], None]:
    from muniment.protocol.wire import encode

    def run(event: Event) -> None:
        done = subprocess.run(command, shell=True, input=encode(event), check=False)  # noqa: S602 - the caller's own command
        if done.returncode and stop.is_made():  # Ctrl-C in a terminal ends the command too
            raise output.StoppedWhileWaiting
        if done.returncode:
            raise _CommandFailedError(f"the command ended with status {done.returncode} at the event {event.id}")

    return run


def _print_line(event: Event) -> None:
    name = event.type.removeprefix("muniment.")
    subject = event.subject if len(event.subject) <= _SHORT else f"{event.subject[:_SHORT]}…"
    details = " ".join(f"{each}={event.data[each]}" for each in _DETAILS if each in event.data)
    styled = click.style(visible(f"{name:20}"), fg=_COLORS.get(name.rpartition(".")[2]))
    click.echo(f"{visible(event.time)}  {styled}  {visible(f'{subject:{_SHORT + 1}}  {details}')}".rstrip())
