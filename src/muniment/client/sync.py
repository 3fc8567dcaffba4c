"""The client for programs that block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import httpx2

from muniment.client.drivers import Blocking
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


class Pages(Generic[T]):
    """The records of a listing, the oldest first; `pages` has them page by page, each with its cursor."""

    def __init__(self, driver: Blocking, read: Callable[[str | None], Flow[Page[T]]]) -> None:
        self._driver = driver
        self._read = read

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page

    def pages(self, after: str | None = None) -> Iterator[Page[T]]:
        """The pages behind the cursor `after`, up to the present end."""
        while True:
            page = self._driver.run(self._read(after))
            if not page:
                return
            yield page
            if page.cursor is None:
                return
            after = page.cursor


class Registry:
    """A registry at `url`, with blocking calls. Use it in `with`, which closes its connections.

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
        http: httpx2.Client | None = None,
    ) -> None:
        """Connect to nothing yet. Raises `ValueError` for a URL of another form."""
        self._owned = httpx2.Client(timeout=timeout_s) if http is None else None
        session = session_of(
            signer=signer, api_key=api_key, operator_key=operator_key, protocol=protocol, chains=chains or {},
            verify=verify, retry=retry or Retry(),
        )  # fmt: skip
        driver = Blocking(checked_url(url), http or self._owned or httpx2.Client(), signer)
        self.functions = Functions(driver, session)
        self.triggers = Triggers(driver, session)
        self.intents = Intents(driver, session)
        self.account = Account(driver, session)
        self.events = Events(driver, session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the HTTP client is the caller's."""
        if self._owned is not None:
            self._owned.close()


class _Part:
    def __init__(self, driver: Blocking, session: Session) -> None:
        self._driver = driver
        self._session = session


class Functions(_Part):
    """Functions of a registry."""

    def deploy(self, bundle: Path | str | Bundle) -> Function:
        """Upload a bundle, or the folder that has its files. Its CID is computed here and compared."""
        read = bundle if isinstance(bundle, Bundle) else Bundle.read(bundle)
        return self._driver.run(functions.deploy(self._session, read))

    def get(self, cid: str) -> Function:
        """A function. Raises `FunctionNotFound`."""
        return self._driver.run(functions.get(self._session, cid))

    def list(self, *, creator: str | None = None, cids: list[str] | None = None, limit: int = 100) -> Pages[Function]:
        """Functions, `limit` in a page. What is said of them are claims."""
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


class Triggers(_Part):
    """Triggers of a registry."""

    def sign(self, draft: TriggerDraft) -> SignedTrigger:
        """Sign a draft, without registering it. What is signed is built here."""
        return self._driver.run(triggers.sign(self._session, draft))

    def preview(self, draft: TriggerDraft) -> Preview:
        """What a draft says, in plain words, made here."""
        return self._driver.run(triggers.preview(self._session, draft))

    def create(self, trigger: TriggerDraft | SignedTrigger) -> Trigger:
        """Register a trigger; a draft is signed first."""
        return self._driver.run(triggers.create(self._session, trigger))

    def get(self, sig: str) -> Trigger:
        """A trigger. Raises `TriggerNotFound`."""
        return self._driver.run(triggers.get(self._session, sig))

    def list(
        self,
        *,
        signer: str | None = None,
        function_cid: str | None = None,
        active: bool | None = None,
        limit: int = 100,
    ) -> Pages[Trigger]:
        """Triggers, `limit` in a page."""
        filters = without_none({"signer": signer, "functionCid": function_cid, "active": active})
        return Pages(self._driver, lambda cursor: triggers.page(self._session, cursor, filters, limit))

    def follow(
        self,
        *,
        after: str | None = None,
        signer: str | None = None,
        function_cid: str | None = None,
        poll_s: float = 1.0,
    ) -> Iterator[Page[Trigger]]:
        """New triggers, page by page, for ever: from the first one on, or behind the cursor `after`.

        No page tells of a deactivation: `events.follow` does, and `refresh`.
        """
        read = partial(_page_of_triggers, self._session, without_none({"signer": signer, "functionCid": function_cid}))
        while True:
            page = self._driver.run(next_page(read, after, poll_s))
            yield page
            after = page.cursor

    def refresh(self, sigs: Iterable[str]) -> dict[str, Trigger]:
        """These triggers as they are now, by signature."""
        return self._driver.run(triggers.refresh(self._session, [*sigs]))

    def deactivate(self, sigs: Sequence[str]) -> None:
        """End triggers of the signer, at most a hundred."""
        self._driver.run(triggers.deactivate(self._session, sigs))


class Intents(_Part):
    """Intents of a registry; an operator writes them."""

    def get(self, hash: str) -> AnyIntent:  # noqa: A002 - the interface's name for it
        """An intent. Raises `IntentNotFound`."""
        return self._driver.run(intents.get(self._session, hash))

    def list(
        self,
        *,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> Pages[AnyIntent]:
        """Intents, `limit` in a page, with the newest 50 proposals and logs of each."""
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig, "status": status})
        return Pages(self._driver, lambda cursor: intents.page(self._session, cursor, filters, limit))

    def follow(
        self,
        *,
        after: str | None = None,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        poll_s: float = 1.0,
    ) -> Iterator[Page[AnyIntent]]:
        """New intents, page by page, for ever: from the first one on, or behind the cursor `after`."""
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig})
        read = partial(_page_of_intents, self._session, filters)
        while True:
            page = self._driver.run(next_page(read, after, poll_s))
            yield page
            after = page.cursor

    def put(self, intent: AnyNewIntent) -> AnyIntent:
        """Record an intent."""
        return self._driver.run(intents.put(self._session, intent))

    def propose(self, intent: AnyIntent, offer: AnyNewProposal) -> AnyProposal:
        """Append a proposal to an intent."""
        return self._driver.run(intents.propose(self._session, intent, offer))

    def log(self, hash: str, level: LogLevel, data: str, *, id: str | None = None) -> Log:  # noqa: A002 - the interface's names
        """Append a line to the log of an intent."""
        return self._driver.run(intents.log(self._session, hash, intents.new_line(level, data, id)))

    def move(
        self,
        hash: str,  # noqa: A002 - the interface's name for it
        status: str,
        *,
        proposal: str | None = None,
        transaction_hash: str | None = None,
    ) -> AnyIntent:
        """Move an intent, or a proposal of it, to another status. Raises `StatusConflict`."""
        change = intents.new_change(status, proposal, transaction_hash)
        return self._driver.run(intents.move(self._session, hash, change))


class Account(_Part):
    """What belongs to the signer."""

    def log_in(self) -> str:
        """A token, which the client keeps and sends."""
        return self._driver.run(login.log_in(self._session))

    def api_key(self) -> str:
        """The API key of the signer."""
        return self._driver.run(login.api_key(self._session))

    def rotate_api_key(self, *, grace_s: int | None = None) -> str:
        """A new API key; the old one works for `grace_s` seconds more, by default a day."""
        return self._driver.run(login.rotate_api_key(self._session, grace_s))

    def balances(self) -> list[Balance]:
        """The signer's tokens, as the service says."""
        return self._driver.run(login.balances(self._session))

    def profile(self) -> Profile:
        """The signer's profile."""
        return self._driver.run(login.profile(self._session))


class Events(_Part):
    """The change feed of a registry."""

    def begin(self) -> str:
        """The cursor of what happens from now on: list what you follow after it, then follow."""
        return self._driver.run(begin_events(self._session))

    def follow(
        self, *, after: str | None = None, types: Sequence[str] = (), owner: str | None = None
    ) -> Iterator[Page[Event]]:
        """Events, page by page, for ever: from now on, or behind the cursor `after`.

        Raises `CursorTooOld` when events behind it are gone: begin again, and list what you follow.
        """
        after = after or self.begin()
        filters = without_none({"types": [*types] or None, "owner": owner})
        while True:
            page = self._driver.run(next_page(partial(_page_of_events, self._session, filters), after, 0.0))
            yield page
            after = page.cursor


def _page_of_triggers(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[Trigger]]:
    return triggers.page(session, cursor, filters)


def _page_of_intents(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[AnyIntent]]:
    return intents.page(session, cursor, filters)


def _page_of_events(session: Session, filters: Mapping[str, object], cursor: str | None) -> Flow[Page[Event]]:
    return event_page(session, cursor or "", filters)
