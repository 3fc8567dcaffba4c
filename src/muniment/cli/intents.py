"""`muniment intents import` and `export`: intents from and to files of JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from muniment.chains.catalogue import load_chains
from muniment.cli.logs import configure_logs
from muniment.cli.whole_file import written
from muniment.errors import NotReady, Refusal
from muniment.intents import exporting, importing
from muniment.intents.importing import Import, Progress
from muniment.storage import open_database

if TYPE_CHECKING:
    from types import FrameType

    from muniment.settings import Settings

# Read at once of a file.
_BUFFER_BYTES: Final = 256 * 1024
_CLEAR_LINE: Final = "\r\x1b[K"


class _Impossible(click.ClickException):
    """What ends a command before its work is done: status 2, since 1 says that single lines were refused."""

    exit_code = 2


class _StoppedWhileWaiting(BaseException):
    """A signal came while a reader or a writer of ours waited for the other end; nothing is in hand."""


@dataclass(slots=True)
class _Stop:
    """What SIGINT or SIGTERM asked for. Work ends between two steps; waiting for the other end of a file ends at once.

    Only that: an exception that a signal raises elsewhere may be lost, as in the callback of a weak reference.
    """

    number: int = 0
    is_waiting: bool = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if self.is_waiting:
            raise _StoppedWhileWaiting

    @contextmanager
    def listening(self) -> Generator[None]:
        """Be the handler of both signals."""
        before = {each: signal.signal(each, self) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Raise `_StoppedWhileWaiting` if a signal came before, or comes within."""
        self.is_waiting = True
        try:
            if self.number:
                raise _StoppedWhileWaiting
            yield
        finally:
            self.is_waiting = False

    async def aside(self, step: Awaitable[bytes | None]) -> bytes | None:
        """Within `waiting`, do a step that no signal may interrupt."""
        self.is_waiting = False
        result = await step
        self.is_waiting = True
        if self.number:
            raise _StoppedWhileWaiting
        return result


@dataclass(slots=True)
class _Waiting:
    """A file that may let its reader wait."""

    file: IO[bytes]
    stop: _Stop

    def readline(self, size: int = -1, /) -> bytes:
        with self.stop.waiting():
            return self.file.readline(size)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True, kw_only=True)
class _Run:
    """An import from the command line; `place` is FILE."""

    place: str
    as_json: bool
    started: float = field(default_factory=time.monotonic)
    stop: _Stop = field(default_factory=_Stop)
    resumed_at: Progress = field(default_factory=Progress)

    async def run(self, settings: Settings, file: IO[bytes], *, restart: bool) -> int:
        chains = load_chains(Path(settings.chains_file) if settings.chains_file else None)
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            await (database.migrate() if settings.migrates_at_start else database.check())
            source = None if self.place == "-" else importing.fingerprint(file)
            if source is not None and not restart:
                self.resumed_at = await importing.progress_of(database, source)
                file.seek(self.resumed_at.bytes)
            ahead_ms = _wall_ms() - (await database.time_ms() or _wall_ms())
            job = Import(
                database=database, protocol=settings.protocol_name, chains=chains,
                grace_s=settings.settlement_grace_s, now_ms=lambda: _wall_ms() - ahead_ms,
                source=source, refused=_tell, progress=self.resumed_at,
            )  # fmt: skip
            is_done = await self._import(job, file)
        finally:
            await database.close()
        return self._summary(job, is_done=is_done)

    async def _import(self, job: Import, file: IO[bytes]) -> bool:
        if job.source is None:
            try:
                return await job.run(_Waiting(file, self.stop), lambda: not self.stop.number)
            except _StoppedWhileWaiting:
                return False
        with _progress_bar(os.fstat(file.fileno()).st_size, job.progress.bytes) as show:

            def go_on() -> bool:
                show(job.progress.bytes)
                return not self.stop.number

            return await job.run(file, go_on)

    def _summary(self, job: Import, *, is_done: bool) -> int:
        """Say what became of the file; the exit status."""
        seconds, tally, lines = time.monotonic() - self.started, job.tally, job.progress.lines
        if self.as_json:
            counts = {"lines": lines, **asdict(tally), "refusedBefore": self.resumed_at.refused}
            told = {**counts, "resumedAt": self.resumed_at.lines, "done": is_done, "seconds": round(seconds, 3)}
            click.echo(json.dumps(told))
        else:
            since = f" (lines 1 to {self.resumed_at.lines} were done before)" if self.resumed_at.lines else ""
            click.echo(
                f"{lines} lines{since}: {tally.stored} stored, {tally.unchanged} unchanged, "
                f"{job.progress.refused} refused, {tally.blank} blank; {seconds:.1f} s"
            )
        if not is_done:
            go_on = "the same command goes on there" if job.source else "give the same input again: nothing doubles"
            click.echo(f"stopped after line {lines}; {go_on}", err=True)
            return 128 + self.stop.number
        return 1 if job.progress.refused else 0


def run_import(settings: Settings, place: str, *, restart: bool, as_json: bool) -> int:
    """Import the file at `place`, or standard input for `-`; the exit status."""
    configure_logs(settings)
    run = _Run(place=place, as_json=as_json)
    with _told_in_one_line(), run.stop.listening(), _opened(place) as file:
        return asyncio.run(run.run(settings, file, restart=restart))


def run_export(settings: Settings, place: str, *, as_json: bool) -> None:
    """Export every intent to the file at `place`, or to standard output for `-`."""
    configure_logs(settings)
    exported, started, stop = exporting.Exported(), time.monotonic(), _Stop()

    async def export() -> None:
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            await database.check()
            with stop.waiting(), written(place) as file:
                pieces = exporting.lines(database, exported)
                while (piece := await stop.aside(anext(pieces, None))) is not None:
                    file.write(piece)
        finally:
            await database.close()

    try:
        with _told_in_one_line(), stop.listening():
            asyncio.run(export())
    except _StoppedWhileWaiting:
        click.echo("stopped: the export is not whole", err=True)
        raise SystemExit(128 + stop.number) from None
    seconds = round(time.monotonic() - started, 3)
    if as_json:
        click.echo(json.dumps({**asdict(exported), "seconds": seconds}), err=True)
    elif place != "-":
        click.echo(f"{exported.intents} intents, {exported.bytes} bytes; {seconds:.1f} s", err=True)


@contextmanager
def _told_in_one_line() -> Generator[None]:
    """What an operator can mend is a message and status 2."""
    try:
        yield
    except NotReady as error:
        raise _Impossible(f"{error}; run `muniment migrate`") from error
    except BrokenPipeError:  # whoever reads has enough
        raise
    except (Refusal, ValueError, OSError) as error:  # ValueError: a URL that no engine knows, a chains file
        raise _Impossible(str(error)) from error


def _tell(number: int, refusal: Refusal) -> None:
    """One line for a line that was refused: its number, the code, the reason, where, and what was found instead."""
    where = "".join(f" ({fault.pointer})" for fault in refusal.faults[:1] if fault.pointer)
    found = "".join(f"; {name} {value}" for name, value in refusal.facts.items())
    clear = _CLEAR_LINE if sys.stderr.isatty() else ""
    click.echo(f"{clear}line {number}: {refusal.code}: {refusal.detail}{where}{found}", err=True)


@contextmanager
def _opened(place: str) -> Generator[IO[bytes]]:
    if place == "-":
        yield sys.stdin.buffer
        return
    with Path(place).open("rb", buffering=_BUFFER_BYTES) as file:
        yield file


@contextmanager
def _progress_bar(length: int, position: int) -> Generator[Callable[[int], None]]:
    """What is told how many bytes are done; it shows them on a terminal and says nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=length, label="importing", file=sys.stderr) as bar:
        bar.update(position)

        def show(done: int) -> None:
            bar.update(done - bar.pos)

        yield show
