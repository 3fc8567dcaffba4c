"""`muniment run`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muniment.cli.client.runs import TYPES, read_and_logged
from muniment.cli.client.service import failures, opened, place_of, service_options
from muniment.cli.client.short_ids import whole_trigger
from muniment.cli.client.triggers import texts_of, typed_inputs
from muniment.cli.options import chains_option
from muniment.cli.output import print_note, shape_options, show_one
from muniment.cli.sandbox import chains_and_nodes, opened_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from muniment.client import Bundle
    from muniment.protocol.evm.address import Address
    from muniment.protocol.triggers.types import Trigger
    from muniment.protocol.wire import Record
    from muniment.relayer.verify.trial import BlockAsked, EventAsked, Tried, Wish

# The exit statuses of results; 1 to 5 have their meaning in every command that uses a registry.
STATUSES: Final = {"intents": 0, "nothing": 10, "stopped": 11, "incomplete": 12}
# The number of a chain, of a block or of a place.
_NUMBER: Final = re.compile(r"[0-9]{1,15}")
# The wait for the block that confirms what is read now: Ethereum makes one in 12 seconds.
_BLOCK_SECONDS_MAX: Final = 15
# In whose name a function runs when nobody is named: no wallet, but not the zero address, which functions refuse.
_NOBODY: Final = "0x0000000000000000000000000000000000000001"


@click.command()
@click.argument("cid", required=False)
@click.option("--bundle", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True),
              help="Directory with manifest.json and function.wasm, instead of CID.")  # fmt: skip
@click.option("--trigger", "sig", metavar="SIG", help="Use the inputs and the last tick of this trigger.")
@click.option("--at", metavar="CHAIN:BLOCK", help="As of this block; default: now.")
@click.option("--event", metavar="CHAIN:TX:POSITION", help="Run for this log; POSITION in the receipt, from 0.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="An input; can be repeated.")
@click.option("--user", metavar="ADDRESS", help="Wallet to run for, without --trigger; default: that of the profile.")
@chains_option
@service_options
@shape_options
def run(*, as_json: bool | None, folder: Path | None, **flags: Any) -> None:
    """Run a function here, once, and show what it would do. Nothing is recorded.

    The function is CID or that of --trigger, downloaded and verified, or the files of --bundle.

    The exit status is 0 with intents, 10 without, 11 when it was stopped, 12 when no node answered.
    """
    import asyncio

    from muniment.relayer.runner.pinning import Incomplete

    _check_usage(folder, flags)
    with failures():
        try:
            cid, tried = asyncio.run(_try(folder, flags))
        except Incomplete as error:
            print_note(f"incomplete, {error.code}: {error.text}")
            raise SystemExit(STATUSES["incomplete"]) from None
    show_one(_as_object(cid, tried), _members(cid, tried), as_json=as_json)
    raise SystemExit(STATUSES[tried.run.result])


def _check_usage(folder: Path | None, flags: Mapping[str, Any]) -> None:
    sig = flags["sig"]
    if folder is not None and flags["cid"] is not None:
        raise click.UsageError("give a CID or --bundle, not both")
    if folder is None and flags["cid"] is None and sig is None:
        raise click.UsageError("name a function: a CID, --bundle DIRECTORY or --trigger SIG")
    if sig is not None and flags["cid"] is not None:
        raise click.UsageError("a trigger names its function: leave out CID, or try other files with --bundle")
    if sig is not None and (flags["inputs"] or flags["user"]):
        raise click.UsageError("a trigger has its inputs and its wallet: leave out --input and --user")
    if flags["at"] is not None and flags["event"] is not None:
        raise click.UsageError("an event is read at its own block: leave out --at")


def _subject(folder: Path | None, flags: Mapping[str, Any]) -> tuple[Trigger | None, Bundle, str]:
    """The trigger, the files and their CID. The client proves what the registry gives."""
    from muniment.client import Bundle

    if folder is not None and flags["sig"] is None:
        bundle = Bundle.read(folder)
        return None, bundle, bundle.cids()[0]
    with opened(flags) as registry:
        if flags["sig"] is None:
            return None, registry.functions.bundle(flags["cid"]), flags["cid"]
        trigger = registry.triggers.get(whole_trigger(registry, flags["sig"], flags))
        if folder is None:
            return trigger, registry.functions.bundle(trigger.function_cid), trigger.function_cid
    bundle = Bundle.read(folder)
    cids = bundle.cids()
    if trigger.function_cid not in cids:
        print_note(f"the files are not the function of the trigger, which is {trigger.function_cid}")
    return trigger, bundle, cids[0]


async def _try(folder: Path | None, flags: Mapping[str, Any]) -> tuple[str, Tried]:
    """The CID of the function, and what it did."""
    import asyncio
    import time

    from muniment.outgoing import Outgoing
    from muniment.protocol.functions.rules import read_manifest
    from muniment.relayer.runner.engine import this_engine
    from muniment.relayer.verify.trial import Trials

    async with opened_sandbox() as sandbox, Outgoing(allow_private=True) as outgoing:
        trigger, bundle, cid = await asyncio.to_thread(_subject, folder, flags)
        inputs = read_manifest(bundle.manifest).inputs
        wish = _wish(trigger, cid, inputs, flags)
        chains, nodes = chains_and_nodes(outgoing, flags["chains_file"])
        now_ms = time.time_ns() // 1_000_000
        trials = Trials(sandbox=sandbox, chains=chains, nodes=nodes, now_ms=lambda: now_ms, engine=this_engine())
        for _ in range(_BLOCK_SECONDS_MAX):
            tried = await trials.run(wish, bundle.wasm, inputs)
            if not tried.run.reason or tried.run.reason.code != "no-block":
                return cid, tried
            await asyncio.sleep(1)  # the block after this second comes soon
        return cid, await trials.run(wish, bundle.wasm, inputs)


def _wish(trigger: Trigger | None, cid: str, inputs: Mapping[str, str], flags: Mapping[str, Any]) -> Wish:
    from muniment.relayer.runner.attempt import Consent
    from muniment.relayer.verify.trial import Wish, made_up

    if trigger is not None:
        consent = Consent.of(trigger)
    else:
        consent = made_up(_user(flags), cid, typed_inputs(texts_of(flags["inputs"]), inputs), inputs)
    return Wish(
        consent=consent, trigger=trigger,
        block=None if flags["at"] is None else _block_asked(flags["at"]),
        event=None if flags["event"] is None else _event_asked(flags["event"]),
    )  # fmt: skip


def _block_asked(text: str) -> BlockAsked:
    from muniment.relayer.verify.trial import BlockAsked

    chain_id, number = _parts(text, "CHAIN:BLOCK, such as 8453:20000000", 2)
    return BlockAsked(int(chain_id), int(number))


def _event_asked(text: str) -> EventAsked:
    from muniment.protocol.evm.hex import Bytes32
    from muniment.relayer.verify.trial import EventAsked

    chain_id, transaction_hash, position = _parts(text, "CHAIN:TRANSACTION:POSITION, such as 8453:0x…:0", 3)
    return EventAsked(int(chain_id), Bytes32.parse(transaction_hash), int(position))


def _parts(text: str, form: str, count: int) -> list[str]:
    parts = text.split(":")
    if len(parts) != count or not all(_NUMBER.fullmatch(each) for each in (parts[0], parts[-1])):
        raise ValueError(f"{text}: give {form}")
    return parts


def _user(flags: Mapping[str, Any]) -> Address:
    """The wallet that is named, else that of the profile, else nobody's; says which."""
    from muniment.protocol.evm.address import Address

    user = flags["user"] or place_of(flags).profile.address
    whom = f"the wallet {user}" if user else f"nobody ({_NOBODY}; --user names a wallet)"
    print_note(f"a trial without a trigger, for {whom}: its nonces belong to no trigger")
    return Address.parse(user or _NOBODY)


def _as_object(cid: str, tried: Tried) -> dict[str, Any]:
    """The trial as JSON: the members of a record, the CID, and the intents with the members that their hash covers."""
    return {"functionCid": cid, **_members_of(tried.run), "intents": list(_intents(tried))}


def _intents(tried: Tried) -> Iterator[dict[str, Any]]:
    for output, intent in zip(tried.run.outputs, tried.intents, strict=True):
        yield {**_members_of(intent), "hash": output.hash}


def _members_of(record: Record) -> dict[str, Any]:
    """The members of a record that say something."""
    import msgspec

    from muniment.protocol.wire import encode

    members: dict[str, Any] = msgspec.json.decode(encode(record))
    unused = {"proposals", "logs"} if "operations" in members or "op" in members else set[str]()
    return {name: value for name, value in members.items() if value is not None and name not in unused}


def _members(cid: str, tried: Tried) -> dict[str, str]:
    from muniment.protocol.wire import moment
    from muniment.relayer.runner.wording import said

    run = tried.run
    made = [(output.hash, intent) for output, intent in zip(run.outputs, tried.intents, strict=True)]
    shown = {
        "function": cid, "as of": f"{moment(run.timestamp)}, {TYPES[run.trigger_type]}",
        "result": run.result if run.reason is None else f"{run.result}, {run.reason.code}: {run.reason.text}",
        "intents": "\n".join(line for hash_, intent in made for line in (hash_, *said(intent))),
        **read_and_logged(run),
    }  # fmt: skip
    return {name: text or "none" for name, text in shown.items()}
