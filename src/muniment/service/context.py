"""The context of handlers: stores, settings, clock and chance in one frozen value, made once by `service.app`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from muniment.protocol.errors import NotReady
from muniment.service.http.admission import ClientAddresses
from muniment.service.http.request import Request

if TYPE_CHECKING:
    from muniment.chains.catalogue import Chain
    from muniment.chains.holdings import Holdings
    from muniment.outgoing import Outgoing
    from muniment.service.blocks.store import BlockStore
    from muniment.service.running.clock import Clock
    from muniment.service.running.limits.disk import DiskReserve
    from muniment.service.running.limits.limiter import Limiter
    from muniment.service.running.metrics.recorder import Metrics
    from muniment.service.running.settings import Settings
    from muniment.service.running.tracing.tracer import Tracer
    from muniment.service.storage.database import Database, Reader
    from muniment.service.storage.epoch import Epochs
    from muniment.service.storage.service_number import ServiceNumber

# Returns a function's inputs by name, in manifest order; None for an unregistered function. Triggers call it and
# functions implement it; neither package imports the other.
FindInputs = Callable[[bytes], Awaitable[Mapping[str, str] | None]]


async def _not_serving() -> tuple[str, ...]:
    raise NotReady("this process does not serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The parts of a context that only a serving process has; `service.app` adds the state of the resources."""

    is_stopping: Callable[[], bool] = bool
    # Sets the gauges that are read from elsewhere, before GET /metrics is answered.
    look_at_gauges: Callable[[], Awaitable[object]] = _not_serving
    # Raises `NotReady` unless requests can be served; returns notes. Results are shared by frequent calls.
    check_ready: Callable[[], Awaitable[tuple[str, ...]]] = _not_serving


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything outside the code: stores, chains, settings, secrets, the clock and chance."""

    settings: Settings
    database: Database
    # The reader of one answer that may be late: a listing, the feed, or a page of the console. With replicas it is one
    # of them, at most `replica_lag_s_max` seconds old. A single record, and all that decides, is read from `database`.
    list_reader: Callable[[], Reader]
    # The epoch of the registry, and the highest numbers, to make and check cursors.
    epochs: Epochs
    clients: ClientAddresses
    limiter: Limiter
    # Whether the local disks have room for more records.
    disk: DiskReserve
    metrics: Metrics
    blocks: BlockStore
    chains: Mapping[int, Chain]
    secrets: Callable[[], tuple[bytes, ...]]
    # The trusted time. New dated records are refused while the clock is in doubt.
    clock: Clock
    random_bytes: Callable[[int], bytes]
    # The number of this service among those of the database.
    number: ServiceNumber
    # The slots of the last nonces of log-ins, a byte for the addresses that share a checksum. They begin at random: a
    # service that starts again may have given out the first ones.
    last_slots: bytearray
    find_inputs: FindInputs
    holdings: Holdings
    outgoing: Outgoing
    # Requests to receivers of webhooks, whose slowness delays no other request.
    outgoing_webhooks: Outgoing
    # Makes the spans of this process; None while traces are off.
    tracer: Tracer | None
    serving: Serving = Serving()

    def of_primary(self) -> Context:
        """The context of a page that shows its reader what he has just done: listings are not late either."""
        return replace(self, list_reader=lambda: self.database)

    # The context that the application put into a request.
    from_request: ClassVar[Callable[[Request], Context]] = attrgetter("context")
