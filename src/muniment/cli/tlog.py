"""`muniment tlog`: commands for operators and followers of the transparency log."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from muniment.cli import output
from muniment.cli.client.service import failures
from muniment.cli.options import common_options, in_registry, json_option
from muniment.protocol.visible import visible
from muniment.text_files import read_text_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from muniment.client import Forked, Progress, Registry, Rules, Seen
    from muniment.protocol.log.entries import DeactivationFact
    from muniment.protocol.log.notes import Note
    from muniment.service.resources.log.store import Epoch


@click.group()
def tlog() -> None:
    """The transparency log: follow it, or run it."""


@contextmanager
def _races_told() -> Generator[None]:
    """Say it where another process changed the log at the same time."""
    from muniment.service.resources.log.store import Overtaken

    try:
        yield
    except Overtaken:
        raise ValueError(
            "another process changed the log meanwhile: see `muniment tlog status`, then repeat the command"
        ) from None


@tlog.command("status")
@common_options
@json_option
def show_status(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Print the log's epochs and backlog, and the state of this host. It changes nothing."""
    import msgspec

    from muniment.service.resources.log.operating import look

    state = in_registry(config, flags, look)
    output.print_result(msgspec.to_builtins(state), str(state), as_json=as_json)


@tlog.command("freeze")
@common_options
def freeze_log(config: Path | None, **flags: object) -> None:
    """Stop the log until `muniment tlog resume`. Nothing is added and nothing is signed.

    The service keeps running, and its records wait for the log. Do this before you move the database.
    """
    from muniment.service.resources.log.operating import freeze

    with _races_told():
        _print_epoch(in_registry(config, flags, freeze))


@tlog.command("resume")
@common_options
@click.option(
    "--seen", multiple=True, type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="A file with a published checkpoint of this log; can be repeated.",
)  # fmt: skip
@click.option(
    "--nothing-published-since", "is_nothing_published", is_flag=True,
    help="Assert that this database has every published checkpoint; if not, the log forks.",
)  # fmt: skip
def resume_log(config: Path | None, seen: tuple[Path, ...], *, is_nothing_published: bool, **flags: object) -> None:
    """Resume a frozen or halted log on this host.

    It first checks the whole stored tree, and that it begins with every known checkpoint. If a check fails, the command
    refuses: begin another epoch with `muniment tlog begin`.
    """
    from muniment.service.resources.log.operating import resume

    with _races_told():
        notes = [read_text_file(path, FILE_BYTES_MAX) for path in seen]
        work = partial(resume, seen=notes, is_nothing_published=is_nothing_published)
        _print_epoch(in_registry(config, flags, work))


@tlog.command("begin")
@common_options
def begin_epoch(config: Path | None, **flags: object) -> None:
    """Begin another epoch of the log, after a loss.

    The new epoch has its own origin. Its first entry names the last tree that this host knows to be signed, so everyone
    sees what is missing. Followers run `muniment tlog verify --accept`.
    """
    from muniment.service.resources.log.operating import begin

    with _races_told():
        _print_epoch(in_registry(config, flags, begin))


@tlog.command("rotate")
@common_options
def rotate_key(config: Path | None, **flags: object) -> None:
    """Replace the key of the log.

    The epoch ends with an entry that names the next key, and the next epoch begins with a new secret. On SQLite the
    command keeps it in the file `tlog-key`; elsewhere give it in MUNIMENT_TLOG_KEY_NEXT, and to the services then in
    MUNIMENT_TLOG_KEY. The command can be repeated after an interruption.
    """
    from muniment.service.resources.log.operating import rotate

    with _races_told():
        _print_epoch(in_registry(config, flags, rotate))


def _print_epoch(epoch: Epoch) -> None:
    output.print_text(f"{epoch.origin} is {epoch.state}, with {output.counted(epoch.size, 'entry')}\n{epoch.vkey}")


FORKED: Final = 1
UNAVAILABLE: Final = 2
NOT_ANNOUNCED: Final = 3
# A checkpoint with the signatures of many witnesses; a policy file has as many bytes at most.
FILE_BYTES_MAX: Final = 1_000_000
_EXISTING = click.Path(path_type=Path, dir_okay=False, exists=True)


@tlog.command("verify")
@click.argument("url")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="File that keeps the verified state.")
@click.option("--policy", type=_EXISTING, help="tlog-policy file: the witnesses that must have signed.")
@click.option("--against", multiple=True, type=_EXISTING, help="A checkpoint that others have seen; can be repeated.")
@click.option("--accept", is_flag=True, help="Follow a new log that the previous one does not announce.")
def verify_log(url: str, state: Path | None, policy: Path | None, against: tuple[Path, ...], *, accept: bool) -> None:
    """Verify that the log of the registry at URL only grows. Nothing in it may be backdated.

    The first time it trusts the keys of the log, and reads all of it. With --state it keeps the last checkpoint, and
    in FILE.known the records that the log has; the next time it checks that the log continues from there, and has no
    second entry for a record. Exit status: 0 all is well; 1 the log contradicts itself or is backdated (proof of a
    fork in files); 2 it cannot be verified now; 3 a new log that the last one does not announce.
    """
    from dataclasses import replace

    from muniment.cli.log_tables import known_records

    try:
        seen = read_seen(state)
        rules = rules_of(policy, against, accepts=accept)
        # The file may be ahead of the state, which is written after it: what is in it twice is the same entry.
        with known_records(state and state.with_name(f"{state.name}.known")) as known:
            progress = _followed(url, seen, replace(rules, known=known))
    except (ValueError, OSError) as error:
        raise click.UsageError(visible(str(error))) from error
    if state is not None:
        write_seen(state, progress.seen)
    output.print_text(verified_text(progress, is_first=seen is None))
    if state is None:
        output.print_note("nothing was saved: with --state FILE the next run checks that the log continues")
    for fault in progress.faults:
        output.print_text(f"WRONG {visible(fault)}")
    if progress.faults:
        raise SystemExit(FORKED)


def _followed(url: str, seen: Seen | None, rules: Rules) -> Progress:
    from muniment.client import Registry

    with Registry(url) as registry:
        return follow_or_exit(registry, seen, rules)


def follow_or_exit(registry: Registry, seen: Seen | None, rules: Rules) -> Progress:
    """Follow the log; a fault ends the command with its status."""
    from muniment.client import Forged, Forked, Late, NotAnnounced, NotARegistry, Unreachable
    from muniment.protocol.errors import Refusal

    try:
        return registry.log.follow(seen, rules)
    except Forked as fork:
        output.print_text(f"WRONG {visible(str(fork))}")
        for path in keep_fork(fork):
            output.print_text(f"proof: {path}")
        raise SystemExit(FORKED) from None
    except NotAnnounced as error:
        output.print_text(f"{visible(str(error))}\nIf the operator has explained the change, accept it with --accept")
        raise SystemExit(NOT_ANNOUNCED) from None
    except (Late, Unreachable, NotARegistry, Forged, Refusal) as error:
        kind = "FORGED: " if isinstance(error, Forged) else ""
        output.print_text(f"not verified: {kind}{visible(str(error))}")
        raise SystemExit(UNAVAILABLE) from None


def rules_of(policy: Path | None, against: tuple[Path, ...], *, accepts: bool) -> Rules:
    """The rules that the options say, for the time of now. Raises `ValueError` and `OSError`."""
    from muniment.client import Rules
    from muniment.protocol.log.policy import parse_policy

    parsed = parse_policy(read_text_file(policy, FILE_BYTES_MAX)) if policy else None
    return Rules(int(time.time()), parsed, [_note(path) for path in against], accepts)


def _note(path: Path) -> Note:
    from muniment.protocol.log.notes import parse_note

    try:
        return parse_note(read_text_file(path, FILE_BYTES_MAX))
    except ValueError as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from None


def read_seen(path: Path | None) -> Seen | None:
    """The state in the file; None without a file. Raises `ValueError`."""
    import msgspec

    from muniment.client import Seen

    if path is None or not path.exists():
        return None
    try:
        return msgspec.json.decode(read_text_file(path, FILE_BYTES_MAX), type=Seen)
    except msgspec.DecodeError:
        raise ValueError(f"{path} was not written by this command") from None


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
    """The outcome of a verification, as text."""
    from muniment.protocol.wire import iso_time

    when, size = iso_time(progress.signed_at_s * 1000), output.counted(progress.size, "entry")
    first = "\nits keys are now trusted:\n" + "\n".join(progress.seen.vkeys) if is_first else ""
    return visible(
        f"{progress.seen.origin}: {size}, signed at {when}, {progress.new_entries} of them new and verified{first}",
        keeps="\n",
    )


_PARTIAL = re.compile(r"([0-9]{3})\.p")


@tlog.command("replay")
@click.argument("source", metavar="DIR|URL")
@click.option("--to", "target", required=True, metavar="URL", help="Registry to post them to.")
def replay_log(source: str, target: str) -> None:
    """Post the deactivations of a log to the registry at --to.

    The log is that of the registry at URL, or a mirror of its files in DIR. A deactivation is signed by the owner of
    its triggers, so the source need not be trusted. One that is already recorded changes nothing. Exit status 1:
    the registry refused one.
    """
    from muniment.client import Registry
    from muniment.protocol.errors import Refusal, TriggerNotFound

    posted = unknown = refused = 0
    # The target checks the signatures of owners, under a protocol name that is not known here.
    with failures(), Registry(target, verify=False) as registry:
        for fact in _deactivations(source):
            try:
                registry.triggers.post_deactivation(fact.trigger_sigs, fact.signature)
                posted += 1
            except TriggerNotFound:
                unknown += 1
            except Refusal as refusal:
                refused += 1
                output.print_text(f"{fact.signature}: {refusal.code or visible(refusal.detail)}")
    output.print_text(
        f"{output.counted(posted, 'deactivation')} posted, {unknown} of unknown triggers, {refused} refused"
    )
    raise SystemExit(int(refused > 0))


def _deactivations(source: str) -> Iterator[DeactivationFact]:
    from muniment.protocol.log.entries import DeactivationFact, parse_entry

    entries = _served(source) if source.startswith(("http://", "https://")) else _mirrored(Path(source))
    for data in entries:
        try:
            fact = parse_entry(data)
        except ValueError:
            continue
        if isinstance(fact, DeactivationFact):
            yield fact


def _served(url: str) -> Iterator[bytes]:
    """The entries of all epochs, the oldest first, as they are served."""
    from muniment.client import Registry

    with Registry(url) as registry:
        for bundle in registry.log.bundles():
            yield from bundle


def _mirrored(directory: Path) -> Iterator[bytes]:
    """The entries in the bundles under `directory`, which has files named as the paths of tiles are."""
    from muniment.protocol.log.tiles import BUNDLE_BYTES_MAX, WIDTH, split_entries, unpacked

    if not (folders := sorted(directory.rglob("tile/entries"))):
        raise ValueError(f"there is no mirror of a log in {directory}: no folder tile/entries")
    for path in sorted(each for folder in folders for each in folder.rglob("*") if each.is_file()):
        is_partial = _PARTIAL.fullmatch(path.parent.name)
        if is_partial and path.parent.with_name(is_partial[1]).exists():
            continue
        with path.open("rb") as file:
            data = file.read(BUNDLE_BYTES_MAX + 1)
        width = int(path.name) if is_partial else WIDTH
        yield from split_entries(unpacked(data) if data.startswith(b"\x1f\x8b") else data, width)
