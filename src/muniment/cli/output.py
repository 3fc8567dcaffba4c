"""Printing of every command: results, tables, notes and progress on standard error, errors, and the end by a signal."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from muniment.cli.fitting import cut, fitted, terminal_width
from muniment.protocol.errors import Refusal
from muniment.protocol.visible import visible
from muniment.service.running.settings import SettingError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType


T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
# Rows whose widths decide the columns; later rows may be wider.
_ROWS_MEASURED: Final = 100
# The characters of a short signature or hash, of a short CID, and of the beginning of a short address: enough to tell
# apart those of a registry.
_SHORT: Final = 10
_SHORT_CID: Final = 14
_SHORT_ADDRESS: Final = 8
_STATUS_COLORS: Final = {
    "succeeded": "green", "active": "blue", "created": "cyan", "ended": "yellow", "expired": "yellow",
    "deactivated": "red", "failed": "red", "discarded": "red",
    "intents": "blue", "valid": "blue", "pending": "cyan", "missed": "yellow", "skipped": "yellow",
    "incomplete": "yellow", "stopped": "red", "invalid": "red",
}  # fmt: skip
_UNITS: Final = (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60))
# A bar is drawn at most this often.
_BAR_STEPS: Final = 1_000
_CLEAR_LINE: Final = "\r\x1b[K"
# A shell adds the number of the signal to this (POSIX, 2.8.2 Exit Status for Commands).
_SIGNAL_STATUS: Final = 128
INTERRUPTED: Final = _SIGNAL_STATUS + signal.SIGINT


@contextmanager
def errors_on_one_line() -> Generator[None]:
    """Print an expected error as one line, and end with status 1. An unexpected one keeps its traceback."""
    try:
        yield
    except BrokenPipeError:  # click ends silently: the reader of the output has gone
        raise
    except (Refusal, SettingError, ValueError, OSError) as error:  # ValueError: for example a URL of no known engine
        raise click.ClickException(visible(str(error), keeps="\n")) from error


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 entry`, `2 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def print_text(text: str) -> None:
    """Print a result of any number of lines, unless it is empty."""
    if text:
        click.echo(visible(text, keeps="\n"))


def print_result(result: object, text: str, *, as_json: bool, empty: str = "") -> None:
    """Print the result of a command: as JSON, or its text. Without text, print `empty` on standard error."""
    if as_json:
        print_json(result)
    elif text or not empty:
        print_text(text)
    else:
        print_note(empty)


def print_json(value: Any) -> None:
    """Print a result for programs, as JSON on one line."""
    from muniment.protocol.wire import encode

    # Escaped, it is the same JSON.
    click.echo(visible(encode(value).decode()))


def end_at_once(status: int) -> NoReturn:
    """End the process without waiting for a thread that hangs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_note(line: str) -> None:
    """Print a line on standard error. On a terminal it replaces the progress bar, which is drawn again below."""
    shown = visible(line, keeps="\n")
    click.echo(f"{_CLEAR_LINE if shows_progress() else ''}{shown}", err=True)


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def _draw_nothing(_step: str, _done: int, _count: int) -> None:
    pass


@contextmanager
def progress_bars(*, shows_count: bool = False, unit: str | None = None) -> Generator[Callable[[str, int, int], None]]:
    """A function that draws progress on standard error, if that is a terminal.

    The function takes the name of a step, the work that is done, and all the work. Each step has its own bar.
    With `unit` a bar shows a rate in `unit` per second.
    """
    if not shows_progress():
        yield _draw_nothing
        return
    bars: dict[str, Callable[[int, int], None]] = {}
    with ExitStack() as open_bar:

        def draw(step: str, done: int, count: int) -> None:
            if step not in bars:
                open_bar.close()
                bars[step] = open_bar.enter_context(_bar(step, shows_count=shows_count, unit=unit))
            bars[step](done, count)

        yield draw


@contextmanager
def _bar(label: str, *, shows_count: bool, unit: str | None) -> Generator[Callable[[int, int], None]]:
    began = time.monotonic()

    def shown(rate: str | None) -> str | None:
        return rate

    with click.progressbar(
        length=1, label=label, file=sys.stderr, show_pos=shows_count, item_show_func=shown if unit else None
    ) as bar:

        def draw(done: int, count: int) -> None:
            bar.length = max(count, 1)
            if done < count and done - bar.pos < count // _BAR_STEPS:
                return
            rate = done / max(time.monotonic() - began, 0.001)
            bar.update(done - bar.pos, f"{rate:,.0f} {unit}/s" if unit else None)

        yield draw


class StoppedWhileWaiting(BaseException):
    """A signal came while a read or a write waited for the other end of a pipe. No work is lost."""


@dataclass(slots=True)
class StopRequest:
    """The signal that asks a command to end. Work ends between two steps; only a wait for a pipe ends at once.

    An exception of a signal handler anywhere else could be lost, for example in the callback of a weak reference.
    """

    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    # Whether a second Ctrl-C ends the command at once, with `KeyboardInterrupt`.
    ends_at_second: bool = False
    # The number of the signal; 0 before it.
    number: int = 0
    _is_waiting: bool = field(default=False, init=False)

    @property
    def status(self) -> int:
        """The exit status after the signal."""
        return _SIGNAL_STATUS + self.number

    def is_made(self) -> bool:
        """Whether a signal came."""
        return bool(self.number)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.number = number
        if self.ends_at_second:
            signal.signal(number, signal.default_int_handler)
        if self._is_waiting:
            raise StoppedWhileWaiting

    @contextmanager
    def listening(self) -> Generator[None]:
        """Handle the signals within the block."""
        before = {each: signal.signal(each, self) for each in self.signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Raise `StoppedWhileWaiting` when a signal comes within the block, or came before it."""
        self._is_waiting = True
        try:
            if self.number:
                raise StoppedWhileWaiting
            yield
        finally:
            self._is_waiting = False


async def until_stopped(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None after SIGTERM or Ctrl-C, which cancel it.

    The event loop handles the signal: a handler of `StopRequest` would not wake it.
    """
    import asyncio

    task, loop = asyncio.create_task(work), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        return await task
    return None


def shape_options(command: Command) -> Command:
    """Add `--json`. `--whole` is accepted, and changes nothing: the command always shows whole values."""
    hidden = click.option("--whole", "-w", is_flag=True, hidden=True, expose_value=False)
    return _json_or_columns(hidden(command))


def table_options(command: Command) -> Command:
    """Add `--json` and `--whole`."""
    return _json_or_columns(
        click.option("--whole", "-w", is_flag=True, help="Show whole signatures and hashes.")(command)
    )


_json_or_columns = click.option(
    "--json/--columns", "as_json", default=None, help="Default: JSON, unless on a terminal."
)


def is_for_programs(as_json: bool | None) -> bool:  # noqa: FBT001 - the value of an option
    """Whether JSON is printed: `--json`, or an output that is no terminal."""
    return not sys.stdout.isatty() if as_json is None else as_json


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and the text of a record in it."""

    title: str
    text: Callable[[Any], str]
    is_status: bool = False
    # Whether its texts may be cut to fit a terminal.
    may_be_cut: bool = False


def show_all(
    records: Iterable[T], columns: Sequence[Column], *, as_json: bool | None, empty: str, fits: bool = False
) -> None:
    """Print records as they come. Without records, print `empty` on standard error.

    With `fits` the columns fit into a terminal: the texts of some are cut, and the last columns may be left out.
    """
    if is_for_programs(as_json):
        for record in records:
            print_json(record)
        return
    found = iter(records)
    first = [_texts(each, columns) for each in islice(found, _ROWS_MEASURED)]
    if not first:
        click.echo(empty, err=True)
        return
    titles = [column.title for column in columns]
    widths = [max(map(len, each)) for each in zip(titles, *first, strict=True)]
    room = terminal_width() if fits and sys.stdout.isatty() else None
    if room is not None:
        widths = fitted(widths, [column.may_be_cut for column in columns], room)
    click.echo(_styled("  ".join(map(str.ljust, titles, widths)).rstrip(), bold=True))
    for row in chain(first, (_texts(each, columns) for each in found)):
        cells = [
            _styled(text.ljust(width), fg=_STATUS_COLORS.get(text))
            if column.is_status
            else (text if room is None else cut(text, width)).ljust(width)
            for column, text, width in zip(columns, row, widths, strict=False)
        ]
        click.echo("  ".join(cells).rstrip())


def show_one(record: object, members: Mapping[str, str], *, as_json: bool | None) -> None:
    """Print a record: one member a line, or all as JSON."""
    if is_for_programs(as_json):
        print_json(record)
        return
    width = max(map(len, members))
    for name, text in members.items():
        first, *more = visible(text, keeps="\n").split("\n")
        click.echo(f"{_styled(f'{name:{width}}', bold=True)}  {first}")
        for line in more:
            click.echo(f"{'':{width}}  {line}")


def short(text: str, *, whole: bool = False) -> str:
    """The beginning of a signature, hash or CID, which commands take in its place; the text itself if `whole`."""
    return text if whole else f"{text[: _SHORT if text.startswith('0x') else _SHORT_CID]}…"


def short_address(address: str, *, whole: bool = False) -> str:
    """The beginning and the end of an address; the address itself if `whole`."""
    return address if whole else f"{address[:_SHORT_ADDRESS]}…{address[-4:]}"


def ago(text: str) -> str:
    """A time of the interface relative to now, such as `3 minutes ago`; any other text unchanged."""
    try:
        return relative(datetime.fromisoformat(text).timestamp() - time.time())
    except ValueError:
        return text


def relative(seconds: float) -> str:
    """A distance in time from now; positive: it is to come. A unit is used from two of it on: `36 hours`, not a day."""
    amount = abs(seconds)
    for name, unit in _UNITS:
        if amount >= 2 * unit:
            text = f"{int(amount // unit)} {name}s"
            return f"in {text}" if seconds > 0 else f"{text} ago"
    return "now" if amount < 1 else (f"in {int(amount)} s" if seconds > 0 else f"{int(amount)} s ago")


def until_ms(at_ms: int) -> str:
    """The end of a trigger, in milliseconds since 1970; 0 is no end."""
    return "never" if at_ms == 0 else relative(at_ms / 1000 - time.time())


@contextmanager
def transfers() -> Generator[Callable[[str, int, int], None]]:
    """Show long uploads and downloads on a terminal: a bar, or the bytes so far if the total is unknown."""
    counted: list[str] = []
    with progress_bars() as draw:

        def show(name: str, done: int, count: int) -> None:
            if count:
                draw(name, done, count)
            elif shows_progress():
                counted[:] = [f"{name}  {done / 1_000_000:.1f} MB"]
                click.echo(f"\r{counted[0]}", nl=False, err=True)

        yield show
    if counted:
        click.echo(err=True)


def _texts(record: object, columns: Sequence[Column]) -> list[str]:
    return [visible(column.text(record).replace("\n", " ")) for column in columns]


def _styled(text: str, **style: Any) -> str:
    """`text` in a style, on a terminal whose user wants colours (no-color.org)."""
    is_wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, **style) if is_wanted else text
