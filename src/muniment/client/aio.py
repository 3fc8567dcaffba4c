"""The client for programs with an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import httpx2

from muniment.client.drivers import Awaiting
from muniment.client.flows import functions, intents, login, triggers
from muniment.client.flows.following import Event, begin_events, event_page, next_page
from muniment.client.flows.functions import Bundle
from muniment.client.opening import checked_url, session_of, without_none
from muniment.client.retrying import Retry

if TYPE_CHECKING:
    from types import TracebackType

    from muniment.client.flows.login import Balance
    from muniment.client.flows.session import Session
    from muniment.client.flows.triggers import SignedTrigger, TriggerDraft
    from muniment.client.pages import Page
    from muniment.client.signers import Signer
    from muniment.client.steps import Flow
    from muniment.functions.manifest import Manifest
    from muniment.functions.types import Function
    from muniment.intents.types import AnyIntent, AnyNewIntent, AnyNewProposal, AnyProposal, Log, LogLevel
    from muniment.triggers.types import Preview, Trigger
    from muniment.users.types import Profile

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """The records of a listing, the oldest first; `pages` has them page by page, each with its cursor."""

    def __init__(self, driver: Awaiting, read: Callable[[str | None], Flow[Page[T]]]) -> None:
        self._driver = driver
        self._read = read

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for record in page:
                yield record

    async def pages(self, after: str | None = None) -> AsyncIterator[Page[T]]:
        """The pages behind the cursor `after`, up to the present end."""
        while True:
            page = await self._driver.run(self._read(after))
            if not page:
                return
            yield page
            if page.cursor is None:
                return
            after = page.cursor


class AsyncRegistry:
    """A registry at `url`, with calls to await. Use it in `async with`, which closes its connections.

    `signer` signs; `api_key` deploys, and is read with the signer if it is missing; `operator_key` writes intents.
    `protocol` is the registry's protocol name, `chains` maps ids of chains to settlement contracts. With `verify`, what
    an answer can prove is proved, and `Forged` is raised where it is false.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        url: str,
        *,
        signer: Signer | None = None,
        api_key: str | None = None,
        operator_key: str | None = None,
        protocol: str = "Mimic",
        chains: Mapping[int, str] | None = None,
        verify: bool = True,
        timeout_s: float = 30,
        retry: Retry | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        """Connect to nothing yet. Raises `ValueError` for a URL of another form."""
        self._owned = httpx2.AsyncClient(timeout=timeout_s) if http is None else None
        session = session_of(
            signer=signer, api_key=api_key, operator_key=operator_key, protocol=protocol, chains=chains or {},
            verify=verify, retry=retry or Retry(),
        )  # fmt: skip
        driver = Awaiting(checked_url(url), http or self._owned or httpx2.AsyncClient(), signer)
        self.functions = AsyncFunctions(driver, session)
        self.triggers = AsyncTriggers(driver, session)
        self.intents = AsyncIntents(driver, session)
        self.account = AsyncAccount(driver, session)
        self.events = AsyncEvents(driver, session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless the HTTP client is the caller's."""
        if self._owned is not None:
            await self._owned.aclose()


class _Part:
    def __init__(self, driver: Awaiting, session: Session) -> None:
        self._driver = driver
        self._session = session


class AsyncFunctions(_Part):
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
        """Functions, `limit` in a page. What is said of them are claims."""
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


class AsyncTriggers(_Part):
    """Triggers of a registry."""

    async def sign(self, draft: TriggerDraft) -> SignedTrigger:
        """Sign a draft, without registering it. What is signed is built here."""
        return await self._driver.run(triggers.sign(self._session, draft))

    async def preview(self, draft: TriggerDraft) -> Preview:
        """What a draft says, in plain words, made here."""
        return await self._driver.run(triggers.preview(self._session, draft))

    async def create(self, trigger: TriggerDraft | SignedTrigger) -> Trigger:
        """Register a trigger; a draft is signed first."""
        return await self._driver.run(triggers.create(self._session, trigger))

    async def get(self, sig: str) -> Trigger:
        """A trigger. Raises `TriggerNotFound`."""
        return await self._driver.run(triggers.get(self._session, sig))

    def list(
        self,
        *,
        signer: str | None = None,
        function_cid: str | None = None,
        active: bool | None = None,
        limit: int = 100,
    ) -> AsyncPages[Trigger]:
        """Triggers, `limit` in a page."""
        filters = without_none({"signer": signer, "functionCid": function_cid, "active": active})
        return AsyncPages(self._driver, lambda cursor: triggers.page(self._session, cursor, filters, limit))

    async def follow(
        self,
        *,
        after: str | None = None,
        signer: str | None = None,
        function_cid: str | None = None,
        poll_s: float = 1.0,
    ) -> AsyncIterator[Page[Trigger]]:
        """New triggers, page by page, for ever: from the first one on, or behind the cursor `after`.

        No page tells of a deactivation: `events.follow` does, and `refresh`.
        """
        read = partial(_page_of_triggers, self._session, without_none({"signer": signer, "functionCid": function_cid}))
        while True:
            page = await self._driver.run(next_page(read, after, poll_s))
            yield page
            after = page.cursor

    async def refresh(self, sigs: Iterable[str]) -> dict[str, Trigger]:
        """These triggers as they are now, by signature."""
        return await self._driver.run(triggers.refresh(self._session, [*sigs]))

    async def deactivate(self, sigs: Sequence[str]) -> None:
        """End triggers of the signer, at most a hundred."""
        await self._driver.run(triggers.deactivate(self._session, sigs))


class AsyncIntents(_Part):
    """Intents of a registry; an operator writes them."""

    async def get(self, hash: str) -> AnyIntent:  # noqa: A002 - the interface's name for it
        """An intent. Raises `IntentNotFound`."""
        return await self._driver.run(intents.get(self._session, hash))

    def list(
        self,
        *,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> AsyncPages[AnyIntent]:
        """Intents, `limit` in a page, with the newest 50 proposals and logs of each."""
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig, "status": status})
        return AsyncPages(self._driver, lambda cursor: intents.page(self._session, cursor, filters, limit))

    async def follow(
        self,
        *,
        after: str | None = None,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        poll_s: float = 1.0,
    ) -> AsyncIterator[Page[AnyIntent]]:
        """New intents, page by page, for ever: from the first one on, or behind the cursor `after`."""
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig})
        read = partial(_page_of_intents, self._session, filters)
        while True:
            page = await self._driver.run(next_page(read, after, poll_s))
            yield page
            after = page.cursor

    async def put(self, intent: AnyNewIntent) -> AnyIntent:
        """Record an intent."""
        return await self._driver.run(intents.put(self._session, intent))

    async def propose(self, intent: AnyIntent, offer: AnyNewProposal) -> AnyProposal:
        """Append a proposal to an intent."""
        return await self._driver.run(intents.propose(self._session, intent, offer))

    async def log(self, hash: str, level: LogLevel, data: str, *, id: str | None = None) -> Log:  # noqa: A002 - the interface's names
        """Append a line to the log of an intent."""
        return await self._driver.run(intents.log(self._session, hash, intents.new_line(level, data, id)))

    async def move(
        self,
        hash: str,  # noqa: A002 - the interface's name for it
        status: str,
        *,
        proposal: str | None = None,
        transaction_hash: str | None = None,
    ) -> AnyIntent:
        """Move an intent, or a proposal of it, to another status. Raises `StatusConflict`."""
        change = intents.new_change(status, proposal, transaction_hash)
        return await self._driver.run(intents.move(self._session, hash, change))


class AsyncAccount(_Part):
    """What belongs to the signer."""

    async def log_in(self) -> str:
        """A token, which the client keeps and sends."""
        return await self._driver.run(login.log_in(self._session))

    async def api_key(self) -> str:
        """The API key of the signer."""
        return await self._driver.run(login.api_key(self._session))

    async def rotate_api_key(self, *, grace_s: int | None = None) -> str:
        """A new API key; the old one works for `grace_s` seconds more, by default a day."""
        return await self._driver.run(login.rotate_api_key(self._session, grace_s))

    async def balances(self) -> list[Balance]:
        """The signer's tokens, as the service says."""
        return await self._driver.run(login.balances(self._session))

    async def profile(self) -> Profile:
        """The signer's profile."""
        return await self._driver.run(login.profile(self._session))


class AsyncEvents(_Part):
    """The change feed of a registry."""

    async def begin(self) -> str:
        """The cursor of what happens from now on: list what you follow after it, then follow."""
        return await self._driver.run(begin_events(self._session))

    async def follow(
        self, *, after: str | None = None, types: Sequence[str] = (), owner: str | None = None
    ) -> AsyncIterator[Page[Event]]:
        """Events, page by page, for ever: from now on, or behind the cursor `after`.

        Raises `CursorTooOld` when events behind it are gone: begin again, and list what you follow.
        """
        after = after or await self.begin()
        filters = without_none({"types": [*types] or None, "owner": owner})
        while True:
            page = await self._driver.run(next_page(partial(_page_of_events, self._session, filters), after, 0.0))
            yield page
            after = page.cursor


def _page_of_triggers(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[Trigger]]:
    return triggers.page(session, cursor, filters)


def _page_of_intents(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[AnyIntent]]:
    return intents.page(session, cursor, filters)


def _page_of_events(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[Event]]:
    return event_page(session, cursor or "", filters)
