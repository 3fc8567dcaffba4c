"""The commands about intents and those who write them."""

# ruff: noqa: PLC0415 - a sub-command imports what it needs, so that `--help` is quick

from __future__ import annotations

from pathlib import Path

import click

from muniment.cli.options import as_json_option, common, told, told_in_one_line, with_chains
from muniment.cli.registry import registry_of


@click.group()
def operators() -> None:
    """Who may write intents, and what they wrote."""


@operators.command("add")
@common
@click.argument("name")
@as_json_option
def add_operator(config: Path | None, name: str, *, as_json: bool, **flags: object) -> None:
    """Print a key for NAME; it is shown this once. A name that was revoked gets a new key."""
    from muniment.cli import operators as run

    told(lambda: run.add(registry_of(config, **flags), name, as_json=as_json))


@operators.command("list")
@common
@as_json_option
def list_operators(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Print every operator that ever was; never a key."""
    from muniment.cli import operators as run

    told(lambda: run.show(registry_of(config, **flags), as_json=as_json))


@operators.command("revoke")
@common
@click.argument("name")
def revoke_operator(config: Path | None, name: str, **flags: object) -> None:
    """Take the key of NAME back. A running service refuses it at once."""
    from muniment.cli import operators as run

    told(lambda: run.revoke(registry_of(config, **flags), name))


@operators.command("audit")
@common
@click.option("--operator", help="Only what this one wrote.")
@click.option("--intent", help="Only what was written of the intent with this hash.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="The newest so many.")
@as_json_option
def audit_operators(
    config: Path | None, operator: str | None, intent: str | None, limit: int, *, as_json: bool, **flags: object
) -> None:
    """Print what operators wrote, newest first."""
    from muniment.cli import operators as run

    told(
        lambda: run.audit(registry_of(config, **flags), operator=operator, intent=intent, limit=limit, as_json=as_json)
    )


@click.group()
def intents() -> None:
    """Intents, in files and from chains."""


@intents.command("import")
@common
@with_chains
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--restart", is_flag=True, help="Begin again at the first line of a file that was begun before.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def import_intents(config: Path | None, file: str, restart: bool, as_json: bool, **flags: object) -> None:  # noqa: FBT001 - click passes by name
    """Record the intents of FILE (- for standard input): JSON lines, one intent a line.

    Refused lines are told on standard error by number, and cost no other line. The same command goes on where an
    import was interrupted. Exit status: 0 every line is recorded, 1 some were refused, 2 the import could not be done.
    """
    from muniment.cli.intents import run_import

    raise SystemExit(run_import(registry_of(config, **flags), file, restart=restart, as_json=as_json))


@intents.command("export")
@common
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@click.option("--json", "as_json", is_flag=True, help="Print the summary, on standard error, as JSON.")
def export_intents(config: Path | None, file: str, as_json: bool, **flags: object) -> None:  # noqa: FBT001 - click passes by name
    """Write every intent to FILE (default: standard output), as `import` reads them.

    A file appears when it is whole.
    """
    from muniment.cli.intents import run_export

    run_export(registry_of(config, **flags), file, as_json=as_json)


@intents.command("watch")
@common
@with_chains
@click.option("--once", is_flag=True, help="Follow every chain to its head; exit status 1 when one was not reached.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3_600), default=4, show_default=True, help="Seconds between looks."
)
@click.option(
    "--from",
    "from_block",
    type=click.IntRange(0, 2**53 - 1),
    help="Read a chain again from this block on, before it is followed further; see below.",
)
@click.option("--chain", "chain_id", type=int, help="The chain that --from is a block of, where several are followed.")
@click.option("--json", "as_json", is_flag=True, help="Print each step as a line of JSON.")
def watch_intents(
    config: Path | None,
    *,
    once: bool,
    interval: float,
    from_block: int | None,
    chain_id: int | None,
    as_json: bool,
    **flags: object,
) -> None:
    """Follow the settlement contracts on chain. Of several that run one follows, the others stand by.

    With --from BLOCK the registry forgets what that chain told it from BLOCK on, and reads it again: intents then
    read as operators said, until the events have come again. What operators wrote stays. The same again ends in the
    same state. A chain that was not followed as far as BLOCK goes on where it was; one that was not begun begins there.
    Stop the process that follows first.
    """
    from muniment.cli.watching import Options, run

    options = Options(once=once, interval_s=interval, as_json=as_json, from_block=from_block, chain_id=chain_id)
    with told_in_one_line():
        raise SystemExit(run(registry_of(config, **flags), options))
