"""The TLS settings of every client in this process."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


@cache
def tls_context() -> ssl.SSLContext:
    """One context for all clients, since reading the machine's certificates takes some 20 ms."""
    return httpx2.create_ssl_context()
