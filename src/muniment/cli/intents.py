"""`muniment intents`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from muniment.cli import output
from muniment.cli.client.intents import COMMANDS
from muniment.cli.options import chains_option, common_options, in_database, json_summary_option, registry_of
from muniment.cli.watch import watch
from muniment.protocol.errors import NotReady, Refusal

if TYPE_CHECKING:
    from collections.abc import Generator

    from muniment.service.resources.intents.json_lines import Exported, Import, Progress
    from muniment.service.running.settings import Settings

# The size of one read.
_BUFFER_BYTES: Final = 256 * 1024


class _FailedError(click.ClickException):
    """The command failed as a whole: status 2. Status 1 means that some lines were refused."""

    exit_code = 2


@click.group()
def intents() -> None:
    """The intents of a service."""


for _command in (watch, *COMMANDS):
    intents.add_command(_command)


@intents.command("import")
@common_options
@chains_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--restart", is_flag=True, help="Start at the first line, even after an interrupted import of the file.")
@json_summary_option
def import_intents(config: Path | None, *, file: str, restart: bool, as_json: bool, **flags: object) -> None:
    """Record the intents of FILE (- for standard input). It has one intent a line, as JSON.

    Each refused line is reported on standard error with its number; all other lines are recorded. An intent past
    its deadline is recorded, and reported, even if another intent has its nonce. After an interruption, run the
    command again to continue. Exit status: 0 every line is recorded, 1 some lines were refused, 2 the import failed.
    """
    import asyncio

    from muniment.cli.logs import configure_logs

    settings = registry_of(config, **flags)
    configure_logs(settings)
    stop = output.StopRequest()
    with _errors_on_one_line(), stop.listening(), _opened(file) as opened:
        raise SystemExit(
            asyncio.run(_import(settings, opened, stop, is_stream=file == "-", restart=restart, as_json=as_json))
        )


async def _import(
    settings: Settings, file: IO[bytes], stop: output.StopRequest, *, is_stream: bool, restart: bool, as_json: bool
) -> int:
    from muniment.operate.import_intents import opened_import

    began = time.monotonic()
    async with opened_import(
        settings, file, is_stream=is_stream, restart=restart, on_refused=_print_refused, on_shared=_print_shared
    ) as job:
        start = job.progress
        is_done = await (_import_file if job.source else _import_stream)(job, file, stop)
    _print_imported(job, start, time.monotonic() - began, is_done=is_done, as_json=as_json)
    if is_done:
        return int(job.progress.refused > 0)
    next_step = "run the command again to continue" if job.source else "give the same input again: it is safe to repeat"
    output.print_note(f"stopped after line {job.progress.lines}; {next_step}")
    return stop.status


async def _import_stream(job: Import, file: IO[bytes], stop: output.StopRequest) -> bool:
    """Import a file that can be read only once. The result is whether the import reached its end."""
    try:
        return await job.run(_PatientReader(file, stop), lambda: not stop.is_made())
    except output.StoppedWhileWaiting:
        return False


async def _import_file(job: Import, file: IO[bytes], stop: output.StopRequest) -> bool:
    """Import a regular file, with a progress bar. The result is whether the import reached its end."""
    length = os.fstat(file.fileno()).st_size
    with output.progress_bars() as draw:
        draw("importing", job.progress.bytes, length)

        def goes_on() -> bool:
            draw("importing", job.progress.bytes, length)
            return not stop.is_made()

        return await job.run(file, goes_on)


@dataclass(slots=True)
class _PatientReader:
    """A reader of a pipe. A signal ends its wait for the next line."""

    file: IO[bytes]
    stop: output.StopRequest

    def readline(self, size: int = -1, /) -> bytes:
        with self.stop.waiting():
            return self.file.readline(size)


def _print_imported(job: Import, start: Progress, seconds: float, *, is_done: bool, as_json: bool) -> None:
    tally, end = job.tally, job.progress
    result = {
        "lines": end.lines, **asdict(tally), "refusedBefore": start.refused, "resumedAt": start.lines,
        "done": is_done, "seconds": round(seconds, 3),
    }  # fmt: skip
    before = f" (lines 1 to {start.lines} were done before)" if start.lines else ""
    text = (
        f"{output.counted(end.lines, 'line')}{before}: {tally.stored} stored, {tally.unchanged} unchanged, "
        f"{end.refused} refused, {tally.blank} blank; {seconds:.1f} s"
    )
    output.print_result(result, text, as_json=as_json)


def _print_refused(number: int, refusal: Refusal) -> None:
    """Print the number of a refused line, the code, the reason, the place, and the facts."""
    place = "".join(f" ({fault.pointer})" for fault in refusal.faults[:1] if fault.pointer)
    facts = "".join(f"; {name} {value}" for name, value in refusal.facts.items())
    output.print_note(f"line {number}: {refusal.code}: {refusal.detail}{place}{facts}")


def _print_shared(number: int, line: str) -> None:
    output.print_note(f"line {number}: {line}")


@intents.command("release")
@common_options
@click.argument("intent_hash", metavar="HASH")
def release_nonce(config: Path | None, intent_hash: str, **flags: object) -> None:
    """Free the nonce of the intent HASH. Then another intent with its trigger, settler and nonce can be recorded.

    Use this for a nonce taken with a stolen operator key. The settlement contract executes both intents if it gets
    both: make sure that the intent HASH can no longer be sent. The audit log records the release.
    """
    from muniment.protocol.evm.hex import Bytes32
    from muniment.service.resources.intents import nonces

    raw, now_ms = Bytes32.parse(intent_hash).raw, time.time_ns() // 1_000_000
    in_database(config, flags, lambda db: db.write(lambda tx: nonces.release(tx, raw, now_ms)))
    output.print_text(f"the nonce of {Bytes32.from_raw(raw)} is free")


@intents.command("export")
@common_options
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, on standard error, as JSON.")
def export_intents(config: Path | None, *, file: str, as_json: bool, **flags: object) -> None:
    """Write every intent to FILE, in the format of `import`.

    Without FILE: to standard output. FILE appears when it is complete.
    """
    import asyncio

    from muniment.cli.logs import configure_logs
    from muniment.service.resources.intents.json_lines import Exported

    settings = registry_of(config, **flags)
    configure_logs(settings)
    exported, began, stop = Exported(), time.monotonic(), output.StopRequest()
    try:
        with _errors_on_one_line(), stop.listening():
            asyncio.run(_export(settings, file, exported, stop))
    except output.StoppedWhileWaiting:
        output.print_note("stopped: the export is incomplete")
        raise SystemExit(stop.status) from None
    seconds = round(time.monotonic() - began, 3)
    if as_json:
        output.print_json({**asdict(exported), "seconds": seconds}, err=True)
    elif file != "-":
        output.print_note(f"{output.counted(exported.intents, 'intent')}, {exported.bytes} bytes; {seconds:.1f} s")


async def _export(settings: Settings, place: str, exported: Exported, stop: output.StopRequest) -> None:
    from muniment.operate import databases
    from muniment.service.resources.intents import json_lines

    async with databases.opened(settings) as database:
        await database.check()
        with stop.waiting(), output.output_file(place) as file:
            pieces = json_lines.exported_lines(database, exported)
            while (piece := await stop.uninterrupted(anext(pieces, None))) is not None:
                file.write(piece)


@contextmanager
def _errors_on_one_line() -> Generator[None]:
    """Print an expected error as one line, and end with status 2."""
    try:
        with output.errors_on_one_line():
            yield
    except click.ClickException as error:
        hint = "; run `muniment migrate`" if isinstance(error.__cause__, NotReady) else ""
        raise _FailedError(f"{error.message}{hint}") from error


@contextmanager
def _opened(place: str) -> Generator[IO[bytes]]:
    if place == "-":
        yield sys.stdin.buffer
        return
    with Path(place).open("rb", buffering=_BUFFER_BYTES) as file:
        yield file
