"""`muniment intents watch`: one of several processes follows all configured chains, with a task for each chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from muniment.chains.nodes import Nodes
from muniment.operate.watch.follower import Follower, Step
from muniment.operate.watch.heartbeat import Heartbeat
from muniment.operate.watch.limits import WATCH_LIMITS, WatchLimits
from muniment.operate.watch.progress import LEASE_MS, LeaseLostError, release_lease, renew_lease, take_lease
from muniment.outgoing import Unreachable
from muniment.protocol.errors import Refusal

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.service.context import Context

# The pause between two renewals of the lease, which survives two failed renewals.
_RENEWED_SECONDS: Final = LEASE_MS / 1000 / 3
# The pause between two attempts to take the lease.
_ASKED_SECONDS: Final = 1.0
# With `once`, a chain fails after this many consecutive failures of each of its nodes: a few seconds.
_FAILURES_MAX: Final = 3
# The pause after an unexpected error.
_REST_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


def followed_chains(context: Context) -> list[Chain]:
    """The chains to follow: all with an RPC URL and a settler."""
    return [chain for chain in context.chains.values() if chain.rpc_urls and chain.settlers]


class Start(NamedTuple):
    """The block from which to read a chain again."""

    chain_id: int
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Follows chains until cancelled, or with `once` until each was followed to its head.

    `on_step` is called with every step that changed anything. With a `start`, one chain is read again from there; then
    this process does not wait for the lease, but ends if another process holds it.
    """

    context: Context
    heartbeat: Heartbeat
    once: bool
    interval_s: float
    on_step: Callable[[Step], None]
    start: Start | None = None
    limits: WatchLimits = WATCH_LIMITS

    async def watch(self) -> bool:
        """Follow the chains; with `once`, return whether every chain was followed to its head.

        Without `once` this returns only if there is a `start` and another process holds the lease.
        """
        holder = self.context.random_bytes(16).hex()
        lapsed_s = asyncio.get_running_loop().time() + LEASE_MS / 1000 + 2 * _ASKED_SECONDS
        waits, start = False, self.start
        while True:
            if await self._take(holder):
                try:
                    if start is not None:
                        await self._read_again(start, holder)
                    start = None
                    return await self._lead(holder)
                except LeaseLostError:
                    _log.warning("another process follows the chains now")
                finally:
                    await self._release(holder)
            elif (self.once or start) and asyncio.get_running_loop().time() > lapsed_s:
                _log.error("another process follows the chains")
                return False
            elif not waits:
                _log.info("another process follows the chains; waiting to take over")
                waits = True
            await asyncio.sleep(_ASKED_SECONDS)

    async def _take(self, holder: str) -> bool:
        context = self.context
        try:
            is_taken = await context.database.write(lambda tx: take_lease(tx, holder, context.clock.now_ms()))
        except Refusal as error:
            _log.warning("cannot ask for the lease", detail=error.detail)
            self.heartbeat.fault = error.detail
            return False
        self.heartbeat.fault = ""
        return is_taken

    async def _release(self, holder: str) -> None:
        with suppress(Refusal):  # the lease expires by itself
            await self.context.database.write(lambda tx: release_lease(tx, holder))

    async def _read_again(self, start: Start, holder: str) -> None:
        """Remove a chain's facts from `start` on, to read it again. Raises `LeaseLostError`, `DatabaseUnavailable`."""
        follower = self._follower(self._nodes(self.context.chains[start.chain_id]), holder)
        self._report(await follower.follow_again(start.block))

    async def _lead(self, holder: str) -> bool:
        """Follow every chain while the lease is held. Raises `LeaseLostError`."""
        chains = followed_chains(self.context)
        _log.info("following", chains=[chain.id for chain in chains])
        renewing = asyncio.create_task(self._renew(holder))
        following = [asyncio.create_task(self._follow(chain, holder)) for chain in chains]
        for chain in chains:
            self.heartbeat.begin(chain.id)
        try:
            await _first_failure_or_all(renewing, following)
            return all(task.result() for task in following)
        finally:
            for task in (renewing, *following):
                task.cancel()
            await asyncio.gather(renewing, *following, return_exceptions=True)
            for chain in chains:
                self.heartbeat.end(chain.id)

    async def _renew(self, holder: str) -> None:
        """Renew the lease regularly, also while no step writes. Raises `LeaseLostError`."""
        context = self.context
        while True:
            await asyncio.sleep(_RENEWED_SECONDS)
            try:
                await context.database.write(lambda tx: renew_lease(tx, holder, context.clock.now_ms()))
            except Refusal as error:
                _log.warning("cannot renew the lease", detail=error.detail)

    async def _follow(self, chain: Chain, holder: str) -> bool:
        """Follow one chain despite errors; with `once`, whether it reached the head. Raises `LeaseLostError`."""
        loop, nodes = asyncio.get_running_loop(), self._nodes(chain)
        follower = self._follower(nodes, holder)
        while True:
            if (node := nodes.first_awake()) is None:
                if self.once and all(each.failures >= _FAILURES_MAX for each in nodes.nodes):
                    return False
                await asyncio.sleep(nodes.seconds_to_wait())
                continue
            try:
                step = await follower.step(node)
            except Unreachable as error:
                nodes.failed(node, error.reason)
                _log.warning(
                    "node failed", chain=chain.id, url=node.number, reason=error.reason, text=str(error),
                    failures=node.failures, rests_s=round(node.rests_until_s - loop.time(), 1),
                )  # fmt: skip
                continue
            except LeaseLostError:
                raise
            except Exception as error:  # noqa: BLE001 - an error on one chain must not stop the others, and may pass
                nodes.failed(node, type(error).__name__)
                detail = error.detail if isinstance(error, Refusal) else str(error)
                _log.error("cannot follow", chain=chain.id, error=type(error).__name__, detail=detail)
                await asyncio.sleep(_REST_SECONDS)
                continue
            nodes.succeeded(node)
            self.heartbeat.beat(step)
            self._report(step)
            if self.once and step.at_head and step.all_asked and not step.is_held_back:
                return True
            if step.at_head or step.is_held_back:
                await asyncio.sleep(0 if self.once else self.interval_s)

    def _nodes(self, chain: Chain) -> Nodes:
        context, now_s = self.context, asyncio.get_running_loop().time
        return Nodes(
            context.outgoing, chain, now_s=now_s, chance=lambda: context.random_bytes(1)[0] / 255, limits=self.limits
        )

    def _follower(self, nodes: Nodes, holder: str) -> Follower:
        context, chain = self.context, nodes.chain
        return Follower(
            nodes=nodes,
            confirmations=context.settings.confirmations if chain.confirmations is None else chain.confirmations,
            database=context.database,
            holder=holder,
            now_ms=context.clock.now_ms,
            grace_s=context.settings.settlement_grace_s,
            limits=self.limits,
        )

    def _report(self, step: Step) -> None:
        if step.facts or step.rolled_back is not None or not step.at_head:
            self.on_step(step)


async def _first_failure_or_all(renewing: asyncio.Task[None], following: Sequence[asyncio.Task[bool]]) -> None:
    """Wait until every task in `following` ends. Raises the error of the first task that fails."""
    waiting: set[asyncio.Task[None] | asyncio.Task[bool]] = {renewing, *following}
    while waiting != {renewing}:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
