"""`muniment chains`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.cli import output
from muniment.cli.options import chains_option, common_options, json_option, named_registry_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.operate.check_chains import Report


@click.group()
def chains() -> None:
    """The EVM chains of balances and settlements."""


@chains.command("check")
@common_options
@chains_option
@json_option
def check_chains(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Send the service's requests to every node, and print faults."""
    from muniment.operate.check_chains import check_configured

    settings = named_registry_of(config, **flags)
    reports = check_configured(settings)
    output.print_result(as_objects(reports), shown(reports), as_json=as_json)
    raise SystemExit(exit_status(reports))


def exit_status(reports: Sequence[Report]) -> int:
    """0 if every URL is fine; 1 if a URL has a fault, or no chain has a URL."""
    return int(not reports or any(report.faults for report in reports))


def shown(reports: Sequence[Report]) -> str:
    """A line for each URL, each settlement contract, each fault and each note."""
    if not reports:
        return "no chain has an RPC URL: balances are off; see --chains"
    lines: list[str] = []
    for report in reports:
        answer = f"block {report.block}, {report.block_age_s} s old" if report.block is not None else "no answer"
        lines.append(f"{report.chain.id} {report.chain.name}, URL {report.place}: {answer}")
        lines += [f"  settler {settler}: generation {generation}" for settler, generation in report.generations.items()]
        lines += [f"  {said}" for said in (*report.faults, *report.notes)]
    return "\n".join(lines)


def as_objects(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """An object for each URL. The generation of a settlement contract that does not answer is None."""
    return [
        {
            "chainId": report.chain.id,
            "name": report.chain.name,
            "url": report.place,
            "block": report.block,
            "blockAgeSeconds": report.block_age_s,
            "settlers": [
                {"address": settler, "generation": report.generations.get(settler)} for settler in report.chain.settlers
            ],
            "faults": report.faults,
            "notes": report.notes,
        }
        for report in reports
    ]
