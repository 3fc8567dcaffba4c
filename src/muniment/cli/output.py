"""Printing of every command: results, errors on one line, progress on standard error, and the end by a signal."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click

from muniment import durable
from muniment.errors import Refusal
from muniment.settings import SettingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence
    from types import FrameType

# A bar is drawn at most this often.
_BAR_STEPS: Final = 1_000
_CLEAR_LINE: Final = "\r\x1b[K"
# A shell adds the number of the signal to this (POSIX, 2.8.2 Exit Status for Commands).
_SIGNAL_STATUS: Final = 128
INTERRUPTED: Final = _SIGNAL_STATUS + signal.SIGINT


def printable(text: str, *, keeps: str = "") -> str:
    r"""`text` on one line, with JSON escapes for characters that a terminal would obey or that reorder others.

    The text may be a stranger's. Controls, marks of writing direction and separators of lines become `\u202e` and the
    like; a space stays, and so do the characters in `keeps`.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keeps else json.dumps(each)[1:-1] for each in text)


@contextmanager
def errors_on_one_line() -> Generator[None]:
    """Print an expected error as one line, and end with status 1. An unexpected one keeps its traceback."""
    try:
        yield
    except BrokenPipeError:  # click ends silently: the reader of the output has gone
        raise
    except (Refusal, SettingError, ValueError, OSError) as error:  # ValueError: for example a URL of no known engine
        raise click.ClickException(printable(str(error), keeps="\n")) from error


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 entry`, `2 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def print_text(text: str) -> None:
    """Print a result of any number of lines, unless it is empty."""
    if text:
        click.echo(printable(text, keeps="\n"))


def print_summary(summary: object, *, as_json: bool) -> None:
    """Print the summary of a command: its fields as JSON, or its text."""
    if as_json:
        print_json(summary)
    else:
        print_text(str(summary))


def print_json(value: Any, *, err: bool = False) -> None:
    """Print a result for programs, as JSON on one line; with `err` on standard error."""
    from muniment.wire import encode

    # Escaped, it is the same JSON.
    click.echo(printable(encode(value).decode()), err=err)


def end_at_once(status: int) -> NoReturn:
    """End the process without waiting for its threads, one of which hangs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def print_warning(line: str) -> None:
    """Print a line on standard error. On a terminal it replaces the progress bar, which is drawn again below."""
    shown = printable(line, keeps="\n")
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

    async def uninterrupted(self, step: Awaitable[bytes | None]) -> bytes | None:
        """Await a step that no signal may interrupt, inside a `waiting` block."""
        self._is_waiting = False
        result = await step
        self._is_waiting = True
        if self.number:
            raise StoppedWhileWaiting
        return result


@contextmanager
def output_file(place: str) -> Generator[IO[bytes]]:
    """A file to write, which appears at `place` when it is complete; `-` is standard output. Raises `OSError`.

    A pipe or a device at `place` is written directly.
    """
    path = Path(place)
    if place == "-":
        with _stream(sys.stdout.buffer) as stream:
            yield stream
    elif path.exists() and not path.is_file():
        with path.open("wb") as file, _stream(file) as stream:
            yield stream
    else:
        with durable.whole_file(path.resolve()) as file:  # a link stays, and its target is replaced
            yield file


@contextmanager
def _stream(stream: IO[bytes]) -> Generator[IO[bytes]]:
    try:
        yield stream
        stream.flush()
    except BaseException:
        with suppress(OSError):  # io.UnsupportedOperation: a stream without a descriptor cannot block
            _discard(stream.fileno())
        raise


def _discard(descriptor: int) -> None:
    """Send buffered bytes to the null device: closing writes them, and could wait for a reader for ever."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null_device, descriptor)
    finally:
        os.close(null_device)
