"""GET /metrics: the metrics of all processes of this machine, for its operator's monitoring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.context import Context
from muniment.errors import UnknownPath
from muniment.http.clients import is_within
from muniment.http.operation import Answer, operation
from muniment.http.reply import NO_STORE, Ready
from muniment.http.request import Request
from muniment.limits.costs import HEALTH, READ, Shed
from muniment.metrics.text import MEDIA_TYPE, render

if TYPE_CHECKING:
    from collections.abc import Iterable

# A header field of a proxy means that the request comes from another host than its peer. Proxies spell these names in
# many ways, so a part of the name is enough; hyphens and underscores do not count.
_PARTS: Final = (b"forward", b"proxy", b"clientip", b"realip", b"userip")
_PREFIXES: Final = (b"cf-", b"x-envoy-")  # Cloudflare, Envoy
_NAMES: Final = frozenset({b"via", b"cdn-loop"})  # RFC 9110 section 7.6.3, RFC 8586


@operation(
    "GET", "/metrics", cost=HEALTH, sheds=Shed.NEVER,
    refuses=(UnknownPath,), answers={200: Answer("Prometheus' text format, version 0.0.4", ("text/plain",))},
)  # fmt: skip
async def get_metrics(context: Context, request: Request) -> Ready[bytes]:
    """Read the metrics of all processes of this machine.

    For the operator's monitoring only: peers in the setting `metrics_from`, without a proxy between. All other clients
    get 404.
    """
    if not is_within(request.peer, context.settings.metrics_networks) or _is_forwarded(request.named):
        request.charge(request.client.client, READ.units)
        raise UnknownPath("no operation has this path; /docs lists them all")
    await context.look_at_gauges()
    return Ready(render(context.metrics.values), ((b"content-type", MEDIA_TYPE), NO_STORE))


def _is_forwarded(names: Iterable[bytes]) -> bool:
    return any(map(_is_of_a_proxy, names))


def _is_of_a_proxy(name: bytes) -> bool:
    if name in _NAMES or name.startswith(_PREFIXES):
        return True
    letters = name.translate(None, b"-_")
    return any(part in letters for part in _PARTS)
