"""`muniment tlog verify`: follow the log of any registry, and keep what was seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muniment.cli import output
from muniment.cli.output import printable
from muniment.cli.tlog.group import tlog

if TYPE_CHECKING:
    from muniment.client import Forked, Progress, Registry, Rules, Seen
    from muniment.tlog.notes import Note

FORKED: Final = 1
UNAVAILABLE: Final = 2
NOT_ANNOUNCED: Final = 3
# A checkpoint with the signatures of many witnesses; a policy file has as many bytes at most.
FILE_BYTES_MAX: Final = 1_000_000
_EXISTING = click.Path(path_type=Path, dir_okay=False, exists=True)


@tlog.command("verify")
@click.argument("url")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="File that keeps what was seen.")
@click.option("--policy", type=_EXISTING, help="tlog-policy file: the witnesses that must have signed.")
@click.option("--against", multiple=True, type=_EXISTING, help="A checkpoint that others have seen; can be repeated.")
@click.option("--accept", is_flag=True, help="Follow a new log that the previous one does not announce.")
def verify_log(url: str, state: Path | None, policy: Path | None, against: tuple[Path, ...], *, accept: bool) -> None:
    """Verify that the log of the registry at URL only grows, and that nothing in it is dated back.

    The first time it trusts the keys of the log, and reads all of it. With --state it keeps the last checkpoint, and
    in FILE.known the records that the log has; the next time it checks that the log continues from there, and has no
    second entry of a record. Status 0: all is well; 1: the log has signed what it must not, and the proof is written to
    files; 2: the log cannot be verified now; 3: another log that is not announced.
    """
    from dataclasses import replace

    from muniment.cli.tlog.known import known_records

    try:
        seen = read_seen(state)
        rules = rules_of(policy, against, accepts=accept)
        # The file may be ahead of the state, which is written after it: what is in it twice is the same entry.
        with known_records(state and state.with_name(f"{state.name}.known")) as known:
            progress = _followed(url, seen, replace(rules, known=known))
    except (ValueError, OSError) as error:
        raise click.UsageError(printable(str(error))) from error
    if state is not None:
        write_seen(state, progress.seen)
    output.print_text(verified_text(progress, is_first=seen is None))
    if state is None:
        output.print_warning("nothing was saved: with --state FILE the next run checks that the log continues")
    for fault in progress.faults:
        output.print_text(f"WRONG {printable(fault)}")
    if progress.faults:
        raise SystemExit(FORKED)


def _followed(url: str, seen: Seen | None, rules: Rules) -> Progress:
    from muniment.client import Registry

    with Registry(url) as registry:
        return follow_or_exit(registry, seen, rules)


def follow_or_exit(registry: Registry, seen: Seen | None, rules: Rules) -> Progress:
    """Follow the log; what it does wrong ends the command with its status."""
    from muniment.client import Forged, Forked, Late, NotAnnounced, Unreachable
    from muniment.errors import Refusal

    try:
        return registry.log.follow(seen, rules)
    except Forked as fork:
        output.print_text(f"WRONG {printable(str(fork))}")
        for path in keep_fork(fork):
            output.print_text(f"proof: {path}")
        raise SystemExit(FORKED) from None
    except NotAnnounced as error:
        output.print_text(f"{printable(str(error))}\nIf the operator has explained the change, accept it with --accept")
        raise SystemExit(NOT_ANNOUNCED) from None
    except (Late, Unreachable, Forged, Refusal) as error:
        kind = "FORGED: " if isinstance(error, Forged) else ""
        output.print_text(f"not verified: {kind}{printable(str(error))}")
        raise SystemExit(UNAVAILABLE) from None


def rules_of(policy: Path | None, against: tuple[Path, ...], *, accepts: bool) -> Rules:
    """The rules that the options say, for the time of now. Raises `ValueError` and `OSError`."""
    from muniment.client import Rules
    from muniment.tlog.policy import parse_policy

    parsed = parse_policy(_bytes_of(policy)) if policy else None
    return Rules(int(time.time()), parsed, [_note(path) for path in against], accepts)


def _note(path: Path) -> Note:
    from muniment.tlog.notes import parse_note

    try:
        return parse_note(_bytes_of(path))
    except ValueError as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from None


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX)


def read_seen(path: Path | None) -> Seen | None:
    """The state in the file; None without a file. Raises `ValueError`."""
    import msgspec

    from muniment.client import Seen

    if path is None or not path.exists():
        return None
    try:
        return msgspec.json.decode(_bytes_of(path), type=Seen)
    except msgspec.DecodeError:
        raise ValueError(f"{path} is not a file of this command") from None


def write_seen(path: Path, seen: Seen) -> None:
    """Keep what was seen. Raises `OSError`."""
    import msgspec

    from muniment.durable import whole_file

    with whole_file(path) as file:
        file.write(msgspec.json.encode(seen) + b"\n")


def keep_fork(fork: Forked) -> list[Path]:
    """Write the two notes that prove a fork to files in this directory, named by their hashes."""
    import hashlib

    from muniment.durable import whole_file

    digests = [hashlib.sha256(each.note.text.encode()).hexdigest() for each in (fork.one, fork.other)]
    paths = [Path(f"fork-{digest[:16]}.note") for digest in digests]
    for path, each in zip(paths, (fork.one, fork.other), strict=True):
        with whole_file(path) as file:
            file.write(each.note.data)
    return paths


def verified_text(progress: Progress, *, is_first: bool) -> str:
    """What was verified, as text."""
    from muniment.wire import iso_time

    when, size = iso_time(progress.signed_at_s * 1000), output.counted(progress.size, "entry")
    first = "\nits keys are now trusted:\n" + "\n".join(progress.seen.vkeys) if is_first else ""
    return printable(
        f"{progress.seen.origin}: {size}, signed at {when}, {progress.new_entries} of them new and verified{first}",
        keeps="\n",
    )
