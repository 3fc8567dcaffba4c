"""The ERC-20 tokens of each chain: token lists from files and URLs, merged and refreshed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import structlog

from muniment import durable
from muniment.chains.tokens import LIST_BYTES_MAX, Token, parse_token_list, read_token_list
from muniment.outgoing import Outgoing, Unreachable
from muniment.protocol.evm.address import Address
from muniment.text_files import read_text_file

# More lists are a mistake in the configuration: together, 32 lists may hold 320,000 tokens.
LISTS_MAX: Final = 32
# A list of 3 MB takes seconds on a slow line.
FETCH_SECONDS_MAX: Final = 20.0
# After a failure, a list is requested again sooner than after a success.
RETRY_MS: Final = 10 * 60 * 1000
_LOOK_SECONDS: Final = 60
_HOUR_MS: Final = 3_600_000

_log = structlog.get_logger(__name__)


class TokenLists:
    """The tokens of the chains that a registry serves.

    If lists differ about a token, the earlier list counts. A list from a URL is kept on disk, for a start without
    network.
    """

    def __init__(
        self,
        lists: Sequence[str | Path],
        *,
        chains: Collection[int],
        directory: Path,
        outgoing: Outgoing,
        now_ms: Callable[[], int],
        refresh_hours: int = 24,
    ) -> None:
        """Read the files among `lists`; for the http and https URLs among them, read the lists kept in `directory`.

        Raises `ValueError` with the name of an unreadable or malformed file, and for a URL without a host.
        """
        if len(lists) > LISTS_MAX:
            raise ValueError(f"there are at most {LISTS_MAX} token lists")
        self._chains = frozenset(chains)
        self._directory = directory
        self._outgoing = outgoing
        self._now_ms = now_ms
        self._refresh_ms = refresh_hours * _HOUR_MS
        self._sources = tuple(dict.fromkeys(str(source) for source in lists))
        self._found: dict[str, list[Token]] = {}
        self._due_ms: dict[str, int] = {}
        for source in self._sources:
            if source.lower().startswith(("http://", "https://")):
                _check_url(source)
                self._found[source] = self._kept(source)
                self._due_ms[source] = 0
            else:
                self._found[source] = self._of_chains(_read(Path(source)))
        self._tokens = self._merged()

    def tokens(self, chain_id: int) -> tuple[Token, ...]:
        """The tokens of a chain, in the order of the lists; empty for an unknown chain."""
        return tuple(self._tokens.get(chain_id, {}).values())

    def token(self, chain_id: int, address: Address) -> Token | None:
        """The token of a chain at an address; None if it is unknown."""
        return self._tokens.get(chain_id, {}).get(address)

    async def keep_fresh(self) -> None:
        """Refresh the lists from URLs until cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception:  # noqa: BLE001 - the next attempt may succeed, and nothing restarts this task
                _log.exception("token lists not refreshed")
            await asyncio.sleep(_LOOK_SECONDS)

    async def refresh(self) -> None:
        """Fetch the lists that are due. If that fails, the present list stays."""
        for url, due_ms in list(self._due_ms.items()):
            if self._now_ms() >= due_ms:
                fresh = await self._fetch(url)
                self._due_ms[url] = self._now_ms() + (self._refresh_ms if fresh else RETRY_MS)

    async def _fetch(self, url: str) -> bool:
        try:
            data = await self._outgoing.get(url, seconds_max=FETCH_SECONDS_MAX, bytes_max=LIST_BYTES_MAX)
            found = await read_token_list(data, self._chains)
        except (Unreachable, ValueError, OSError) as error:  # OSError: the child process cannot start
            # Only the host: a URL may carry a key.
            _log.warning("token list not refreshed", host=urlsplit(url).hostname, reason=str(error))
            return False
        self._found[url] = found
        self._tokens = self._merged()
        try:
            await asyncio.to_thread(_write, self._path(url), data)
        except OSError as error:
            _log.warning("token list not kept on disk", host=urlsplit(url).hostname, reason=type(error).__name__)
        return True

    def _kept(self, url: str) -> list[Token]:
        """The stored list of a URL; empty if it was never fetched or its file is damaged."""
        path = self._path(url)
        if not path.exists():
            return []
        try:
            return self._of_chains(_read(path))
        except ValueError as error:
            _log.warning("kept token list is damaged", host=urlsplit(url).hostname, reason=str(error))
            return []

    def _path(self, url: str) -> Path:
        return self._directory / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

    def _of_chains(self, tokens: Iterable[Token]) -> list[Token]:
        return [token for token in tokens if token.chain_id in self._chains]

    def _merged(self) -> dict[int, dict[Address, Token]]:
        merged: dict[int, dict[Address, Token]] = {}
        for source in self._sources:
            for token in self._found[source]:
                merged.setdefault(token.chain_id, {}).setdefault(token.address, token)
        return merged


def _check_url(url: str) -> None:
    """Raise `ValueError`, without the URL, which may have a key."""
    if not (url.isascii() and url.isprintable() and " " not in url and urlsplit(url).hostname):
        raise ValueError("the URL of a token list has a host and no spaces or other letters than ASCII")


def _read(path: Path) -> list[Token]:
    """Read a file. Raises `ValueError` with its name."""
    try:
        return parse_token_list(read_text_file(path, LIST_BYTES_MAX + 1))
    except OSError as error:
        raise ValueError(f"token list {path}: {error.strerror or type(error).__name__}") from error
    except ValueError as error:
        raise ValueError(f"token list {path}: {error}") from error


def _write(path: Path, data: bytes) -> None:
    """Replace a file durably; raises `OSError`."""
    path.parent.mkdir(exist_ok=True)  # without parents: a removed data directory must not be made again
    with durable.whole_file(path) as file:
        file.write(data)
