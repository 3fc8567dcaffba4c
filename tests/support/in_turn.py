"""A client whose requests go to several services of one database in turn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import httpx2


class _InTurn(httpx2.AsyncHTTPTransport):
    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(trust_env=False)
        self._urls = itertools.cycle(map(httpx2.URL, urls))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = next(self._urls)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        return await super().handle_async_request(request)


def client_in_turn(urls: Sequence[str]) -> httpx2.AsyncClient:
    """Ask the services at `urls` one after the other."""
    return httpx2.AsyncClient(base_url=urls[0], transport=_InTurn(urls), timeout=60)
