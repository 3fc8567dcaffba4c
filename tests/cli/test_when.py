"""The options that say when a trigger runs, and the configuration that they make."""

from __future__ import annotations

import json
import time
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from muniment.cli.client.when import config_of, when_options
from muniment.protocol.evm.event_signature import event_topic

CONTRACT = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # as every ERC-20 token logs it
EVENT = f"8453:{CONTRACT}:Transfer(address,address,uint256)"
WORD = "0x" + "ab" * 32
DAY_MS = 86_400_000


@click.command()
@when_options
def shown(**flags: Any) -> None:
    """Print the configuration."""
    try:
        click.echo(json.dumps(config_of(flags)))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def run(*options: str) -> Result:
    return CliRunner().invoke(shown, options)


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (["--schedule", "0 0 * * *"], {"type": 0, "schedule": "0 0 * * *", "delta": "5m"}),
        (["--schedule", "* * * * *"], {"type": 0, "schedule": "* * * * *", "delta": "1m"}),
        (["--schedule", "* * * * *", "--delta", "4m"], {"type": 0, "schedule": "* * * * *", "delta": "4m"}),
        (["--once"], {"type": 2, "delta": "5m", "startDate": 0}),
        (["--once", "--at", "2026-01-31T12:00", "--delta", "1h"],
         {"type": 2, "delta": "1h", "startDate": 1_769_860_800_000}),
        (["--on-event", EVENT], {"type": 1, "chainId": 8453, "contract": CONTRACT, "topics": [[TRANSFER]],
                                 "delta": "5m"}),
        (["--on-event", EVENT, "--topic", f"2={CONTRACT}", "--topic", f"2={WORD}"],
         {"type": 1, "chainId": 8453, "contract": CONTRACT, "delta": "5m",
          "topics": [[TRANSFER], [], ["0x" + "0" * 24 + CONTRACT[2:].lower(), WORD]]}),
    ],
)  # fmt: skip
def test_each_kind_of_trigger_has_options_and_ends_after_90_days_unless_said(
    options: list[str], config: dict[str, Any]
) -> None:
    before_ms = int(time.time() * 1000)
    made = json.loads(run(*options).stdout)
    assert before_ms <= made.pop("endDate") - 90 * DAY_MS <= int(time.time() * 1000)
    assert made == config
    for end, end_ms in (("never", 0), ("2027-01-31", 1_801_353_600_000)):
        assert json.loads(run(*options, "--end", end).stdout) == {**config, "endDate": end_ms}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "one of --schedule, --on-event, --once, --config"),
        (["--once", "--on-event", EVENT], "--on-event and --once exclude each other"),
        (["--config", "{}", "--delta", "1h"], "--delta does not go with --config"),
        (["--once", "--topic", f"1={WORD}"], "--topic does not go with --once, but with --on-event"),
        (["--once", "--at", "soon"], "--at soon: give 12h, or a date"),
        (["--once", "--end", "2026-01-31"], "--end 2026-01-31 is in the past"),
        (["--once", "--end", "1970-01-01"], "--end 1970-01-01 is in the past"),  # as a number: without an end
        (["--once", "--at", "100d"], "--at 100d is after the end: give a later --end"),
        (["--on-event", "8453:Transfer()"], "give CHAIN:CONTRACT:EVENT"),
        (["--on-event", f"base:{CONTRACT}:Transfer()"], "give CHAIN:CONTRACT:EVENT"),
        (["--on-event", "8453:0x12:Transfer()"], "an address is 0x and 40 hex digits"),
        (["--on-event", f"8453:{CONTRACT}:Transfer(uint)"], "the full names of its types"),
        (["--on-event", EVENT, "--topic", f"0={WORD}"], "give 1, 2 or 3"),
        (["--on-event", EVENT, "--topic", "1=0x12"], "64 hex digits or an address"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_or_two_things_are_refused(options: list[str], said: str) -> None:
    result = run(*options)
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_the_topic_of_an_event_is_the_hash_of_its_canonical_signature() -> None:
    assert event_topic("Transfer(address,address,uint256)") == TRANSFER
    for right in ("Ping()", "A((address,(uint256,bytes32)[]),string[3])", "_a$(int8,bytes)"):
        assert len(event_topic(right)) == 66
    for wrong in (
        "Transfer", "Transfer(", "Transfer()x", "T(uint)", "T(address indexed from)", "T(address,)", "T(uint7)",
        "T(bytes33)", "(address)", "T(())", "T((address)", "T(address))", "T(bool[0])", WORD, "", "É(address)",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="the form Transfer"):
            event_topic(wrong)
