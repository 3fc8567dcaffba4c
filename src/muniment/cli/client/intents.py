"""The commands of `muniment intents` that use a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from muniment.cli.client.listing import list_options, show_newest, sum_up
from muniment.cli.client.service import follow_options, followed, opened, place_of, service_options
from muniment.cli.client.short_ids import whole_intent, whole_trigger
from muniment.cli.client.triggers import read_place
from muniment.cli.output import (
    Column,
    ago,
    counted,
    print_note,
    relative,
    shape_options,
    short,
    short_address,
    show_all,
    show_one,
    table_options,
)

if TYPE_CHECKING:
    from muniment.client import Registry
    from muniment.protocol.intents.types import AnyIntent, AnyNewIntent, AnyNewProposal


Command = TypeVar("Command", bound=Callable[..., Any])
# Intents from which the command draws a conclusion.
_SEVERAL: Final = 5
_FILE_BYTES_MAX: Final = 4 * 1024 * 1024
_CLAIMED: Final = "(as the service says)"
# As `muniment.protocol.intents.types` has them: a command line that is only read loads no records.
STATUSES: Final = ("created", "enqueued", "discarded", "submitted", "succeeded", "failed", "expired")
PROPOSAL_STATUSES: Final = ("received", "accepted", "rejected", "submitted", "succeeded", "failed", "expired")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def _filter_options(command: Command) -> Command:
    for option in (
        click.option("--trigger", metavar="SIG", help="Only those of this trigger."),
        click.option("--settler", metavar="ADDRESS", help="Only those for this settlement contract."),
        click.option("--user", metavar="ADDRESS", help="Only those of this user."),
    ):
        command = option(command)
    return command


@click.command("list")
@_filter_options
@click.option("--status", type=click.Choice(STATUSES), help="Only those in this status.")
@service_options
@list_options
def list_intents(
    *, user: str | None, settler: str | None, trigger: str | None, status: str | None, limit: int | None, every: bool,
    as_json: bool | None, whole: bool, **flags: Any,
) -> None:  # fmt: skip
    """List intents, the newest first. The hashes of each are computed again.

    JSON has the newest 50 proposals and log lines of each, or with --all every one.
    """
    from muniment.protocol.runs.outcomes import NO_OFFER, why_intent_undone

    with opened(flags) as registry:
        sig = whole_trigger(registry, trigger, flags) if trigger else None
        printed = show_newest(
            lambda size: registry.intents.list(
                user=user, settler=settler, config_sig=sig, status=status, newest_first=True, limit=size
            ),
            _columns(whole=whole), limit=limit, every=every, as_json=as_json, whole=whole,
            empty="no intents: they come of the runs of triggers; `muniment runs list` shows these",
            complete=lambda intent: _complete(registry, intent),
        )  # fmt: skip
    if words := sum_up(printed):
        is_idle = len(printed) >= _SEVERAL and all(why_intent_undone(each) == NO_OFFER for each in printed)
        has_filter = user or settler or trigger or status
        print_note(words + (". Nobody seems to fulfil intents here" if is_idle and not has_filter else ""))


@click.command("show")
@click.argument("hash_", metavar="HASH")
@service_options
@shape_options
def show_intent(hash_: str, *, as_json: bool | None, **flags: Any) -> None:
    """Show an intent with its proposals and its log. Its hashes are computed again."""
    with opened(flags) as registry:
        intent = registry.intents.get(whole_intent(registry, hash_, flags))
    show_one(intent, _members(intent), as_json=as_json)


@click.command("follow")
@_filter_options
@follow_options
@service_options
@table_options
def follow_intents(
    *, user: str | None, settler: str | None, trigger: str | None, state: Path | None, as_json: bool | None,
    whole: bool, **flags: Any,
) -> None:  # fmt: skip
    """Show intents as they are recorded, until Ctrl-C.

    All are shown, or with --state those since the last start.
    """
    about = {"of": "intents", "user": user, "settler": settler, "trigger": trigger}
    with followed(flags, state, about) as (registry, position):
        pages = registry.intents.follow(after=position.read(), user=user, settler=settler, config_sig=trigger)
        for page in pages:
            show_all(page, _columns(whole=whole), as_json=as_json, empty="", fits=not whole)
            position.write(page.cursor)


@click.command("download")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@service_options
def download_intents(file: Path, **flags: Any) -> None:
    """Mirror every intent to FILE, one a line, as `put` takes it.

    Every hash is computed again. An interrupted download continues where it stopped; a later one adds the new intents.
    """
    with opened(flags) as registry:
        mirror = Mirror(file, place_of(flags).profile.url)
        count = mirror.add(registry, print_note if sys.stderr.isatty() else lambda _text: None)
    print_note(f"{counted(count, 'intent')} added to {file}")


@click.command("put")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@service_options
@shape_options
def put_intent(file: str, *, as_json: bool | None, **flags: Any) -> None:
    """Record the intent in FILE, a JSON object. It needs MUNIMENT_OPERATOR_KEY."""
    from muniment.protocol.intents.types import AnyNewIntent

    with opened(flags, needs="operator") as registry:
        intent = registry.intents.put(cast("AnyNewIntent", _record(file, AnyNewIntent)))
    show_one(intent, _members(intent), as_json=as_json)


@click.command("propose")
@click.argument("hash_", metavar="HASH")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@service_options
@shape_options
def propose(hash_: str, file: str, *, as_json: bool | None, **flags: Any) -> None:
    """Append the proposal in FILE, a JSON object, to an intent. It needs MUNIMENT_OPERATOR_KEY."""
    from muniment.protocol.intents.types import AnyNewProposal

    with opened(flags, needs="operator") as registry:
        found = registry.intents.propose(hash_, cast("AnyNewProposal", _record(file, AnyNewProposal)))
    show_one(found, {"proposal": found.hash, "solver": found.solver, "status": found.status}, as_json=as_json)


@click.command("log")
@click.argument("hash_", metavar="HASH")
@click.argument("text")
@click.option("--level", type=click.Choice(LEVELS), default="info", show_default=True)
@service_options
def log_intent(hash_: str, text: str, *, level: Any, **flags: Any) -> None:
    """Append a line to the log of an intent. It needs MUNIMENT_OPERATOR_KEY."""
    with opened(flags, needs="operator") as registry:
        registry.intents.log(hash_, level, text)
    print_note("the line is stored")


@click.command("move")
@click.argument("hash_", metavar="HASH")
@click.argument("status")
@click.option("--proposal", metavar="HASH", help="Move this proposal instead of the intent.")
@click.option("--transaction", metavar="HASH", help="The transaction that settles it.")
@service_options
@shape_options
def move_intent(
    hash_: str, status: str, *, proposal: str | None, transaction: str | None, as_json: bool | None,
    **flags: Any,
) -> None:  # fmt: skip
    """Move an intent or one of its proposals to another status. It needs MUNIMENT_OPERATOR_KEY."""
    statuses = STATUSES if proposal is None else PROPOSAL_STATUSES
    if status not in statuses:
        what = "an intent" if proposal is None else "a proposal"
        raise click.BadParameter(f"{status}: {what} can be {', '.join(statuses)}", param_hint="STATUS")
    with opened(flags, needs="operator") as registry:
        intent = registry.intents.move(hash_, status, proposal=proposal, transaction_hash=transaction)
    show_one(intent, _members(intent), as_json=as_json)


COMMANDS: Final = (
    list_intents, show_intent, follow_intents, download_intents, put_intent, propose, log_intent, move_intent,
)  # fmt: skip


def _record(place: str, kind: Any) -> Any:
    """The record in a file, of one form of `kind`. Raises `Refusal`, `OSError`."""
    from muniment.protocol.forms import decode_record
    from muniment.protocol.json_text import parse_json

    return decode_record(parse_json(read_place(place, _FILE_BYTES_MAX)), kind)


def _user(intent: AnyIntent) -> str:
    from muniment.protocol.intents.types import Intent

    return intent.user if isinstance(intent, Intent) else intent.fee_payer


def _kinds(intent: AnyIntent) -> str:
    from muniment.protocol.intents.operations import kinds_of

    return ", ".join(kinds_of(intent))


def _operations(intent: AnyIntent, *, whole: bool = True) -> str:
    """What an intent asks for, with the tokens that the package knows in units."""
    from muniment.chains.units import packaged_catalogue
    from muniment.protocol.intents.asked import words_of

    return words_of(intent, packaged_catalogue(), lambda each: short_address(each, whole=whole))


def _columns(*, whole: bool) -> list[Column]:
    from muniment.protocol.runs.outcomes import why_intent_undone

    return [
        Column("HASH", lambda each: short(each.hash, whole=whole)),
        Column("STATUS", lambda each: each.status, is_status=True),
        Column("OPERATION", lambda each: _operations(each, whole=whole)),
        Column("WHY NOT", why_intent_undone, may_be_cut=True),
        Column("USER", lambda each: short_address(_user(each), whole=whole)),
        Column("RECORDED", lambda each: ago(each.created_at)), Column("DEADLINE", _deadline),
        Column("PROPOSALS", lambda each: str(len(each.proposals))),
        Column("SETTLER", lambda each: short_address(each.settler, whole=whole)),
    ]  # fmt: skip


def _deadline(intent: AnyIntent) -> str:
    import time

    return relative(int(intent.deadline) - time.time())


def _why(intent: AnyIntent) -> str:
    from muniment.protocol.runs.outcomes import why_intent_undone

    return f", not carried out: {why}" if (why := why_intent_undone(intent)) else ""


def _members(intent: AnyIntent) -> dict[str, str]:
    from muniment.protocol.intents.types import Intent

    signed = {None: "", True: ", signed", False: ", NOT signed by it"}
    proposals = "\n".join(
        f"{each.hash} by {each.solver}: {each.status}{signed[each.verified]} {_CLAIMED}" for each in intent.proposals
    )
    return {
        "hash": intent.hash, "operation": _kinds(intent), "asks for": _operations(intent),
        "user": _user(intent), "settler": intent.settler,
        "trigger": intent.config_sig if isinstance(intent, Intent) else intent.trigger_sig,
        "deadline": _deadline(intent), "status": f"{intent.status}{_why(intent)} {_CLAIMED}",
        "recorded": f"{ago(intent.created_at)} {_CLAIMED}", "proposals": proposals or "none",
        "log": "\n".join(f"{each.created_at} {each.level}: {each.data}" for each in intent.logs) or "none",
    }  # fmt: skip


# A listing has the newest fifty proposals and logs of an intent; the rest is read with the intent itself.
_LISTED_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Mirror:
    """A file of intents, with a checkpoint file that has the cursor and the complete length."""

    file: Path
    url: str

    def add(self, registry: Registry, say: Callable[[str], None]) -> int:
        """Add the intents after the checkpoint; returns their number. Raises `ValueError` for another service."""
        from muniment.client import Checkpoint
        from muniment.protocol.wire import encode

        checkpoint = Checkpoint(self.file.with_name(f"{self.file.name}.position"), url=self.url)
        length_text, _, after = (checkpoint.read() or "0:").partition(":")
        if not length_text.isdigit():
            raise ValueError(f"{self.file} has a damaged position file: remove both to start over")
        length, count = int(length_text), 0
        with self.file.open("r+b" if self.file.exists() else "w+b") as file:
            if file.seek(0, os.SEEK_END) < length:
                raise ValueError(f"{self.file} is shorter than its position file says: remove both to start over")
            file.truncate(length)
            file.seek(length)
            for page in registry.intents.list().pages(after or None):
                for intent in page:
                    file.write(encode(_unexpired(_complete(registry, intent))) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                count += len(page)
                if page.cursor is not None:
                    checkpoint.write(f"{file.tell()}:{page.cursor}")
                say(counted(count, "intent"))
        return count


def _complete(registry: Registry, intent: AnyIntent) -> AnyIntent:
    """An intent of a listing, with all its proposals and logs."""
    is_cut = len(intent.proposals) >= _LISTED_MAX or len(intent.logs) >= _LISTED_MAX
    return registry.intents.get(intent.hash) if is_cut else intent


def _unexpired(intent: AnyIntent) -> AnyIntent:
    """`expired` follows from the deadline; it is never recorded."""
    from msgspec.structs import replace

    return replace(intent, status="created") if intent.status == "expired" else intent
