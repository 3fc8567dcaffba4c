"""Functions of a registry, for asyncio."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from muniment.client.aio.pages import AsyncPages, Part
from muniment.client.flows import functions
from muniment.client.flows.functions import Bundle

if TYPE_CHECKING:
    from muniment.functions.rules import Manifest
    from muniment.functions.types import Function


class AsyncFunctions(Part):
    """Functions of a registry."""

    async def deploy(self, bundle: Path | str | Bundle) -> Function:
        """Upload a bundle, or the folder that has its files. Its CID is computed here and compared."""
        read = bundle if isinstance(bundle, Bundle) else await asyncio.to_thread(Bundle.read, bundle)
        return await self._driver.run(functions.deploy(self._session, read))

    async def get(self, cid: str) -> Function:
        """A function. Raises `FunctionNotFound`."""
        return await self._driver.run(functions.get(self._session, cid))

    def list(
        self, *, creator: str | None = None, cids: list[str] | None = None, limit: int = 100
    ) -> AsyncPages[Function]:
        """Functions, `limit` in a page. The members of each are claims of the service."""
        return AsyncPages(self._driver, lambda cursor: functions.page(
            self._session, cursor, creator=creator, cids=cids, limit=limit
        ))  # fmt: skip

    async def manifest(self, cid: str) -> Manifest:
        """The manifest of a function, proved by its CID."""
        return await self._driver.run(functions.manifest(self._session, cid))

    async def download(self, cid: str, to: Path | str) -> Bundle:
        """Write the files of a function into the new folder `to`: every block checked, whole or not at all."""
        bundle = await self._driver.run(functions.download(self._session, cid))
        await asyncio.to_thread(bundle.write, Path(to))
        return bundle
