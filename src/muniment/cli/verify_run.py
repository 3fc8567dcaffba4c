"""`muniment runs verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from muniment.cli.client.service import failures, opened, service_options
from muniment.cli.client.short_ids import whole_run
from muniment.cli.options import chains_option
from muniment.cli.output import print_note, shape_options, show_one
from muniment.cli.sandbox import chains_and_nodes, opened_sandbox

if TYPE_CHECKING:
    from muniment.client import Bundle
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.verify.report import Verification

STATUSES: Final = {"same": 0, "consistent": 1, "unchecked": 1, "different": 5}


# What a registry says of each record, and nothing proves.
_CLAIMS: Final = "who recorded the run and when, and the counts, states and conflicts that the registry adds"


class _Subject(NamedTuple):
    """A recorded run with its trigger and function."""

    run: Run
    trigger: Trigger
    bundle: Bundle


@click.command("verify")
@click.argument("hash_", metavar="HASH")
@chains_option
@service_options
@shape_options
def verify_run(hash_: str, *, as_json: bool | None, **flags: Any) -> None:
    """Repeat a recorded run here, and compare.

    The nodes of a chains file read the blocks and the answers again; for older runs they must be archive nodes. Without
    nodes the recorded answers are believed.

    Exit status: 0 the run is the same, 5 it is different, 1 the check was not complete.
    """
    import asyncio

    with failures():
        subject, found = asyncio.run(_verify(hash_, flags))
    omissions = [*found.omissions, _CLAIMS]
    shown = {
        "hash": subject.run.hash, "outcome": found.outcome, "reasons": found.reasons, "notCompared": omissions,
    }  # fmt: skip
    text = {"hash": subject.run.hash, "verdict": _sentence(subject.run, found), "not compared": "\n".join(omissions)}
    show_one(shown, text, as_json=as_json)
    if found.outcome == "consistent" or (found.outcome == "unchecked" and not flags["chains_file"]):
        print_note("a chains file with RPC URLs (--chains) lets nodes check the answers")
    raise SystemExit(STATUSES[found.outcome])


def _sentence(run: Run, found: Verification) -> str:
    reasons = "\n".join(found.reasons)
    match found.outcome:
        case "same":
            return "same"
        case "consistent":
            return f"consistent with the answers that {run.relayer} claims; the answers were not checked"
        case "unchecked":
            return f"cannot be checked: {reasons}"
        case "different":
            return f"different: {reasons}"


async def _verify(hash_: str, flags: dict[str, Any]) -> tuple[_Subject, Verification]:
    import asyncio
    import time

    from muniment.outgoing import Outgoing
    from muniment.protocol.functions.rules import read_manifest
    from muniment.relayer.runner.attempt import Function
    from muniment.relayer.runner.engine import this_engine
    from muniment.relayer.runner.pinning import Pins
    from muniment.relayer.verify.verifying import Verifier

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    async with opened_sandbox() as sandbox, Outgoing(allow_private=True) as outgoing:
        subject = await asyncio.to_thread(_subject, hash_, flags)
        chains, nodes = chains_and_nodes(outgoing, flags["chains_file"])
        verifier = Verifier(
            sandbox=sandbox, chains=chains, pins=Pins(nodes=nodes, now_ms=now_ms) if nodes else None, now_ms=now_ms,
            engine=this_engine(),
        )  # fmt: skip
        inputs = read_manifest(subject.bundle.manifest).inputs
        function = Function(await sandbox.compile_module(subject.bundle.wasm), inputs)
        return subject, await verifier.verify(subject.run, subject.trigger, function)


def _subject(hash_: str, flags: dict[str, Any]) -> _Subject:
    """What the registry has of a run. The client proves each part."""
    with opened(flags) as registry:
        run = registry.runs.get(whole_run(registry, hash_))
        trigger = registry.triggers.get(run.trigger_sig)
        return _Subject(run, trigger, registry.functions.bundle(trigger.function_cid))
