"""Records on a terminal: aligned columns and relative times. Programs get a JSON object a line."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any, Final, TypeVar

import click

from muniment.cli import output
from muniment.cli.output import printable

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
# Rows whose widths decide the columns; later rows may be wider.
_ROWS_MEASURED: Final = 100
# Signatures and hashes begin like this and go on.
_SHORT: Final = 14
_LONG: Final = 46
_STATUS_COLORS: Final = {
    "active": "green", "succeeded": "green", "created": "cyan", "ended": "yellow", "expired": "yellow",
    "deactivated": "red", "failed": "red", "discarded": "red",
}  # fmt: skip
_UNITS: Final = (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def shape_options(command: Command) -> Command:
    """Add `--json` and `--whole`."""
    for option in (
        click.option("--whole", "-w", is_flag=True, help="Show whole signatures and hashes."),
        click.option("--json/--columns", "as_json", default=None, help="Default: JSON, unless on a terminal."),
    ):
        command = option(command)
    return command


def is_for_programs(as_json: bool | None) -> bool:  # noqa: FBT001 - the value of an option
    """Whether JSON is printed: `--json`, or an output that is no terminal."""
    return not sys.stdout.isatty() if as_json is None else as_json


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and the text of a record in it."""

    title: str
    text: Callable[[Any], str]
    is_status: bool = False


def show_all(records: Iterable[T], columns: Sequence[Column], *, as_json: bool | None, empty: str) -> None:
    """Print records as they come. Without records, print `empty` on standard error."""
    if is_for_programs(as_json):
        for record in records:
            show_json(record)
        return
    found = iter(records)
    first = [_texts(each, columns) for each in islice(found, _ROWS_MEASURED)]
    if not first:
        click.echo(empty, err=True)
        return
    titles = [column.title for column in columns]
    widths = [max(map(len, each)) for each in zip(titles, *first, strict=True)]
    click.echo(_styled("  ".join(map(str.ljust, titles, widths)).rstrip(), bold=True))
    for row in chain(first, (_texts(each, columns) for each in found)):
        cells = [
            _styled(text.ljust(width), fg=_STATUS_COLORS.get(text)) if column.is_status else text.ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def show_one(record: object, members: Mapping[str, str], *, as_json: bool | None) -> None:
    """Print one record: its members below each other, or all of it as JSON."""
    if is_for_programs(as_json):
        show_json(record)
        return
    width = max(map(len, members))
    for name, text in members.items():
        first, *more = printable(text, keeps="\n").split("\n")
        click.echo(f"{_styled(f'{name:{width}}', bold=True)}  {first}")
        for line in more:
            click.echo(f"{'':{width}}  {line}")


def show_json(record: object) -> None:
    """Print a record as JSON on one line."""
    from muniment.wire import encode

    # Escaped, it is the same JSON.
    click.echo(printable(encode(record).decode()))


def short(text: str, *, whole: bool = False) -> str:
    """A signature or hash, or its beginning and end."""
    return text if whole or len(text) <= _LONG else f"{text[:_SHORT]}…{text[-4:]}"


def ago(text: str) -> str:
    """A time of the interface relative to now, such as `3 minutes ago`; any other text unchanged."""
    try:
        return relative(datetime.fromisoformat(text).timestamp() - time.time())
    except ValueError:
        return text


def relative(seconds: float) -> str:
    """A distance in time from now; positive: it is to come."""
    amount = abs(seconds)
    for name, unit in _UNITS:
        if amount >= unit:
            count = int(amount // unit)
            text = f"{count} {name}{'s' if count > 1 else ''}"
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now" if amount < 1 else (f"in {int(amount)} s" if seconds > 0 else f"{int(amount)} s ago")


def until_ms(at_ms: int) -> str:
    """The end of a trigger, in milliseconds since 1970; 0 is no end."""
    return "never" if at_ms == 0 else relative(at_ms / 1000 - time.time())


@contextmanager
def transfers() -> Generator[Callable[[str, int, int], None]]:
    """Show long uploads and downloads on a terminal: a bar, or the bytes so far if the total is unknown."""
    counted: list[str] = []
    with output.progress_bars() as draw:

        def show(name: str, done: int, count: int) -> None:
            if count:
                draw(name, done, count)
            elif output.shows_progress():
                counted[:] = [f"{name}  {done / 1_000_000:.1f} MB"]
                click.echo(f"\r{counted[0]}", nl=False, err=True)

        yield show
    if counted:
        click.echo(err=True)


def note(text: str) -> None:
    """Print a text on standard error."""
    click.echo(printable(text, keeps="\n"), err=True)


def _texts(record: object, columns: Sequence[Column]) -> list[str]:
    return [printable(column.text(record).replace("\n", " ")) for column in columns]


def _styled(text: str, **style: Any) -> str:
    """`text` in a style, on a terminal whose user wants colours (no-color.org)."""
    is_wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, **style) if is_wanted else text
