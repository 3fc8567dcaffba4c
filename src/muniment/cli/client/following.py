"""Commands that follow a listing until a signal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from muniment.cli import output
from muniment.cli.client.failing import failures
from muniment.cli.client.opening import connected, place_of

if TYPE_CHECKING:
    from muniment.client import Registry

Command = TypeVar("Command", bound=Callable[..., Any])


class Position(Protocol):
    """A place in a listing that outlives a command."""

    def read(self) -> str | None:
        """The cursor; None: the beginning of the listing."""
        ...

    def write(self, cursor: str | None) -> None:
        """Keep the cursor."""
        ...


class _NoPosition:
    """A position that is not stored."""

    def read(self) -> str | None:
        return None

    def write(self, cursor: str | None) -> None:
        del cursor


def follow_options(command: Command) -> Command:
    """Add `--state`."""
    return click.option(
        "--state", type=click.Path(path_type=Path, dir_okay=False),
        help="File that keeps the position, where the next start continues.",
    )(command)  # fmt: skip


@contextmanager
def followed(
    flags: Mapping[str, Any], state: Path | None, about: Mapping[str, str | None]
) -> Generator[tuple[Registry, Position]]:
    """The client and the position of a command that follows `about`, until Ctrl-C or SIGTERM."""
    from muniment.client import Checkpoint

    stop = output.StopRequest()
    with failures(), stop.listening():
        place = place_of(flags)
        position = _NoPosition() if state is None else Checkpoint(state, url=place.profile.url, **about)
        try:
            # A page is shown and its position kept in microseconds; a signal ends the wait for the next one.
            with stop.waiting(), connected(place) as registry:
                yield registry, position
        except output.StoppedWhileWaiting:
            raise SystemExit(stop.status) from None
