"""`muniment operators`."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, in_database, json_option


@click.group()
def operators() -> None:
    """The operators that can write intents and runs."""


@operators.command("add")
@common_options
@click.argument("name")
@click.option(
    "--address", metavar="0x…", help="Address under which the runs of NAME are published; default: the zero address."
)
@json_option
def add_operator(config: Path | None, name: str, address: str | None, *, as_json: bool, **flags: object) -> None:
    """Add NAME and print its key, which is shown once. A revoked NAME gets a new key, and keeps its address."""
    from muniment.protocol.evm.address import Address
    from muniment.service.resources import operators

    shown = None if address is None else Address.parse(address)
    key, now_ms = operators.new_key(secrets.token_bytes), _now_ms()
    in_database(config, flags, lambda db: db.write(lambda tx: operators.add(tx, name, key, now_ms, shown)))
    added = {"name": name, "key": key, **({} if shown is None else {"address": shown})}
    output.print_result(added, key, as_json=as_json)


@operators.command("list")
@common_options
@json_option
def list_operators(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Print every operator, revoked ones too; never a key."""
    from muniment.protocol.wire import iso_time
    from muniment.service.resources import operators

    found = in_database(config, flags, operators.fetch_all)
    rows = [
        {
            "name": each.name, "createdAt": iso_time(each.created_at_ms),
            "revokedAt": None if each.revoked_at_ms is None else iso_time(each.revoked_at_ms), "address": each.address,
        }
        for each in found
    ]  # fmt: skip
    empty = "no operators; `muniment operators add NAME` adds one"
    output.print_result(rows, "\n".join(map(_line, rows)), as_json=as_json, empty=empty)


@operators.command("revoke")
@common_options
@click.argument("name")
def revoke_operator(config: Path | None, name: str, **flags: object) -> None:
    """Revoke the key of NAME. A running service refuses it at once."""
    from muniment.service.resources import operators

    now_ms = _now_ms()
    in_database(config, flags, lambda db: db.write(lambda tx: operators.revoke(tx, name, now_ms)))
    output.print_text(f"the key of {name} is revoked")


@operators.command("audit")
@common_options
@click.option("--operator", help="Only the writes of this operator.")
@click.option("--intent", help="Only the writes to the intent with this hash.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Most writes to print.")
@json_option
def audit_operators(
    config: Path | None, operator: str | None, intent: str | None, limit: int, *, as_json: bool, **flags: object
) -> None:
    """Print the writes of operators, newest first."""
    from muniment.protocol.evm.hex import Bytes32
    from muniment.protocol.wire import iso_time
    from muniment.service.resources import operators

    intent_hash = None if intent is None else Bytes32.parse(intent).raw
    found = in_database(
        config, flags, lambda db: operators.audited(db, operator=operator, intent_hash=intent_hash, limit=limit)
    )
    rows = [
        {
            "at": iso_time(each.at_ms), "operator": each.operator, "action": each.action,
            "intent": Bytes32.from_raw(each.intent_hash),
        }
        for each in found
    ]  # fmt: skip
    text, empty = ("\n".join("  ".join(row.values()) for row in rows), "no writes: operators write intents with keys")
    output.print_result(rows, text, as_json=as_json, empty=empty)


def _line(row: dict[str, str | None]) -> str:
    known = f" as {row['address']}" if row["address"] else ""
    ended = f", revoked {row['revokedAt']}" if row["revokedAt"] else ""
    return f"{row['name']}{known} since {row['createdAt']}{ended}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
