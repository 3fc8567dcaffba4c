"""The client for asyncio: one class for each group of operations.

`muniment.client.sync` is generated from this file by `make golden`.
"""

from __future__ import annotations

import asyncio  # async only
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import httpx2

from muniment.client.drivers import Awaiting, OnProgress
from muniment.client.flows import following, functions, intents, login, runs, triggers
from muniment.client.flows.functions import Bundle
from muniment.client.flows.log import following as log_following, parts, proving
from muniment.client.flows.session import checked_url, session_of, without_none
from muniment.client.profiles import Profiles
from muniment.client.retrying import Retry
from muniment.client.writer import Writer  # async only
from muniment.protocol.log.tiles import WIDTH
from muniment.tls import tls_context

if TYPE_CHECKING:
    from types import TracebackType

    from muniment.client.answers import Page
    from muniment.client.failures import Forged
    from muniment.client.flows.following import Event, Follower
    from muniment.client.flows.intents import GivenIntent, GivenProposal
    from muniment.client.flows.log.following import Progress, Rules, Seen
    from muniment.client.flows.log.proving import Logged, Provable
    from muniment.client.flows.login import Balance
    from muniment.client.flows.session import Session
    from muniment.client.flows.triggers import SignedTrigger, TriggerDraft
    from muniment.client.signers import Signer
    from muniment.client.steps import Flow
    from muniment.client.words import Words
    from muniment.protocol.functions.rules import Manifest
    from muniment.protocol.functions.types import Function
    from muniment.protocol.intents.types import AnyIntent, AnyProposal, Log as LogLine, LogLevel, Move
    from muniment.protocol.runs.types import NewRun, Run, RunResult
    from muniment.protocol.triggers.types import Preview, RecordedDeactivation, Trigger
    from muniment.protocol.users.types import Profile

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """The records of a listing in its order; `pages` has them page by page, each with its cursor."""

    def __init__(self, driver: Awaiting, read: Callable[[str | None], Flow[Page[T]]]) -> None:
        self._driver = driver
        self._read = read

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for record in page:
                yield record

    async def pages(self, after: str | None = None) -> AsyncIterator[Page[T]]:
        """The pages after the cursor `after`, up to the current end."""
        while True:
            page = await self._driver.run(self._read(after))
            if page:
                yield page
            if page.cursor is None or page.cursor == after:
                return
            after = page.cursor


class Operations:
    """A group of operations of a registry."""

    def __init__(self, driver: Awaiting, session: Session) -> None:
        self._driver = driver
        self._session = session


async def followed(driver: Awaiting, follower: Follower[T]) -> AsyncIterator[Page[T]]:
    """The pages of `follower`, forever."""
    while True:
        yield await driver.run(follower.next_page())


class AsyncFunctions(Operations):
    """Functions of a registry."""

    async def deploy(self, bundle: Path | str | Bundle) -> Function:
        """Upload a bundle, or the folder that has its files. Its CID is computed here and compared."""
        read = bundle if isinstance(bundle, Bundle) else await asyncio.to_thread(Bundle.read, bundle)
        return await self._driver.run(functions.deploy(self._session, read))

    async def get(self, cid: str) -> Function:
        """A function. Raises `FunctionNotFound`."""
        return await self._driver.run(functions.get(self._session, cid))

    def list(
        self,
        *,
        creator: str | None = None,
        cids: list[str] | None = None,
        name: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> AsyncPages[Function]:
        """Functions, `limit` in a page; `name` is the beginning of a name. Their members are claims of the service."""
        sort = -1 if newest_first else 1
        return AsyncPages(self._driver, lambda cursor: functions.page(
            self._session, cursor, creator=creator, cids=cids, name=name, sort=sort, limit=limit
        ))  # fmt: skip

    async def manifest(self, cid: str) -> Manifest:
        """The manifest of a function, proved by its CID."""
        return await self._driver.run(functions.manifest(self._session, cid))

    async def bundle(self, cid: str) -> Bundle:
        """The files of a function, in memory; every block is checked."""
        return await self._driver.run(functions.download(self._session, cid))

    async def car(self, cid: str) -> bytes:
        """The bundle of a function as a CAR file (CARv1), in memory; every block is checked."""
        return await self._driver.run(functions.car(self._session, cid))

    async def download(self, cid: str, to: Path | str) -> Bundle:
        """Write the files of a function into the new folder `to`: every block checked, whole or not at all."""
        bundle = await self._driver.run(functions.download(self._session, cid))
        await asyncio.to_thread(bundle.write, Path(to))
        return bundle


class AsyncTriggers(Operations):
    """Triggers of a registry."""

    async def sign(self, draft: TriggerDraft) -> SignedTrigger:
        """Sign a draft, without registering it. The typed data are built here."""
        return await self._driver.run(triggers.sign(self._session, draft))

    async def preview(self, draft: TriggerDraft) -> Preview:
        """A draft in plain words, made here. Raises the refusal that its registration would get."""
        return await self._driver.run(triggers.preview(self._session, draft))

    async def create(
        self, trigger: TriggerDraft | SignedTrigger, *, on_repeated: Callable[[Trigger], None] | None = None
    ) -> Trigger:
        """Register a trigger; a draft is signed first.

        `on_repeated` is called with the first record of a consent that was registered before; the service says so, also
        of a request that the client sent again because its answer was lost.
        """
        return await self._driver.run(triggers.create(self._session, trigger, on_repeated))

    async def get(self, sig: str, *, signer: str | None = None) -> Trigger:
        """A trigger. Raises `TriggerNotFound`.

        A signature recovers to some address for any content: give `signer`, or compare it with the expected wallet.
        """
        return await self._driver.run(triggers.get(self._session, sig, signer))

    def list(
        self,
        *,
        signer: str | None = None,
        function_cid: str | None = None,
        active: bool | None = None,
        newest_first: bool = False,
        limit: int = 100,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncPages[Trigger]:
        """Triggers, `limit` in a page. A forged one is raised, or given to `on_forged` and left out."""
        filters = without_none({"signer": signer, "functionCid": function_cid, "active": active})
        sort = -1 if newest_first else 1
        return AsyncPages(self._driver, lambda cursor: triggers.page(
            self._session, cursor, filters, sort, limit, on_forged
        ))  # fmt: skip

    def active(self, *, signer: str | None = None, function_cid: str | None = None) -> AsyncPages[Trigger]:
        """The triggers that are neither deactivated nor past their end, as the service claims."""
        return self.list(signer=signer, function_cid=function_cid, active=True)

    def follow(
        self,
        *,
        after: str | None = None,
        signer: str | None = None,
        function_cid: str | None = None,
        poll_s: float = 1.0,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncIterator[Page[Trigger]]:
        """New triggers, page by page, forever: from the first one on, or after the cursor `after`.

        It waits for the change feed; a service without one is polled every `poll_s` seconds. A forged trigger
        is raised, or given to `on_forged` and left out. Pages do not report deactivations: use `events.follow` and
        `refresh`.
        """
        filters = without_none({"signer": signer, "functionCid": function_cid})
        return followed(self._driver, triggers.follower(self._session, after, filters, poll_s, on_forged))

    async def refresh(self, sigs: Iterable[str]) -> dict[str, Trigger]:
        """These triggers as they are now, by signature."""
        return await self._driver.run(triggers.refresh(self._session, [*sigs]))

    async def deactivate(self, sigs: Sequence[str]) -> list[RecordedDeactivation]:
        """End triggers of the signer, at most a hundred; the deactivations that ended them.

        It is one that was signed now, or those by which each trigger was deactivated before. Keep them: they prove what
        was signed.
        """
        return await self._driver.run(triggers.deactivate(self._session, sigs))

    async def deactivation(self, signature: str) -> RecordedDeactivation:
        """A deactivation, with its signature checked: the `deactivate_sig` of a trigger names it."""
        return await self._driver.run(triggers.deactivation(self._session, signature))

    async def post_deactivation(self, sigs: Sequence[str], signature: str) -> list[RecordedDeactivation]:
        """End triggers with a consent that their owner signed elsewhere; the deactivations that ended them."""
        return await self._driver.run(triggers.post_deactivation(self._session, sigs, signature))


class AsyncIntents(Operations):
    """Intents of a registry; an operator writes them."""

    async def get(self, hash: str) -> AnyIntent:
        """An intent. Raises `IntentNotFound`."""
        return await self._driver.run(intents.get(self._session, hash))

    async def moves(self, hash: str) -> Sequence[Move]:
        """When an intent got each of its statuses, as the service claims. Raises `IntentNotFound`."""
        return await self._driver.run(intents.moves(self._session, hash))

    def list(
        self,
        *,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        status: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncPages[AnyIntent]:
        """Intents, `limit` in a page, with the newest 50 proposals and logs of each.

        A forged one is raised, or given to `on_forged` and left out.
        """
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig, "status": status})
        sort = -1 if newest_first else 1
        return AsyncPages(self._driver, lambda cursor: intents.page(
            self._session, cursor, filters, sort, limit, on_forged
        ))  # fmt: skip

    def follow(
        self,
        *,
        after: str | None = None,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        poll_s: float = 1.0,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncIterator[Page[AnyIntent]]:
        """New intents, page by page, forever: from the first one on, or after the cursor `after`.

        It waits for the change feed; a service without one is polled every `poll_s` seconds. A forged intent
        is raised, or given to `on_forged` and left out.
        """
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig})
        return followed(self._driver, intents.follower(self._session, after, filters, poll_s, on_forged))

    async def put(self, intent: GivenIntent) -> AnyIntent:
        """Record an intent: a record, or the members of one. Raises the `Invalid` of the member that is wrong."""
        return await self._driver.run(intents.put(self._session, intents.new_intent(intent)))

    async def propose(self, hash: str, offer: GivenProposal) -> AnyProposal:
        """Append a proposal, a record or its members, to an intent. Raises the `Invalid` of the wrong member."""
        return await self._driver.run(intents.propose(self._session, hash, intents.new_proposal(offer)))

    async def log(self, hash: str, level: LogLevel, data: str, *, id: str | None = None) -> LogLine:
        """Append a line to the log of an intent."""
        return await self._driver.run(intents.log(self._session, hash, intents.new_line(level, data, id)))

    async def move(
        self, hash: str, status: str, *, proposal: str | None = None, transaction_hash: str | None = None
    ) -> AnyIntent:
        """Move an intent or one of its proposals to another status. Raises `StatusConflict`."""
        change = intents.new_change(status, proposal, transaction_hash)
        return await self._driver.run(intents.move(self._session, hash, change))


class AsyncRuns(Operations):
    """Runs of triggers; an operator records them."""

    async def get(self, hash: str) -> Run:
        """A run, with all that it read. Raises `ExecutionNotFound`."""
        return await self._driver.run(runs.get(self._session, hash))

    def list(
        self,
        *,
        trigger_sig: str | None = None,
        relayer: str | None = None,
        result: RunResult | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
        newest_first: bool = False,
        limit: int = 100,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncPages[Run]:
        """Runs, `limit` in a page, without their inputs; times are in milliseconds since 1970.

        A forged one is raised, or given to `on_forged` and left out.
        """
        filters = without_none({
            "triggerSig": trigger_sig, "relayer": relayer, "result": result, "createdAfter": created_after,
            "createdBefore": created_before,
        })  # fmt: skip
        sort = -1 if newest_first else 1
        return AsyncPages(self._driver, lambda cursor: runs.page(
            self._session, cursor, filters, sort, limit, on_forged
        ))  # fmt: skip

    async def latest(self, sigs: Iterable[str]) -> dict[str, Run]:
        """The newest run of each of these triggers, by signature; triggers without a run are left out."""
        return await self._driver.run(runs.latest(self._session, [*sigs]))

    async def record(self, run: NewRun) -> Run:
        """Record a run; its hash is computed here. A note is answered with the verdict, where there is one."""
        return await self._driver.run(runs.record(self._session, run))

    async def orphan(self, hash: str, chain_id: int, block_hash: str) -> Run:
        """Say that the block of the event that made a run due is not canonical any more."""
        return await self._driver.run(runs.orphan(self._session, hash, chain_id, block_hash))


class AsyncAccount(Operations):
    """The signer's account."""

    async def log_in(self, *, lifetime_s: int | None = None) -> str:
        """A token, which the client keeps and sends; this and later tokens are valid for `lifetime_s` seconds.

        None: the default of the service, usually a day.
        """
        return await self._driver.run(login.log_in(self._session, lifetime_s))

    async def api_key(self) -> str:
        """The API key of the signer."""
        return await self._driver.run(login.api_key(self._session))

    async def rotate_api_key(self, *, grace_s: int | None = None) -> str:
        """A new API key; the old one works for `grace_s` seconds more, by default a day."""
        return await self._driver.run(login.rotate_api_key(self._session, grace_s))

    async def balances(self) -> list[Balance]:
        """The signer's tokens, as the service claims."""
        return await self._driver.run(login.balances(self._session))

    async def profile(self) -> Profile:
        """The signer's profile."""
        return await self._driver.run(login.profile(self._session))


class AsyncEvents(Operations):
    """The change feed of a registry."""

    async def begin(self) -> str:
        """The current cursor: call this first, list the records that you follow, then follow from it."""
        return await self._driver.run(following.begin_events(self._session))

    async def page(self, after: str, filters: Mapping[str, Sequence[str]]) -> Page[Event]:
        """The events after the cursor `after`; wait half a minute for one. `filters` are those of `GET /events`.

        Raises `CursorTooOld` if events after it have been pruned.
        """
        return await self._driver.run(following.event_page(self._session, after, filters))

    def follow(
        self, *, after: str | None = None, types: Sequence[str] = (), owner: str | None = None
    ) -> AsyncIterator[Page[Event]]:
        """Events, page by page, forever: from now on, or after the cursor `after`.

        Raises `CursorTooOld` if events after it have been pruned: call `begin` and list the records again.
        """
        filters = without_none({"types": [*types] or None, "owner": owner})
        return followed(self._driver, following.event_follower(self._session, after, filters))


class AsyncLog(Operations):
    """The transparency log of a registry."""

    async def prove(self, record: Provable, *, creator: str | None = None, vkey: str | None = None) -> Logged:
        """Prove that a trigger, a function or a deactivation is in the log.

        `vkey` is the trusted key of the log; default: the first one that this client sees. `creator` is the wallet that
        deployed a function; default: the one in the record. Raises `NotLoggedYet` in the first seconds, and `Forged`
        if the log has another entry or none.
        """
        return await self._driver.run(proving.prove(self._session, record, creator=creator, vkey=vkey))

    async def entry(self, record: Provable, *, creator: str | None = None) -> bytes:
        """The entry that the log has for a record, built from the record."""
        return await self._driver.run(proving.entry_of(self._session, record, creator))

    async def follow(self, seen: Seen | None, rules: Rules) -> Progress:
        """Verify all that the log has shown since `seen`; keep the result's `seen` for the next time.

        Raises `Forked` with the two notes that prove it, `NotAnnounced` for a new log that the previous one does not
        name, `Late` for a log that is old or shows less than was seen, and `Forged`.
        """
        return await self._driver.run(log_following.follow(self._session, seen, rules))

    async def bundles(self) -> AsyncIterator[Sequence[bytes]]:
        """The entries of all epochs, the oldest first, a bundle at a time, as they are served, without a proof."""
        for epoch in reversed(await self._driver.run(parts.epochs(self._session))):
            for n in range(-(-epoch.size // WIDTH)):
                width = min(WIDTH, epoch.size - n * WIDTH)
                yield await self._driver.run(parts.bundle(self._session, epoch.prefix, n, width))


class AsyncRegistry:
    """A registry at `url`, with awaitable calls. Use it in `async with`, which closes its connections.

    `signer` signs; `api_key` deploys; if missing, it is fetched with `signer`; `operator_key` writes intents and runs;
    `token` is from an earlier login of `address`. `protocol` is the registry's protocol name, `chains` maps chain ids
    to settlement contracts. With `verify`, every provable fact of an answer is checked; a false one raises `Forged`.
    `bare_nonce` lets a log-in sign a nonce without words, which could be that of another registry; `words` remembers
    which registries have given words before, and get no such signature.
    `progress` is called during long transfers: "upload" or "download", bytes done, bytes in total or 0.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        url: str,
        *,
        signer: Signer | None = None,
        api_key: str | None = None,
        operator_key: str | None = None,
        token: str | None = None,
        address: str | None = None,
        protocol: str = "Mimic",
        chains: Mapping[int, str] | None = None,
        verify: bool = True,
        timeout_s: float = 30,
        retry: Retry | None = None,
        progress: OnProgress | None = None,
        bare_nonce: bool = False,
        words: Words | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        """Connections open with the first call. Raises `ValueError` for a malformed URL."""
        client = httpx2.AsyncClient(timeout=timeout_s, verify=tls_context()) if http is None else http
        self._owned = client if http is None else None
        checked = checked_url(url)
        session = session_of(
            checked, signer=signer, api_key=api_key, operator_key=operator_key, token=token, address=address,
            protocol=protocol, chains=chains or {}, verify=verify, timeout_s=timeout_s, retry=retry or Retry(),
            bare_nonce=bare_nonce, words=words,
        )  # fmt: skip
        driver = self._driver = Awaiting(checked, client, signer, progress)
        self._session = session
        self.functions = AsyncFunctions(driver, session)
        self.triggers = AsyncTriggers(driver, session)
        self.intents = AsyncIntents(driver, session)
        self.runs = AsyncRuns(driver, session)
        self.account = AsyncAccount(driver, session)
        self.events = AsyncEvents(driver, session)
        self.log = AsyncLog(driver, session)

    @classmethod
    def from_profile(cls, name: str, *, signer: Signer | None = None, operator_key: str | None = None) -> Self:
        """The registry of a profile, with the API key that `muniment login` has stored.

        Raises `ValueError` for an unknown name, and for a stored credential that other users of the machine can read.
        """
        profile = (profiles := Profiles.of_user()).get(name)
        api_key = profiles.credentials(profile).get("apiKey")
        return cls(
            profile.url, signer=signer, operator_key=operator_key, protocol=profile.protocol, api_key=api_key,
            words=profiles.words,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless the HTTP client is the caller's."""
        if self._owned is not None:
            self._driver.check_loop()  # async only
            await self._owned.aclose()

    # async only
    def writer(self, *, concurrency: int = 32, waiting_max: int = 1_000) -> Writer:
        """A writer of intents, which sends up to `concurrency` requests side by side. Use it in `async with`."""
        return Writer(self._driver, self._session, concurrency=concurrency, waiting_max=waiting_max)
