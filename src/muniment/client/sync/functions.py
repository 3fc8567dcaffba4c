"""Functions of a registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from muniment.client.flows import functions
from muniment.client.flows.functions import Bundle
from muniment.client.sync.pages import Pages, Part

if TYPE_CHECKING:
    from muniment.functions.rules import Manifest
    from muniment.functions.types import Function


class Functions(Part):
    """Functions of a registry."""

    def deploy(self, bundle: Path | str | Bundle) -> Function:
        """Upload a bundle, or the folder that has its files. Its CID is computed here and compared."""
        read = bundle if isinstance(bundle, Bundle) else Bundle.read(bundle)
        return self._driver.run(functions.deploy(self._session, read))

    def get(self, cid: str) -> Function:
        """A function. Raises `FunctionNotFound`."""
        return self._driver.run(functions.get(self._session, cid))

    def list(self, *, creator: str | None = None, cids: list[str] | None = None, limit: int = 100) -> Pages[Function]:
        """Functions, `limit` in a page. The members of each are claims of the service."""
        return Pages(self._driver, lambda cursor: functions.page(
            self._session, cursor, creator=creator, cids=cids, limit=limit
        ))  # fmt: skip

    def manifest(self, cid: str) -> Manifest:
        """The manifest of a function, proved by its CID."""
        return self._driver.run(functions.manifest(self._session, cid))

    def download(self, cid: str, to: Path | str) -> Bundle:
        """Write the files of a function into the new folder `to`: every block checked, whole or not at all."""
        bundle = self._driver.run(functions.download(self._session, cid))
        bundle.write(Path(to))
        return bundle
