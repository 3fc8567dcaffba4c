"""GET /metrics: the metrics of all processes of this machine, for its operator's monitoring."""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import Unavailable, UnknownPath
from muniment.service.context import Context
from muniment.service.http.admission import is_within
from muniment.service.http.operation import Answer, operation
from muniment.service.http.reply import NO_STORE, Ready
from muniment.service.http.request import Request
from muniment.service.running.limits.costs import HEALTH, READ, Shed
from muniment.service.running.metrics.values import MEDIA_TYPE, render
from muniment.service.storage import sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muniment.service.context import Context

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
    await context.serving.look_at_gauges()
    return Ready(render(context.metrics.values), ((b"content-type", MEDIA_TYPE), NO_STORE))


def _is_forwarded(names: Iterable[bytes]) -> bool:
    return any(map(_is_of_a_proxy, names))


def _is_of_a_proxy(name: bytes) -> bool:
    if name in _NAMES or name.startswith(_PREFIXES):
        return True
    letters = name.translate(None, b"-_")
    return any(part in letters for part in _PARTS)


# These change slowly, and several monitors may ask.
_AGE_SECONDS_MAX: Final = 15.0


class MachineGauges:
    """Sets the gauges when the metrics are read."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a clock that only goes forward."""
        self._now_s = now_s
        self._looked_s = -math.inf

    async def look(self, context: Context) -> None:
        """Set the gauges, those of files at most every 15 seconds; unreadable gauges are absent."""
        context.metrics.refresh()
        context.metrics.gauge("ready").set(await _is_ready(context))
        if self._now_s() - self._looked_s < _AGE_SECONDS_MAX:
            return
        self._looked_s = self._now_s()
        context.metrics.gauge("build_info", version=version("muniment")).set(1)
        _look_at_files(context)


async def _is_ready(context: Context) -> bool:
    try:
        await context.serving.check_ready()
    except Unavailable:
        return False
    return True


def _look_at_files(context: Context) -> None:
    metrics, settings = context.metrics, context.settings
    free, size = metrics.gauge("disk_free_bytes"), metrics.gauge("disk_size_bytes")
    log, backup = metrics.gauge("sqlite_wal_bytes"), metrics.gauge("backup_age_seconds")
    for gauge in (free, size, log, backup):
        gauge.forget()
    with suppress(OSError):
        usage = shutil.disk_usage(settings.data_dir)
        free.set(usage.free)
        size.set(usage.total)
    if (file := sqlite_file(settings.database_url, data_dir=settings.data_dir)) is not None:
        with suppress(OSError):
            log.set(file.with_name(f"{file.name}-wal").stat().st_size)
    with suppress(OSError):
        made_s = settings.backup_mark.stat().st_mtime
        backup.set(max(0.0, context.now_ms() / 1000 - made_s))
