"""A client of the API that has webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Maker:
    """A client that has webhooks, with its credential."""

    client: httpx2.AsyncClient
    headers: dict[str, str]

    async def call(self, method: str, path: str, body: object = None) -> httpx2.Response:
        given: dict[str, Any] = {} if body is None else {"json": body}
        return await self.client.request(method, path, headers=self.headers, **given)

    async def done(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request that must succeed."""
        response = await self.call(method, path, body)
        assert response.status_code == 200, response.text
        return response.json()

    async def add(self, url: str, **members: Any) -> dict[str, Any]:
        """A new webhook, and its secret."""
        return await self.done("POST", "/webhooks", {"url": url, **members})

    async def added(self, url: str, **members: Any) -> str:
        """The path of a new webhook."""
        return f"/webhooks/{(await self.add(url, **members))['webhook']['id']}"
