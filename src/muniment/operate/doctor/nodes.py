"""Checks of the RPC nodes of chains, and of the watcher that follows them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from muniment.chains.catalogue import load_chains
from muniment.operate.check_chains import check as check_urls
from muniment.operate.doctor.findings import Finding, fail, ok, warn
from muniment.outgoing import Outgoing
from muniment.protocol.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muniment.chains.catalogue import Chain
    from muniment.operate.check_chains import Report
    from muniment.operate.doctor.findings import Examined
    from muniment.service.storage.database import Row

# The time for all URLs of one chain. All chains are asked at the same time.
CHAIN_SECONDS_MAX: Final = 5.0
# A running watcher follows within seconds. On the fastest chains this is some minutes.
BLOCKS_BEHIND_MAX: Final = 100


async def check_chains(examined: Examined) -> list[Finding]:
    """A finding for each chain with a URL, and for its watcher if settlements are followed."""
    settings = examined.settings
    try:
        chains = load_chains(settings.chains_file)
    except (OSError, ValueError) as error:
        return [fail(str(error), "repair the file that MUNIMENT_CHAINS_FILE names")]
    served = [chain for chain in chains.values() if chain.rpc_urls]
    if not served:
        return [ok("none has a URL: balances are off")]
    async with Outgoing(allow_private=settings.allow_private_networks) as outgoing:
        reports = await asyncio.gather(*(_ask(outgoing, chain, examined.now_s) for chain in served))
    findings = [judge_chain(chain, found) for chain, found in zip(served, reports, strict=True)]
    try:
        rows = await examined.database.fetch("SELECT chain_id, settler, next_block FROM chain_progress")
    except Refusal as refusal:
        return [*findings, fail(refusal.detail, "look at the database", check="watcher")]
    heads = {
        chain.id: max((report.block or 0 for report in found), default=0)
        for chain, found in zip(served, reports, strict=True)
    }
    default = settings.confirmations
    confirmations = {chain.id: default if chain.confirmations is None else chain.confirmations for chain in served}
    return [*findings, *judge_watcher(_followed(rows, served), heads, confirmations)]


def _followed(rows: Sequence[Row], served: Sequence[Chain]) -> dict[int, int]:
    """The next block of each chain, for its settler that is furthest behind. Former settlers are left out."""
    settlers = {(chain.id, settler.raw) for chain in served for settler in chain.settlers}
    followed: dict[int, int] = {}
    for chain_id, settler, block in rows:
        if (chain_id, bytes(settler)) in settlers:
            followed[chain_id] = min(block, followed.get(chain_id, block))
    return followed


async def _ask(outgoing: Outgoing, chain: Chain, now_s: float) -> list[Report]:
    """The reports of a chain's URLs; empty after the deadline. `muniment chains check` also reads tokens."""
    try:
        async with asyncio.timeout(CHAIN_SECONDS_MAX):
            return await check_urls(outgoing, {chain.id: chain}, {}, now_s=now_s)
    except TimeoutError:
        return []


def judge_chain(chain: Chain, reports: Sequence[Report]) -> Finding:
    """The finding about one chain, which fails only when no URL is usable."""
    check, remedy = f"chain {chain.id}", "run `muniment chains check`, and repair or replace the URLs"
    if not reports:
        return fail(f"its URLs do not answer within {CHAIN_SECONDS_MAX:g} s", remedy, check=check)
    faults = [f"URL {report.place}: {'; '.join(report.faults)}" for report in reports if report.faults]
    if not faults:
        notes = dict.fromkeys(note for report in reports for note in report.notes)
        return ok("; ".join([f"block {max(report.block or 0 for report in reports)}", *notes]), check=check)
    judge = fail if all(report.faults for report in reports) else warn
    return judge(" · ".join(faults), remedy, check=check)


def judge_watcher(
    followed: Mapping[int, int], heads: Mapping[int, int], confirmations: Mapping[int, int]
) -> list[Finding]:
    """A finding for each followed chain: `followed` has the next block to read, `heads` the newest block."""
    findings: list[Finding] = []
    for chain_id, block in followed.items():
        head = heads.get(chain_id, 0)
        if not head:
            continue  # the chain has its own finding, or no URL any more
        behind = max(head - confirmations[chain_id] + 1 - block, 0)
        shown = f"{behind} blocks behind chain {chain_id}"
        if behind > BLOCKS_BEHIND_MAX:
            findings.append(warn(shown, "start `muniment intents watch`, or look at its log", check="watcher"))
        else:
            findings.append(ok(shown, check="watcher"))
    return findings
