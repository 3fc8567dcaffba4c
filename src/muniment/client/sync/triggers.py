"""Triggers of a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from muniment.client.flows import triggers
from muniment.client.flows.session import without_none
from muniment.client.sync.pages import Pages, Part, followed

if TYPE_CHECKING:
    from muniment.client.failures import Forged
    from muniment.client.flows.triggers import SignedTrigger, TriggerDraft
    from muniment.client.pages import Page
    from muniment.triggers.types import Preview, RecordedDeactivation, Trigger


class Triggers(Part):
    """Triggers of a registry."""

    def sign(self, draft: TriggerDraft) -> SignedTrigger:
        """Sign a draft, without registering it. The typed data are built here."""
        return self._driver.run(triggers.sign(self._session, draft))

    def preview(self, draft: TriggerDraft) -> Preview:
        """A draft in plain words, made here."""
        return self._driver.run(triggers.preview(self._session, draft))

    def create(self, trigger: TriggerDraft | SignedTrigger) -> Trigger:
        """Register a trigger; a draft is signed first."""
        return self._driver.run(triggers.create(self._session, trigger))

    def get(self, sig: str, *, signer: str | None = None) -> Trigger:
        """A trigger. Raises `TriggerNotFound`.

        Any content has an address whose signature `sig` would be: give `signer`, or compare it with the wallet that you
        expect.
        """
        return self._driver.run(triggers.get(self._session, sig, signer))

    def list(
        self,
        *,
        signer: str | None = None,
        function_cid: str | None = None,
        active: bool | None = None,
        limit: int = 100,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> Pages[Trigger]:
        """Triggers, `limit` in a page. A forged one is raised, or given to `on_forged` and left out."""
        filters = without_none({"signer": signer, "functionCid": function_cid, "active": active})
        return Pages(self._driver, lambda cursor: triggers.page(self._session, cursor, filters, limit, on_forged))

    def follow(
        self,
        *,
        after: str | None = None,
        signer: str | None = None,
        function_cid: str | None = None,
        poll_s: float = 1.0,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> Iterator[Page[Trigger]]:
        """New triggers, page by page, for ever: from the first one on, or behind the cursor `after`.

        The change feed says when there are some; a service without it is asked every `poll_s` seconds. A forged trigger
        is raised, or given to `on_forged` and left out. No page tells of a deactivation: `events.follow` does, and
        `refresh`.
        """
        filters = without_none({"signer": signer, "functionCid": function_cid})
        return followed(self._driver, triggers.follower(self._session, after, filters, poll_s, on_forged))

    def refresh(self, sigs: Iterable[str]) -> dict[str, Trigger]:
        """These triggers as they are now, by signature."""
        return self._driver.run(triggers.refresh(self._session, [*sigs]))

    def deactivate(self, sigs: Sequence[str]) -> None:
        """End triggers of the signer, at most a hundred."""
        self._driver.run(triggers.deactivate(self._session, sigs))

    def deactivation(self, signature: str) -> RecordedDeactivation:
        """A deactivation, whose signature was checked: the `deactivate_sig` of a trigger names it."""
        return self._driver.run(triggers.deactivation(self._session, signature))

    def post_deactivation(self, sigs: Sequence[str], signature: str) -> None:
        """End triggers by a consent that their owner has signed somewhere else, such as one from a log."""
        self._driver.run(triggers.post_deactivation(self._session, sigs, signature))
