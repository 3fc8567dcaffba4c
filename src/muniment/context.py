"""The outside world as handlers see it: one frozen value, which `muniment.app` makes once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from muniment.http.clients import ClientAddresses
from muniment.http.request import Request

if TYPE_CHECKING:
    from muniment.blocks.store import BlockStore
    from muniment.chains.catalogue import Chain
    from muniment.chains.holdings import Holdings
    from muniment.clock import Clock
    from muniment.ipfs.unixfs import Profile
    from muniment.limits.disk import DiskReserve
    from muniment.limits.limiter import Limiter
    from muniment.metrics.recorder import Metrics
    from muniment.outgoing import Outgoing
    from muniment.settings import Settings
    from muniment.storage.database import Database, Reader
    from muniment.storage.epoch import Epochs
    from muniment.tracing.tracer import Tracer

# A function's inputs by name, in manifest order, or None when no such function is registered here. Triggers need
# it and functions have it; neither package imports the other.
FindInputs = Callable[[bytes], Awaitable[Mapping[str, str] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything outside of the code: stores, chains, settings, secrets, the clock and chance."""

    settings: Settings
    database: Database
    # Where a request without a decision reads: with replicas, from one that has the writes of this client.
    reader_for: Callable[[Request], Reader]
    # Notes that a client (an address) may have written, before the client has its answer. None without replicas.
    wrote: Callable[[str], None] | None
    # The epoch of the registry, and the highest numbers: cursors are made with them and checked against them.
    epochs: Epochs
    clients: ClientAddresses
    limiter: Limiter
    # Whether the local disks have room for more records.
    disk: DiskReserve
    metrics: Metrics
    blocks: BlockStore
    # Returns when the block store takes uploads, raises `NotReady` when not; frequent calls cost nothing more.
    check_blocks: Callable[[], Awaitable[None]]
    profile: Profile
    chains: Mapping[int, Chain]
    secrets: Callable[[], tuple[bytes, ...]]
    # Whether the time is believed. What is dated and new waits while it is not.
    clock: Clock
    random_bytes: Callable[[int], bytes]
    find_inputs: FindInputs
    holdings: Holdings
    outgoing: Outgoing
    # Requests to receivers of webhooks, whose slowness delays no other request.
    outgoing_webhooks: Outgoing
    # The `Hub` of the feed, for streams and waiting polls; this room does not know its type. None: nothing serves.
    hub: object
    # The `Tail` of the transparency log, likewise.
    log_tail: object
    # Makes the spans of this process; None: traces are off.
    tracer: Tracer | None
    is_stopping: Callable[[], bool]
    # Sets the gauges of the metrics that this process reads from elsewhere, before it answers GET /metrics.
    look_at_gauges: Callable[[], Awaitable[object]]
    # Returns when requests can be served. Raises `NotReady`; frequent calls cost nothing more.
    check_ready: Callable[[], Awaitable[tuple[str, ...]]]

    def client(self, request: Request) -> str:
        """The address that a request comes from."""
        return self.clients.address(request)

    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return self.clock.now_ms()

    @classmethod
    def from_request(cls, request: Request) -> Self:
        """The context that the application put into the request."""
        return request.context
