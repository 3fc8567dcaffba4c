"""GET /metrics: the metrics of all processes of this machine, for the monitoring of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.context import Context
from muniment.errors import UnknownPath
from muniment.http.clients import is_within
from muniment.http.operation import Answer, operation
from muniment.http.reply import NO_STORE, Ready
from muniment.http.request import Request
from muniment.limits.costs import FREE, READ, Shed
from muniment.metrics.text import MEDIA_TYPE, render

if TYPE_CHECKING:
    from collections.abc import Iterable

# Header fields of proxies: a request that has one comes from somebody else than its peer.
FORWARDED: Final = frozenset({
    b"forwarded", b"via", b"x-real-ip", b"true-client-ip", b"cf-connecting-ip", b"x-client-ip", b"x-cluster-client-ip",
})  # fmt: skip
_FORWARDED_PREFIX: Final = b"x-forwarded"


@operation(
    "GET", "/metrics", cost=FREE, sheds=Shed.NEVER,
    refuses=(UnknownPath,), answers={200: Answer("Prometheus' text format, version 0.0.4", ("text/plain",))},
)  # fmt: skip
async def get_metrics(context: Context, request: Request) -> Ready[bytes]:
    """Read the metrics of all processes of this machine.

    Only the monitoring of the operator gets them: peers in the setting `metrics_from`, without a proxy between. For all
    others this path does not exist.
    """
    if not is_within(request.peer, context.settings.metrics_networks) or _is_forwarded(request.named):
        request.charge(request.client.client, READ.units)
        raise UnknownPath("no operation has this path; /docs lists them all")
    await context.look_at_gauges()
    return Ready(render(context.metrics.values), ((b"content-type", MEDIA_TYPE), NO_STORE))


def _is_forwarded(names: Iterable[bytes]) -> bool:
    return any(name in FORWARDED or name.startswith(_FORWARDED_PREFIX) for name in names)
