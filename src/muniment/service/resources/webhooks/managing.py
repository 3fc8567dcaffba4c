"""Actions on webhooks, of the API and of commands: add, change, resume, replay, rotate, remove.

`maker` is the caller, who sees and changes only their own hooks. None stands for the command line, which may change
every hook. Wallets are free to make: from one address they may add a few webhooks, fewer of them pending, and these for
a day at most. Otherwise one stranger could take the slots of all.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from muniment.protocol.errors import InvalidBody, TooManyWebhooks, WebhookNotConfirmed, WebhookNotFound
from muniment.protocol.evm.address import Address
from muniment.protocol.wire import iso_time
from muniment.service.resources.feed.events import Position
from muniment.service.resources.feed.reading import check_position, newest
from muniment.service.resources.webhooks import store
from muniment.service.resources.webhooks.hook_state import reset_failures
from muniment.service.resources.webhooks.sending import check_url, newest_secret_id, signers_of
from muniment.service.resources.webhooks.store import Hook, Maker
from muniment.service.resources.webhooks.types import (
    OLD_KEYS_MS,
    RETIRED,
    Webhook,
    WebhookAttempt,
    WebhookId,
    WebhookUrl,
)
from muniment.service.running.limits.overload import has_most

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from muniment.service.context import Context
    from muniment.service.resources.webhooks.store import Attempt, DeadLetter
    from muniment.service.resources.webhooks.types import NewWebhook, WebhookFilters, WebhookUpdate
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Transaction

# A wallet is free to make; an operator is known.
HOOKS_PER_WALLET_MAX: Final = 5
HOOKS_PER_OPERATOR_MAX: Final = 20
# Webhooks of one address that are pending.
PENDING_MAX: Final = 10
# All webhooks of one address: a twentieth of those of wallets. Answers to challenges are as cheap as wallets.
ADDED_MAX: Final = 40
# How long a hook of a wallet may wait for its first answer to a challenge.
PENDING_MS_MAX: Final = 86_400_000
# Clients and sites whose hooks this process remembers. The addresses of clients are not stored.
_NAMES_KNOWN: Final = 4_096

# The hooks that each client or site has added. A hook is in it before it is stored.
_added: Final[OrderedDict[str, set[bytes]]] = OrderedDict()
_adding: Final[set[bytes]] = set()

UNCONFIRMED: Final = "the receiver has not answered the challenge of a test yet"


def are_on(settings: Settings) -> bool:
    """Whether this service has webhooks, and delivers their events: both need the feed."""
    return settings.webhooks != "off" and settings.feed != "off"


async def add(context: Context, maker: Maker, body: NewWebhook, *, client: tuple[str, ...] = ()) -> Hook:
    """Store a new hook. It gets the events from now on once its receiver has answered a challenge.

    `client` are the names of a client whose hooks are limited; empty for others.

    Raises `InvalidBody` for a URL or filters that the maker may not have, and `TooManyWebhooks`.
    """
    check_url(body.url, allow_private=context.settings.allow_private_networks)
    _check_own(maker, body.filters)
    database, now_ms = context.database, context.now_ms()
    hook = Hook(
        id=context.random_bytes(16), owner=maker.owner, operator=maker.operator, url=str(body.url),
        types=store.types_text(body.types), filters=store.filters_text(body.filters), is_batched=body.batch,
        status="pending", reason=UNCONFIRMED,
        secret_id=newest_secret_id(context.secrets()), key_generation=1, old_secret_id=None, old_until_ms=None,
        epoch=await context.epochs.number(database), seq=await newest(database),
        due_at_ms=now_ms, failures=0, failing_since_ms=None, refused=0,
        revision=0, redirects=0, created_at_ms=now_ms,
    )  # fmt: skip
    limit = HOOKS_PER_OPERATOR_MAX if maker.owner is None else HOOKS_PER_WALLET_MAX
    async with _counted(context, client, hook.id):
        if not await database.write(lambda tx: store.add(tx, hook, limit), order=hook.id):
            raise TooManyWebhooks(
                f"a caller has at most {limit} webhooks, the registry {store.HOOKS_MAX}, and of these wallets "
                f"{store.WALLETS_HOOKS_MAX}: remove one first"
            )
    return hook


async def get(context: Context, maker: Maker | None, hook_id: WebhookId) -> Hook:
    """The hook. Raises `WebhookNotFound`, also for a hook of another maker."""
    return _own(await store.find(context.database, hook_id.raw), maker)


async def change(context: Context, maker: Maker | None, hook_id: WebhookId, edit: Callable[[Hook], Hook]) -> Hook:
    """Store the hook as `edit` returns it. Raises `WebhookNotFound`, and the refusals of `edit`."""

    async def write(tx: Transaction) -> Hook:
        before = _own(await store.lock(tx, hook_id.raw), maker)
        after = edit(before)
        if after.status == "active" and before.status != "active":
            await store.remove_dead_letters(tx, before.id)
        await store.update(tx, after)
        return replace(after, revision=after.revision + 1)

    return await context.database.write(write, order=hook_id.raw)


async def remove(context: Context, maker: Maker | None, hook_id: WebhookId) -> None:
    """Remove the hook, its attempts and its dead letters. Raises `WebhookNotFound`."""

    async def write(tx: Transaction) -> None:
        _own(await store.lock(tx, hook_id.raw), maker)
        await store.remove(tx, hook_id.raw)

    await context.database.write(write, order=hook_id.raw)


def updated(context: Context, hook: Hook, body: WebhookUpdate) -> Hook:
    """The hook with the members of `body`. Raises `InvalidBody` as `add`.

    A new URL needs a new challenge: its receiver has not agreed yet.
    """
    before = hook
    if body.filters is not UNSET:
        _check_own(hook.maker, body.filters)
        hook = replace(hook, filters=store.filters_text(body.filters))
    if body.types is not UNSET:
        hook = replace(hook, types=store.types_text(body.types))
    if (hook.types, hook.filters) != (before.types, before.filters):
        hook = store.redirected(hook)
    if body.batch is not UNSET:
        hook = replace(hook, is_batched=body.batch)
    if body.url is UNSET or body.url == hook.url:
        return hook
    check_url(body.url, allow_private=context.settings.allow_private_networks)
    hook = reset_failures(hook, context.now_ms())
    return store.redirected(replace(hook, url=str(body.url), status="pending", reason=UNCONFIRMED))


def resumed(context: Context, hook: Hook) -> Hook:
    """The hook, active again and due now, at its cursor. Raises `WebhookNotConfirmed`.

    A suspended hook can be resumed when its secret is in the ring again.
    """
    secret_text(context, hook)
    if hook.status == "pending":
        raise WebhookNotConfirmed(f"{hook.reason}: POST /webhooks/{WebhookId.from_raw(hook.id)}/test comes first")
    return replace(reset_failures(hook, context.now_ms()), status="active", reason=None)


def confirmed(context: Context, hook: Hook) -> Hook:
    """The hook after its receiver answered a challenge: active, if it was pending."""
    if hook.status != "pending":
        return hook
    return replace(reset_failures(hook, context.now_ms()), status="active", reason=None)


def replayed(context: Context, hook: Hook, position: Position) -> Hook:
    """The hook with its cursor at `position`, which was checked."""
    return store.redirected(replace(reset_failures(hook, context.now_ms()), epoch=position.epoch, seq=position.seq))


def rotated(context: Context, hook: Hook) -> Hook:
    """The hook with new keys, of the newest secret. The old keys sign too for a day, unless their secret is retired.

    If it is, a test must show that the receiver uses the new secret.
    """
    secrets, now_ms = context.secrets(), context.now_ms()
    after = replace(hook, secret_id=newest_secret_id(secrets), key_generation=hook.key_generation + 1)
    if signers_of(secrets, hook, now_ms) is None or hook.status == "suspended":
        return replace(after, old_secret_id=None, old_until_ms=None, status="pending", reason=UNCONFIRMED)
    return replace(after, old_secret_id=hook.secret_id, old_until_ms=now_ms + OLD_KEYS_MS)


async def check_replay(context: Context, position: Position) -> None:
    """Raise `CursorTooOld` for a position after which events are missing."""
    await check_position(context, context.database, position)


def secret_text(context: Context, hook: Hook) -> str:
    """The secret of the receiver. Raises `WebhookNotConfirmed` when the secret of the ring was retired."""
    signers = signers_of(context.secrets(), hook, context.now_ms())
    if signers is None:
        raise WebhookNotConfirmed(RETIRED)
    return signers.current.secret_text


def shown(context: Context, hook: Hook, letters: list[DeadLetter] | None = None) -> Webhook:
    """The hook for the API. It is shown as suspended as soon as its secret is retired, before the next delivery."""
    signers = signers_of(context.secrets(), hook, context.now_ms())
    is_retired = signers is None and hook.status != "disabled"
    return Webhook(
        id=WebhookId.from_raw(hook.id),
        url=WebhookUrl(hook.url),
        types=hook.type_names,
        filters=hook.event_filters,
        batch=hook.is_batched,
        status="suspended" if is_retired else hook.status,
        reason=RETIRED if is_retired else hook.reason,
        cursor=Position.at(hook.epoch, hook.seq),
        public_key="" if signers is None else signers.current.public_text,
        failures=hook.failures,
        failing_since=None if hook.failing_since_ms is None else iso_time(hook.failing_since_ms),
        due_at=iso_time(hook.due_at_ms) if hook.failures and hook.status == "active" else None,
        dead_letters=[Position.at(each.epoch, each.seq) for each in letters] if letters else None,
        created_at=iso_time(hook.created_at_ms),
    )


def attempt_shown(attempt: Attempt) -> WebhookAttempt:
    """The attempt for the API."""
    has_event = attempt.epoch is not None and attempt.seq is not None
    return WebhookAttempt(
        at=iso_time(attempt.at_ms), took_ms=attempt.took_ms, outcome=attempt.outcome, status=attempt.status,
        event=Position.at(attempt.epoch or 0, attempt.seq or 0) if has_event else None,
    )  # fmt: skip


def _own(hook: Hook | None, maker: Maker | None) -> Hook:
    if hook is None or (maker is not None and hook.maker != maker):
        raise WebhookNotFound("the caller has no webhook with this id")
    return hook


def _check_own(maker: Maker, filters: WebhookFilters | None) -> None:
    """Raise `InvalidBody` when a wallet asks for more than its own events; an operator may."""
    if maker.owner is None:
        return
    own = [Address.from_raw(maker.owner)]
    if filters is None or own not in (filters.owner, filters.signer, filters.user):
        raise InvalidBody("a wallet gets its own events: filters.owner is its address alone", pointer="/filters/owner")


@asynccontextmanager
async def _counted(context: Context, client: tuple[str, ...], hook_id: bytes) -> AsyncGenerator[None]:
    """Count the hook that is added inside. Raises `TooManyWebhooks` when its address, or its site, has too many."""
    _adding.add(hook_id)
    for name in client:
        _added.setdefault(name, set()).add(hook_id)
        _added.move_to_end(name)
    while len(_added) > _NAMES_KNOWN:
        _added.popitem(last=False)
    try:
        await _check(context, client, hook_id)
        yield
    except TooManyWebhooks:
        for name in client:
            _of(name).discard(hook_id)
        raise
    finally:
        _adding.remove(hook_id)


async def _check(context: Context, client: tuple[str, ...], added: bytes) -> None:
    """Forget removed hooks, and count the others without `added`."""
    known = set[bytes]().union(*map(_of, client)) - _adding
    found = await store.statuses(context.database, sorted(known))
    for name in client:
        _of(name).difference_update(known - found.keys())

    def all_of(name: str) -> int:
        return len(_of(name) - {added})

    def pending_of(name: str) -> int:
        return sum(found.get(each, "pending") == "pending" for each in _of(name) - {added})

    if has_most(client, pending_of, PENDING_MAX):
        raise TooManyWebhooks(
            f"{PENDING_MAX} webhooks from this address wait for the answer to a challenge: "
            "POST /webhooks/{id}/test, or remove one first"
        )
    if has_most(client, all_of, ADDED_MAX):
        raise TooManyWebhooks(f"wallets have added {ADDED_MAX} webhooks from this address: remove one first")


def _of(name: str) -> set[bytes]:
    return _added.get(name, set())


async def remove_unconfirmed(tx: Transaction, context: Context) -> int:
    """Remove some hooks of wallets that were not confirmed in `PENDING_MS_MAX`; returns their number."""
    if context.clock.doubt() is not None:
        return 0
    return await store.remove_unconfirmed(tx, context.now_ms() - PENDING_MS_MAX)
