"""Options that make a draft of a trigger."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

if TYPE_CHECKING:
    from muniment.client import SignedTrigger, TriggerDraft

Command = TypeVar("Command", bound=Callable[..., Any])
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([hdwy])")
_HOURS: Final = {"h": 1, "d": 24, "w": 168, "y": 8_760}
_FILE_BYTES_MAX: Final = 1024 * 1024
_SAFE_INTEGER_MAX: Final = 2**53 - 1


def draft_options(command: Command) -> Command:
    """Add the options of a draft."""
    for option in (
        click.option("--description", default="", help="Your words for it; they are not signed."),
        click.option("--validations", type=int, default=1, show_default=True, help="Validations that a run needs."),
        click.option("--fee-limit", default="0", help="Highest fee of a run, in base units; default: any."),
        click.option("--version", default="1.0.0", show_default=True, help="Version of the trigger."),
        click.option("--end", default="never", show_default=True, help="When it ends: 30d, 12h, 2027-01-31 or never."),
        click.option("--delta", default="10m", show_default=True, help="How late a run may start."),
        click.option("--config", "config_json", help="Another configuration than a schedule, as JSON."),
        click.option("--schedule", help="When it runs, as five fields of cron in UTC: '0 */6 * * *'."),
        click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input; repeat it."),
        click.option("--function", "cid", help="CID of the function."),
        click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), required=False),
    ):
        command = option(command)
    return command


def read_trigger(flags: Mapping[str, Any]) -> TriggerDraft | SignedTrigger:
    """The draft of the options, or the draft or signed trigger in FILE. Raises `ValueError`, `Refusal`, `OSError`."""
    from muniment.client import SignedTrigger, TriggerDraft
    from muniment.forms import decode_record
    from muniment.json_text import parse_json

    if flags["file"] is None:
        return _draft(flags)
    if flags["cid"] is not None:
        raise ValueError("give a FILE or --function, not both")
    given: Any = parse_json(_read(flags["file"]))
    is_signed = isinstance(given, dict) and "sig" in cast("dict[str, Any]", given)
    return decode_record(cast("object", given), SignedTrigger if is_signed else TriggerDraft)


def read_draft(flags: Mapping[str, Any]) -> TriggerDraft:
    """As `read_trigger`; a signed trigger is a `ValueError`."""
    from muniment.client import TriggerDraft

    found = read_trigger(flags)
    if not isinstance(found, TriggerDraft):
        raise ValueError("the file has a signed trigger")  # noqa: TRY004 - the file is wrong, not a type
    return found


def _draft(flags: Mapping[str, Any]) -> TriggerDraft:
    from muniment.client import TriggerDraft

    if flags["cid"] is None:
        raise ValueError("name the function with --function CID, or give a FILE with a draft")
    if (flags["schedule"] is None) == (flags["config_json"] is None):
        raise ValueError("say when it runs: either --schedule or --config")
    if flags["config_json"] is not None:
        config: Any = json.loads(flags["config_json"])
    else:
        config = {"type": 0, "schedule": flags["schedule"], "delta": flags["delta"], "endDate": end_ms(flags["end"])}
    return TriggerDraft.of(
        flags["cid"], config=config, input=_inputs(flags["inputs"]), version=flags["version"],
        execution_fee_limit=flags["fee_limit"], min_validations=flags["validations"],
        description=flags["description"] or "Signed on the command line",
    )  # fmt: skip


def end_ms(text: str) -> int:
    """Milliseconds since 1970 of `never` (0), of a span from now, or of a date in UTC. Raises `ValueError`."""
    if text == "never":
        return 0
    if span := _SPAN.fullmatch(text):
        return time.time_ns() // 1_000_000 + int(span[1]) * _HOURS[span[2]] * 3_600_000
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--end {text}: it is 30d, 12h, a date such as 2027-01-31, or never") from None
    return round(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)


def _inputs(pairs: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, is_given, text = pair.partition("=")
        if not is_given or name in found:
            raise ValueError(f"--input {pair}: it is NAME=VALUE, each name once")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    """A JSON value, or the text itself. Integers beyond 2^53-1 are texts, as the interface has them."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_large = isinstance(value, int) and abs(value) > _SAFE_INTEGER_MAX
    return text if is_large or isinstance(value, float) else cast("Any", value)


def _read(place: str) -> bytes:
    if place == "-":
        return sys.stdin.buffer.read(_FILE_BYTES_MAX)
    with Path(place).open("rb") as file:
        return file.read(_FILE_BYTES_MAX)
