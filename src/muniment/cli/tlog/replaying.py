"""`muniment tlog replay`: give the deactivations of a log to a registry that may lack them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muniment.cli import output
from muniment.cli.client.failing import failures
from muniment.cli.output import printable
from muniment.cli.tlog.group import tlog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.tlog.entries import DeactivationFact

_PARTIAL = re.compile(r"([0-9]{3})\.p")


@tlog.command("replay")
@click.argument("source", metavar="DIR|URL")
@click.option("--to", "target", required=True, metavar="URL", help="The registry that gets them.")
def replay_log(source: str, target: str) -> None:
    """Post the deactivations of a log to the registry at --to.

    The log is that of the registry at URL, or a mirror of its files in DIR. A deactivation is signed by the owner of
    its triggers, so it needs no trust, and one that is recorded already changes nothing. The status is 1 if the
    registry refused one.
    """
    from muniment.client import Registry
    from muniment.errors import Refusal, TriggerNotFound

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
                output.print_text(f"{fact.signature}: {refusal.code or printable(refusal.detail)}")
    output.print_text(
        f"{output.counted(posted, 'deactivation')} posted, {unknown} of unknown triggers, {refused} refused"
    )
    raise SystemExit(int(refused > 0))


def _deactivations(source: str) -> Iterator[DeactivationFact]:
    from muniment.tlog.entries import DeactivationFact, parse_entry

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
    from muniment.tlog.tiles import BUNDLE_BYTES_MAX, WIDTH, split_entries, unpacked

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
