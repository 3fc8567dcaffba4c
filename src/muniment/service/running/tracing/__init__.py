"""Traces for a collector of OpenTelemetry. Only `tracer` imports OpenTelemetry, and only when traces are on."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from muniment.service.running.tracing.tracer import Tracer

# The default path of a collector (OTLP specification, "OTLP/HTTP Request").
_PATH: Final = "/v1/traces"


def open_tracer(endpoint: str, ratio: float) -> Tracer | None:
    """The tracer that sends spans to the collector at `endpoint`; None for an empty `endpoint`.

    `ratio` is the share, from 0 to 1, of the requests without a parent that begin a trace. Raises `ValueError` when the
    packages of the extra `traces` are missing.
    """
    if not endpoint:
        return None
    try:
        # The packages are those of an extra.
        from muniment.service.running.tracing.tracer import Exporter, Tracer  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ValueError(
            "trace_endpoint is set, but the packages for traces are not installed: "
            "pip install 'muniment[server,traces]', or leave trace_endpoint empty"
        ) from None
    return Tracer(Exporter(traces_url(endpoint)), ratio, chance=random.random, now_s=time.monotonic)


def traces_url(endpoint: str) -> str:
    """The URL for spans at the collector `endpoint`. A query, where some collectors have a key, is kept."""
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else parts._replace(path=_PATH).geturl()
