"""`muniment intents`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from muniment.cli import output
from muniment.cli.client.intents import COMMANDS
from muniment.cli.options import common_options, in_database
from muniment.cli.removed import removed_command
from muniment.cli.watch import watch

_INSTEAD_OF_IMPORT: Final = (
    "the client's `put` in a loop records intents (docs/use/relaying.md), and `muniment database copy` moves a whole "
    "registry"
)
_INSTEAD_OF_EXPORT: Final = (
    "`muniment intents list --all --json` prints every intent, and `muniment intents download` mirrors them in a file"
)


@click.group()
def intents() -> None:
    """The intents of a service."""


for _command in (
    watch,
    *COMMANDS,
    removed_command("import", _INSTEAD_OF_IMPORT),
    removed_command("export", _INSTEAD_OF_EXPORT),
):
    intents.add_command(_command)


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
