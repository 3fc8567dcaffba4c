"""`muniment tlog status`, `freeze`, `resume`, `begin` and `rotate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.options import common_options, in_registry, json_option
from muniment.cli.tlog.group import tlog

if TYPE_CHECKING:
    from muniment.tlog.sequencing.store import Epoch

# A checkpoint with the signatures of many witnesses.
_NOTE_BYTES_MAX = 1_000_000


@tlog.command("status")
@common_options
@json_option
def show_status(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Print the epochs of the log, its backlog, and the state of this host. It changes nothing."""
    from muniment.tlog.operating.status import look, shown

    with output.errors_on_one_line():
        state = in_registry(config, flags, look)
    if as_json:
        output.print_json(shown(state))
    else:
        output.print_text(str(state))


@tlog.command("freeze")
@common_options
def freeze_log(config: Path | None, **flags: object) -> None:
    """Stop the log: nothing is added and nothing is signed until `muniment tlog resume`.

    The service keeps running, and its records wait for the log. Do this before the database moves.
    """
    from muniment.tlog.operating.standing import freeze

    with output.errors_on_one_line():
        _tell(in_registry(config, flags, freeze))


@tlog.command("resume")
@common_options
@click.option(
    "--seen", multiple=True, type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="A file with a published checkpoint of this log; can be repeated.",
)  # fmt: skip
@click.option(
    "--nothing-published-since", "is_nothing_published", is_flag=True,
    help="No checkpoint was published that this database lacks. If that is wrong, the log forks.",
)  # fmt: skip
def resume_log(config: Path | None, seen: tuple[Path, ...], *, is_nothing_published: bool, **flags: object) -> None:
    """Resume a frozen or halted log, here.

    It first checks the whole stored tree, and that it begins with every checkpoint that is known. Where it does not,
    it refuses: `muniment tlog begin` then begins another epoch.
    """
    from muniment.tlog.operating.standing import resume

    with output.errors_on_one_line():
        notes = [_note(path) for path in seen]
        work = partial(resume, seen=notes, is_nothing_published=is_nothing_published)
        _tell(in_registry(config, flags, work))


@tlog.command("begin")
@common_options
def begin_epoch(config: Path | None, **flags: object) -> None:
    """Begin another epoch of the log, after a loss.

    It has another origin. Its first entry names the last tree that this host knows to be signed, so everybody sees what
    is missing. Followers must accept it.
    """
    from muniment.tlog.operating.succession import begin

    with output.errors_on_one_line():
        _tell(in_registry(config, flags, begin))


@tlog.command("rotate")
@common_options
def rotate_key(config: Path | None, **flags: object) -> None:
    """Replace the key of the log.

    The epoch ends with an entry that names the next key, and the next epoch begins with a new secret. On SQLite it is
    in the file `tlog-key` afterwards; elsewhere it is that of MUNIMENT_TLOG_KEY_NEXT, which the services then need as
    MUNIMENT_TLOG_KEY. The command can be repeated after an interruption.
    """
    from muniment.tlog.operating.succession import rotate

    with output.errors_on_one_line():
        _tell(in_registry(config, flags, rotate))


def _note(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_NOTE_BYTES_MAX)


def _tell(epoch: Epoch) -> None:
    output.print_text(f"{epoch.origin} is {epoch.state}, with {output.counted(epoch.size, 'entry')}\n{epoch.vkey}")
