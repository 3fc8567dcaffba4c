"""`muniment triggers`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.cli.client.drafts import draft_options, read_draft, read_trigger
from muniment.cli.client.failing import failures
from muniment.cli.client.following import follow_options, followed
from muniment.cli.client.opening import opened, service_options
from muniment.cli.client.showing import (
    Column,
    ago,
    note,
    shape_options,
    short,
    show_all,
    show_json,
    show_one,
    until_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client import Registry, TriggerDraft
    from muniment.triggers.types import Preview, Trigger


@click.group()
def triggers() -> None:
    """The triggers of a registry: the runs that wallets have signed for."""


@triggers.command()
@draft_options
@service_options
@shape_options
def preview(*, as_json: bool | None, whole: bool, **flags: Any) -> None:
    """Describe a draft in plain words, made here from the proved manifest. Nothing is signed."""
    del whole
    with opened(flags) as registry:
        found = registry.triggers.preview(read_draft(flags))
    show_one(found, _spoken(found), as_json=as_json)


@triggers.command()
@draft_options
@click.option("--yes", is_flag=True, help="Ask nothing.")
@service_options
def sign(*, yes: bool, **flags: Any) -> None:
    """Sign a draft, and print the signed trigger as JSON: `triggers create FILE` registers it, on any machine."""
    with failures():
        draft = read_draft(flags)
    with opened(flags, needs="signature") as registry:
        _ask(registry, draft, yes=yes)
        signed = registry.triggers.sign(draft)
    show_json(signed)


@triggers.command()
@draft_options
@click.option("--yes", is_flag=True, help="Ask nothing.")
@service_options
@shape_options
def create(*, yes: bool, as_json: bool | None, whole: bool, **flags: Any) -> None:
    """Sign a draft and register it; or register the signed trigger in FILE."""
    from muniment.client import TriggerDraft

    with failures():
        given = read_trigger(flags)
    with opened(flags, needs="signature" if isinstance(given, TriggerDraft) else "") as registry:
        if isinstance(given, TriggerDraft):
            _ask(registry, given, yes=yes)
        trigger = registry.triggers.create(given)
    show_one(trigger, _members(trigger, whole=whole), as_json=as_json)


@triggers.command("list")
@click.option("--by", metavar="ADDRESS", help="Only those of this wallet.")
@click.option("--function", "cid", help="Only those of this function.")
@click.option("--active/--ended", default=None, help="Only those that may run, or only the others.")
@service_options
@shape_options
def list_triggers(
    *, by: str | None, cid: str | None, active: bool | None, as_json: bool | None, whole: bool, **flags: Any
) -> None:
    """List triggers, the oldest first. The signature of each is checked."""
    with opened(flags) as registry:
        found = registry.triggers.list(signer=by, function_cid=cid, active=active)
        show_all(found, _columns(whole=whole), as_json=as_json, empty="no triggers")


@triggers.command("show")
@click.argument("sig")
@service_options
@shape_options
def show_trigger(sig: str, *, as_json: bool | None, whole: bool, **flags: Any) -> None:
    """Show a trigger. Its signature is checked."""
    with opened(flags) as registry:
        trigger = registry.triggers.get(sig)
    show_one(trigger, _members(trigger, whole=whole), as_json=as_json)


@triggers.command("follow")
@click.option("--by", metavar="ADDRESS", help="Only those of this wallet.")
@click.option("--function", "cid", help="Only those of this function.")
@follow_options
@service_options
@shape_options
def follow_triggers(
    *, by: str | None, cid: str | None, state: Path | None, as_json: bool | None, whole: bool, **flags: Any
) -> None:
    """Show triggers as they are registered, until Ctrl-C: all from the first on, or those since the last start."""
    with followed(flags, state, {"of": "triggers", "by": by, "function": cid}) as (registry, position):
        pages = registry.triggers.follow(after=position.read(), signer=by, function_cid=cid)
        for page in pages:
            show_all(page, _columns(whole=whole), as_json=as_json, empty="")
            position.write(page.cursor)


@triggers.command()
@click.argument("sigs", nargs=-1, required=True, metavar="SIG…")
@click.option("--yes", is_flag=True, help="Ask nothing.")
@service_options
def deactivate(sigs: Sequence[str], *, yes: bool, **flags: Any) -> None:
    """End triggers for ever, with one signature of their owner."""
    if not yes and sys.stdin.isatty():
        what = "this trigger" if len(sigs) == 1 else f"{len(sigs)} triggers"
        click.confirm(f"End {what} for ever?", abort=True, err=True)
    with opened(flags, needs="signature") as registry:
        registry.triggers.deactivate(sigs)
    note(f"{len(sigs)} triggers are deactivated" if len(sigs) > 1 else "the trigger is deactivated")


def _ask(registry: Registry, draft: TriggerDraft, *, yes: bool) -> None:
    """Print what a signature allows, and ask on a terminal."""
    found = registry.triggers.preview(draft)
    for line in (*found.summary, *(f"Next run: {each}" for each in found.next_runs[:1])):
        note(line)
    for line in found.warnings:
        note(f"Warning: {line}")
    if not yes and sys.stdin.isatty():
        click.confirm("Sign it?", abort=True, err=True)


def _spoken(preview_: Preview) -> dict[str, str]:
    spoken = {"trigger": "\n".join(preview_.summary)}
    if preview_.next_runs:
        spoken["next runs"] = "\n".join(preview_.next_runs)
    if preview_.warnings:
        spoken["warning"] = "\n".join(preview_.warnings)
    return spoken


def _status(trigger: Trigger) -> str:
    import time

    from msgspec import UNSET

    if trigger.deactivate_sig is not UNSET:
        return "deactivated"
    return "ended" if 0 < trigger.end_date <= time.time() * 1000 else "active"


def _columns(*, whole: bool) -> list[Column]:
    return [
        Column("SIGNATURE", lambda each: short(each.sig, whole=whole)), Column("STATUS", _status, is_status=True),
        Column("SIGNER", lambda each: each.signer),
        Column("FUNCTION", lambda each: short(each.function_cid, whole=whole)),
        Column("VERSION", lambda each: each.version), Column("CREATED", lambda each: ago(each.created_at)),
        Column("END", lambda each: until_ms(each.end_date)), Column("DESCRIPTION", lambda each: each.description),
    ]  # fmt: skip


def _members(trigger: Trigger, *, whole: bool) -> dict[str, str]:
    from muniment.wire import encode

    del whole  # one trigger is always shown whole
    claimed = "(as the service says)"
    return {
        "signature": trigger.sig, "signer": trigger.signer, "function": trigger.function_cid,
        "version": trigger.version, "config": encode(trigger.config).decode(), "input": encode(trigger.input).decode(),
        "fee limit": trigger.execution_fee_limit, "validations": str(trigger.min_validations),
        "end": until_ms(trigger.end_date), "status": f"{_status(trigger)} {claimed}",
        "created": f"{ago(trigger.created_at)} {claimed}", "description": f"{trigger.description} {claimed}",
    }  # fmt: skip
