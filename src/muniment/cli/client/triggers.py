"""`muniment triggers`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from muniment.cli.client.listing import list_options, show_newest, sum_up
from muniment.cli.client.service import failures, follow_options, followed, opened, service_options
from muniment.cli.client.short_ids import whole_own_trigger, whole_trigger
from muniment.cli.client.when import config_of, event_hash, given_options, when_options
from muniment.cli.output import (
    Column,
    ago,
    is_for_programs,
    print_json,
    print_note,
    shape_options,
    short,
    short_address,
    show_all,
    show_one,
    table_options,
    until_ms,
)
from muniment.text_files import plain_text, read_text_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client import Registry, SignedTrigger, TriggerDraft
    from muniment.protocol.triggers.types import Preview, Trigger


Command = TypeVar("Command", bound=Callable[..., Any])
_FILE_BYTES_MAX: Final = 1024 * 1024
# Options of a draft, by their parameters, besides those that say when it runs.
_OTHERS: Final = {"cid": "--function", "inputs": "--input", "fee_limit": "--fee-limit", "description": "--description"}
# Amounts of a trigger in its row.
_AMOUNTS_MAX: Final = 2
# The newest intents and runs of a trigger that are counted: a page of each.
_COUNTED: Final = 100
_SAFE_INTEGER_MAX: Final = 2**53 - 1
_INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,15}")


def draft_options(command: Command) -> Command:
    """Add the options of a draft."""
    for option in (
        click.option("--description", default="", help="Your own description; it is not signed."),
        click.option("--validations", type=int, default=1, show_default=True, help="Validations that a run needs."),
        click.option(
            "--fee-limit",
            help="Highest fee of a run, in US dollars × 10^18, or none; default: 1000000000000000000, one dollar.",
        ),
        click.option("--version", default="1.0.0", show_default=True, help="Version of the trigger."),
        when_options,
        click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input; can be repeated."),
        click.option("--function", "cid", help="CID of the function."),
        click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False),
    ):
        command = option(command)
    return command


def read_trigger(flags: Mapping[str, Any]) -> TriggerDraft | SignedTrigger:
    """The draft of the options, with its inputs as texts, or the draft or signed trigger in FILE.

    Raises `ValueError`, `Refusal`, `OSError`.
    """
    from muniment.client import SignedTrigger, TriggerDraft
    from muniment.protocol.forms import decode_record
    from muniment.protocol.json_text import parse_json

    if flags["file"] is None:
        return _draft(flags)
    if given := [option for name, option in _OTHERS.items() if flags[name]] + given_options(flags):
        raise ValueError(f"give a FILE or {', '.join(given)}, not both: the file has all of the draft")
    content: Any = parse_json(read_place(flags["file"], _FILE_BYTES_MAX))
    is_signed = isinstance(content, dict) and "sig" in cast("dict[str, Any]", content)
    return decode_record(cast("object", content), SignedTrigger if is_signed else TriggerDraft)


def read_draft(flags: Mapping[str, Any]) -> TriggerDraft:
    """As `read_trigger`; a signed trigger is a `ValueError`."""
    from muniment.client import TriggerDraft

    found = read_trigger(flags)
    if not isinstance(found, TriggerDraft):
        raise ValueError("the file has a signed trigger; give a draft")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _with_values(registry: Registry, draft: TriggerDraft, flags: Mapping[str, Any]) -> TriggerDraft:
    """A draft of options with the values of its inputs; one of a FILE has them."""
    from msgspec.structs import replace

    if flags["file"] is not None:
        return draft
    return replace(draft, input=typed_inputs(draft.input, registry.functions.manifest(draft.function_cid).inputs))


def _draft(flags: Mapping[str, Any]) -> TriggerDraft:
    from muniment.client import TriggerDraft
    from muniment.client.flows.triggers import FEE_LIMIT
    from muniment.protocol.errors import InvalidAmount
    from muniment.protocol.wire import Amount

    if flags["cid"] is None:
        raise ValueError("name the function with --function CID, or give a FILE with a draft")
    given = FEE_LIMIT if flags["fee_limit"] is None else flags["fee_limit"]
    try:
        fee_limit = Amount.parse("0" if given == "none" else given)
    except InvalidAmount as refusal:
        half = 10**18 // 2
        raise ValueError(
            f"--fee-limit {given}: {refusal.detail}. It is none, or in US dollars × 10^18; {half} is half a dollar"
        ) from refusal
    return TriggerDraft.of(
        flags["cid"], config=config_of(flags), input=texts_of(flags["inputs"]), version=flags["version"],
        execution_fee_limit=fee_limit, min_validations=flags["validations"],
        description=flags["description"] or "Signed on the command line",
    )  # fmt: skip


def texts_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """The texts of `--input NAME=VALUE`, by name. Raises `ValueError`."""
    texts: dict[str, str] = {}
    for pair in pairs:
        name, is_given, text = pair.partition("=")
        if not is_given or name in texts:
            raise ValueError(f"--input {pair}: give NAME=VALUE, each name once")
        texts[name] = text
    return texts


def typed_inputs(texts: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Any]:
    """The values of inputs, by the types that a manifest has for them.

    A text that is no value of its type is kept: the draft's check names it. Raises `ValueError` for a Token or a
    TokenAmount that is not JSON.
    """
    return {name: _value(name, text, types.get(name, "string")) for name, text in texts.items()}


def _value(name: str, text: str, word: str) -> Any:
    from muniment.protocol.json_text import parse_json

    if word in {"Token", "TokenAmount"}:
        try:
            return parse_json(text.encode())
        except ValueError as error:
            raise ValueError(f"--input {name}: a {word} is given as a JSON object: {error}") from error
    if word == "bool":
        return {"true": True, "false": False}.get(text, text)
    # Larger integers are texts, as the interface has them.
    is_number = word.startswith(("int", "uint")) and _INTEGER.fullmatch(text) and abs(int(text)) <= _SAFE_INTEGER_MAX
    return int(text) if is_number else text


def read_place(place: str, bytes_max: int) -> bytes:
    """The text in a file, or on standard input for `-`. Raises `OSError`."""
    if place == "-":
        return plain_text(sys.stdin.buffer.read(bytes_max))
    return read_text_file(Path(place), bytes_max)


@click.group()
def triggers() -> None:
    """The triggers of a registry: signed consents to run functions."""


@triggers.command()
@draft_options
@service_options
@shape_options
def preview(*, as_json: bool | None, **flags: Any) -> None:
    """Describe a draft in plain words. Nothing is signed.

    The words are made here, from the proved manifest.
    """
    with opened(flags) as registry:
        found = registry.triggers.preview(_with_values(registry, read_draft(flags), flags))
    show_one(found, _spoken(found, event_hash(flags)), as_json=as_json)


@triggers.command()
@draft_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_options
def sign(*, yes: bool, **flags: Any) -> None:
    """Sign a draft, and print the signed trigger as JSON. `triggers create FILE` registers it, on any machine."""
    with failures():
        draft = read_draft(flags)
    with opened(flags, needs="signature") as registry:
        draft = _with_values(registry, draft, flags)
        _ask(registry, draft, event_hash(flags), yes=yes)
        signed = registry.triggers.sign(draft)
    print_json(signed)


@triggers.command()
@draft_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_options
@shape_options
def create(*, yes: bool, as_json: bool | None, **flags: Any) -> None:
    """Sign a draft and register it, or register a signed FILE."""
    from muniment.client import TriggerDraft

    with failures():
        given = read_trigger(flags)
    with opened(flags, needs="signature" if isinstance(given, TriggerDraft) else "") as registry:
        if isinstance(given, TriggerDraft):
            given = _with_values(registry, given, flags)
            _ask(registry, given, event_hash(flags), yes=yes)
        trigger = registry.triggers.create(given, on_repeated=_note_repetition)
    show_one(trigger, _members(trigger), as_json=as_json)


@triggers.command("list")
@click.option("--signer", metavar="ADDRESS", help="Only those that this address signed.")
@click.option("--function", "cid", help="Only those of this function.")
@click.option("--active/--ended", default=None, help="Only active ones, or only the others.")
@service_options
@list_options
def list_triggers(
    *, signer: str | None, cid: str | None, active: bool | None, limit: int | None, every: bool, as_json: bool | None,
    whole: bool, **flags: Any,
) -> None:  # fmt: skip
    """List triggers, the newest first. The signature of each is checked."""
    with opened(flags) as registry:
        show_newest(
            lambda size: registry.triggers.list(
                signer=signer, function_cid=cid, active=active, newest_first=True, limit=size
            ),
            _columns(registry, whole=whole), limit=limit, every=every, as_json=as_json, whole=whole,
            empty="no triggers; `muniment triggers create --help` says how to sign one",
        )  # fmt: skip


@triggers.command("show")
@click.argument("sig")
@service_options
@shape_options
def show_trigger(sig: str, *, as_json: bool | None, **flags: Any) -> None:
    """Show a trigger, and what came of it.

    Its signature is checked. Of its newest 100 intents and runs it says what was not carried out, and why.
    """
    with opened(flags) as registry:
        trigger = registry.triggers.get(whole_trigger(registry, sig, flags))
        members = _members(trigger)
        if not is_for_programs(as_json) and (words := _undone(registry, trigger.sig)):
            members["not carried out"] = words
    show_one(trigger, members, as_json=as_json)


@triggers.command("follow")
@click.option("--signer", metavar="ADDRESS", help="Only those that this address signed.")
@click.option("--function", "cid", help="Only those of this function.")
@follow_options
@service_options
@table_options
def follow_triggers(
    *, signer: str | None, cid: str | None, state: Path | None, as_json: bool | None, whole: bool, **flags: Any
) -> None:
    """Show triggers as they are registered, until Ctrl-C.

    All are shown, or with --state those since the last start.
    """
    with followed(flags, state, {"of": "triggers", "signer": signer, "function": cid}) as (registry, position):
        pages = registry.triggers.follow(after=position.read(), signer=signer, function_cid=cid)
        for page in pages:
            show_all(page, _columns(registry, whole=whole), as_json=as_json, empty="", fits=not whole)
            position.write(page.cursor)


@triggers.command()
@click.argument("sigs", nargs=-1, required=True, metavar="SIG…")
@click.option("--yes", is_flag=True, help="Do not ask.")
@service_options
@shape_options
def deactivate(sigs: Sequence[str], *, yes: bool, as_json: bool | None, **flags: Any) -> None:
    """Deactivate triggers permanently, with one signature.

    Keep what it prints: the deactivation proves what you signed, at other registries too. Triggers that were
    deactivated before are shown with the deactivations that ended them.
    """
    with opened(flags, needs="signature") as registry:
        found = [whole_own_trigger(registry, sig, flags) for sig in sigs]
        for given, sig in zip(sigs, found, strict=True):
            if sig != given:
                print_note(f"{given} is {sig}")
        if not yes and sys.stdin.isatty():
            for each in map(registry.triggers.get, found):
                what = ", ".join(
                    filter(None, (_function(registry, each.function_cid), _when(each.config), _amounts(each)))
                )
                print_note(f"{short(each.sig)} {what}")
            what = "this trigger" if len(sigs) == 1 else f"{len(sigs)} triggers"
            click.confirm(f"Permanently deactivate {what}?", abort=True, err=True)
        done = registry.triggers.deactivate(found)
    print_note(f"{len(sigs)} triggers are deactivated" if len(sigs) > 1 else "the trigger is deactivated")
    for each in done:
        show_one(each, {"deactivation": each.signature, "triggers": "\n".join(each.trigger_sigs)}, as_json=as_json)


def _note_repetition(trigger: Trigger) -> None:
    print_note(f"already registered on {trigger.created_at}; use --version for another")


def _undone(registry: Registry, sig: str) -> str:
    """What of the newest intents and runs of a trigger was not carried out."""
    intents = registry.intents.list(config_sig=sig, newest_first=True, limit=_COUNTED)
    runs = registry.runs.list(trigger_sig=sig, newest_first=True, limit=_COUNTED)
    return "\n".join(filter(None, (sum_up(islice(each, _COUNTED)) for each in (intents, runs))))


def _ask(registry: Registry, draft: TriggerDraft, named: list[str], *, yes: bool) -> None:
    """Print what a signature allows, with the lines `named`, and ask on a terminal."""
    found = registry.triggers.preview(draft)
    for line in (*found.summary, *named, *(f"Next run: {each}" for each in found.next_runs[:1])):
        print_note(line)
    for line in found.warnings:
        print_note(f"Warning: {line}")
    if not yes and sys.stdin.isatty():
        click.confirm("Sign it?", abort=True, err=True)


def _spoken(preview_: Preview, named: list[str]) -> dict[str, str]:
    spoken = {"trigger": "\n".join([*preview_.summary, *named])}
    if preview_.next_runs:
        spoken["next runs"] = "\n".join(preview_.next_runs)
    if preview_.warnings:
        spoken["warning"] = "\n".join(preview_.warnings)
    return spoken


def _status(trigger: Trigger) -> str:
    from msgspec import UNSET

    if trigger.deactivate_sig is not UNSET:
        return "deactivated"
    return "ended" if 0 < trigger.end_date <= time.time() * 1000 else "active"


def _columns(registry: Registry, *, whole: bool) -> list[Column]:
    """The columns of triggers, those first that a narrow terminal keeps."""
    return [
        Column("SIGNATURE", lambda each: short(each.sig, whole=whole)), Column("STATUS", _status, is_status=True),
        Column("FUNCTION", lambda each: _function(registry, each.function_cid), may_be_cut=True),
        Column("WHEN (UTC)", lambda each: _when(each.config), may_be_cut=True),
        Column("AMOUNTS", lambda each: _amounts(each, shown_max=_AMOUNTS_MAX)),
        Column("END", lambda each: "" if _status(each) == "deactivated" else until_ms(each.end_date)),
        Column("CREATED", lambda each: ago(each.created_at)),
        Column("SIGNER", lambda each: short_address(each.signer, whole=whole)),
        Column("VERSION", lambda each: each.version),
        Column("DESCRIPTION", lambda each: each.description, may_be_cut=True),
    ]  # fmt: skip


def _function(registry: Registry, cid: str) -> str:
    """The name of a function. The client has its manifest already if it has checked the trigger."""
    from muniment.protocol.errors import Refusal

    try:
        return registry.functions.manifest(cid).name
    except Refusal:  # unverified, a trigger may name a function that the service lacks
        return short(cid)


def _when(config: Mapping[str, Any]) -> str:
    """When a trigger is due, in a few words."""
    from muniment.protocol.evm.topics import event_name
    from muniment.protocol.triggers.typed_data import CRON, EVENT
    from muniment.protocol.triggers.words import schedule_in_words

    if config["type"] == CRON:
        return schedule_in_words(config["schedule"]) or config["schedule"]
    if config["type"] != EVENT:
        return "once"
    return f"on {event_name(config['topics']) or 'an event'} of {config['contract']} on chain {config['chainId']}"


def _amounts(trigger: Trigger, *, shown_max: int | None = None) -> str:
    """The amounts that a trigger names, such as `1 USDC (1000000) on Base`; the rest is counted."""
    from muniment.chains.units import packaged_catalogue
    from muniment.protocol.triggers.amounts import kinds_of_inputs, money_of

    catalogue = packaged_catalogue()
    named = short_address if shown_max else str
    lines = [
        f"{'' if each.names[0] == 'amount' else f'{each.names[0]} '}{each.words(catalogue, named)}"
        for each in money_of(trigger.input, kinds_of_inputs(trigger.types), catalogue)
        if each.figure
    ]
    left = len(lines[shown_max:]) if shown_max else 0
    return ", ".join([*lines[:shown_max], *([f"{left} more"] if left else [])])


def _end(trigger: Trigger) -> str:
    from msgspec import UNSET

    from muniment.protocol.wire import moment

    if not trigger.end_date:
        return "never"
    is_over = trigger.deactivate_sig is not UNSET
    return moment(trigger.end_date) + ("" if is_over else f", {until_ms(trigger.end_date)}")


def _members(trigger: Trigger) -> dict[str, str]:
    from msgspec import UNSET

    from muniment.protocol.triggers.words import fee_in_words
    from muniment.protocol.wire import encode

    claimed, limit = "(as the service says)", trigger.execution_fee_limit
    ended = {} if trigger.deactivate_sig is UNSET else {"deactivation": f"{trigger.deactivate_sig} {claimed}"}
    return {
        "signature": trigger.sig, "signer": trigger.signer, "function": trigger.function_cid,
        "version": trigger.version, "when": _when(trigger.config), "config": encode(trigger.config).decode(),
        "input": encode(trigger.input).decode(), "amounts": _amounts(trigger) or "none named",
        "fee limit": "none" if limit == "0" else fee_in_words(limit), "validations": str(trigger.min_validations),
        "end": _end(trigger), "status": f"{_status(trigger)} {claimed}", **ended,
        "created": f"{ago(trigger.created_at)} {claimed}", "description": f"{trigger.description} {claimed}",
    }  # fmt: skip
