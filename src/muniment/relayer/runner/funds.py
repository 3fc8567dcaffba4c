"""What the wallets of a run's intents have, and what these spend. Only told: no intent waits for it, or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from muniment.chains import multicall
from muniment.chains.catalogue import NATIVE
from muniment.chains.reading import COIN
from muniment.chains.rpc import eth_call
from muniment.outgoing import SMALL_ANSWER_BYTES_MAX, Unreachable
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.hex import data_of
from muniment.protocol.intents.types import NewIntent
from muniment.protocol.runs.hashes import hash_of
from muniment.relayer.lives.following import FAILURES
from muniment.relayer.runner.calls import CALL_GAS_MAX
from muniment.relayer.runner.operations import chain_of, inputs_of

if TYPE_CHECKING:
    from muniment.chains.multicall import Holding
    from muniment.chains.nodes import Nodes
    from muniment.client import AsyncRegistry
    from muniment.protocol.intents.types import AnyNewIntent
    from muniment.protocol.runs.types import NewRun
    from muniment.relayer.figures import Figures

# Tokens of wallets that are read for one run: as many as a run has intents. An honest run spends a few.
READS_MAX: Final = 32

_log = structlog.get_logger(__name__)


class Holder(NamedTuple):
    """A wallet on a chain, and the settlement contract that takes from it."""

    chain_id: int
    wallet: Address
    settler: Address


@dataclass(slots=True)
class _Need:
    """What a run spends of a token, in base units, and the place of the first intent that spends it."""

    place: int
    amount: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """Tells when wallets have, or let a settlement contract take, less than a run spends.

    It is a line of the log and a count in `figures`, and with a `registry` a line in the log of the intent too.
    """

    nodes: Mapping[int, Nodes]
    figures: Figures
    registry: AsyncRegistry | None

    async def tell(self, run: NewRun, intents: Sequence[AnyNewIntent]) -> None:
        """Read what the intents of a recorded run spend, at the newest block, and tell what is too little.

        What no node answers is not told.
        """
        # Thirty-two intents of the longest kind take seconds, in which others would have no turn.
        needs = await asyncio.to_thread(_needs_of, intents, frozenset(self.nodes))
        holders = list(needs)
        holdings = await asyncio.gather(*(self._read(each, list(needs[each])) for each in holders))
        for holder, held in zip(holders, holdings, strict=True):
            for token, holding in held.items():
                await self._compare(run, holder, token, needs[holder][token], holding)

    async def _read(self, holder: Holder, tokens: Sequence[Address]) -> Mapping[Address, Holding]:
        """What a wallet has of those tokens that can be read, as the first node says that answers."""
        asked = [COIN if token == NATIVE else token for token in tokens]
        call = eth_call(multicall.one_shot(holder.wallet, holder.settler, asked), gas=CALL_GAS_MAX)
        nodes = self.nodes[holder.chain_id]
        for node in nodes.nodes:
            try:
                (answer,) = await nodes.ask(node, [call], bytes_max=SMALL_ANSWER_BYTES_MAX)
            except Unreachable:
                continue
            shot = multicall.decode_one_shot(data_of(answer) or b"", len(tokens))
            if shot is not None:
                nothing = multicall.Holding(0, None)
                return {token: shot.found.get(place, nothing) for place, token in enumerate(tokens[: shot.tried])}
        return {}

    async def _compare(self, run: NewRun, holder: Holder, token: Address, need: _Need, holding: Holding) -> None:
        balance, allowance = holding.balance, None if token == NATIVE else holding.allowance
        if balance is None or (balance >= need.amount and (allowance is None or allowance >= need.amount)):
            return
        chain_id, wallet, settler = holder
        # The reader does not ask for the allowance of a wallet that has nothing.
        funds = {"needs": need.amount, "balance": balance, "allowance": allowance}
        self.figures.add("failures_total", "funds")
        _log.warning(
            "a wallet has too little for an intent", trigger=run.trigger_sig, chain=chain_id, token=token, user=wallet,
            settler=settler, funds={name: str(amount) for name, amount in funds.items() if amount is not None},
        )  # fmt: skip
        if self.registry is None:
            return
        taken = "" if allowance is None else f", and lets {settler} take {allowance}"
        said = f"{wallet} needs {need.amount} of {token} on chain {chain_id}, has {balance}{taken}"
        with suppress(*FAILURES):  # an intent that is not recorded, or a registry that does not answer
            await self.registry.intents.log(
                run.outputs[need.place].hash, "warning", said,
                id=f"0x{hash_of(run).hex()}/{token[2:10]}{wallet[2:10]}",
            )  # fmt: skip


def _needs_of(intents: Sequence[AnyNewIntent], chains: frozenset[int]) -> dict[Holder, dict[Address, _Need]]:
    """What intents spend together, by wallet and token, on those of `chains`."""
    needs: dict[Holder, dict[Address, _Need]] = {}
    count = 0
    for place, intent in enumerate(intents):
        for holder, token, amount in _spent(intent, chains):
            known = needs.get(holder, {}).get(token)
            if known is None:
                if count == READS_MAX or not amount or token == COIN:
                    continue
                count += 1
                known = needs.setdefault(holder, {})[token] = _Need(place)
            known.amount += amount
    return needs


def _spent(intent: AnyNewIntent, chains: frozenset[int]) -> Iterator[tuple[Holder, Address, int]]:
    """What transfers and swaps take from wallets, and the fees, which are paid where the first operation begins."""
    if isinstance(intent, NewIntent):
        payer, operations = intent.user, [(intent.op, intent.user, intent.data)]
    else:
        payer, operations = intent.fee_payer, [(each.op_type, each.user, each.data) for each in intent.operations]
    for op_type, wallet, data in operations:
        if (chain_id := chain_of(data)) in chains:
            for token, amount in inputs_of(op_type, data):
                yield Holder(chain_id, wallet, intent.settler), token, amount
    if operations and (chain_id := chain_of(operations[0][2])) in chains:
        for fee in intent.max_fees:
            yield Holder(chain_id, payer, intent.settler), fee.token, int(fee.amount)
