"""What people do with webhooks, by the API and by commands: add, change, resume, replay, rotate, remove.

`maker` is the caller, who sees and changes only hooks of their own. None stands for the command line, which has the
database and may do everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import UNSET

from muniment.errors import InvalidBody, TooManyWebhooks, WebhookNotConfirmed, WebhookNotFound
from muniment.evm.address import Address
from muniment.feed.position import Position
from muniment.feed.reading import check_position, newest
from muniment.webhooks import history, pending, store
from muniment.webhooks.caller import hooks_max
from muniment.webhooks.keys import newest_secret_id, signers_of
from muniment.webhooks.sending import check_url
from muniment.webhooks.store import Hook, Maker
from muniment.webhooks.types import OLD_KEYS_MS, Webhook, WebhookAttempt, WebhookId, WebhookUrl
from muniment.wire import iso_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.context import Context
    from muniment.storage.database import Transaction
    from muniment.webhooks.history import Attempt, DeadLetter
    from muniment.webhooks.types import NewWebhook, WebhookFilters, WebhookUpdate

UNCONFIRMED = "the receiver has not answered the challenge of a test yet"
RETIRED = "the secret of its keys was retired; rotate gives it new ones"


async def add(context: Context, maker: Maker, body: NewWebhook, *, client: tuple[str, ...] = ()) -> Hook:
    """Store a new hook, which gets the events from now on once its receiver has answered a challenge.

    `client` are the names of a client whose hooks are bounded, none for others.

    Raises `InvalidBody` for a URL or filters that the maker may not have, and `TooManyWebhooks`.
    """
    check_url(body.url, allow_private=context.settings.allow_private_networks)
    _check_own(maker, body.filters)
    database, now_ms = context.database, context.now_ms()
    hook = Hook(
        id=context.random_bytes(16), owner=maker.owner, operator=maker.operator, url=str(body.url),
        types=store.types_text(body.types), filters=store.filters_text(body.filters), is_batched=body.batch,
        status="pending", reason=UNCONFIRMED,
        secret_id=newest_secret_id(context.secrets()), generation=1, old_secret_id=None, old_until_ms=None,
        epoch=await context.epochs.number(database), seq=await newest(database),
        due_at_ms=now_ms, failures=0, failing_since_ms=None, refused=0, refused_since_ms=None,
        turn=0, redirects=0, created_at_ms=now_ms,
    )  # fmt: skip
    limit = hooks_max(maker)
    async with pending.counted(context, client, hook.id):
        if not await database.write(lambda tx: store.add(tx, hook, limit), order=hook.id):
            raise TooManyWebhooks(
                f"a caller has at most {limit} webhooks, the registry {store.HOOKS_MAX}, and of these wallets "
                f"{store.WALLETS_HOOKS_MAX}: remove one first"
            )
    return hook


async def get(context: Context, maker: Maker | None, hook_id: WebhookId) -> Hook:
    """The hook. Raises `WebhookNotFound`, also for one of somebody else."""
    return _own(await store.find(context.database, hook_id.raw), maker)


async def change(context: Context, maker: Maker | None, hook_id: WebhookId, edit: Callable[[Hook], Hook]) -> Hook:
    """Store what `edit` makes of the hook. Raises `WebhookNotFound`, and the refusals of `edit`."""

    async def write(tx: Transaction) -> Hook:
        before = _own(await store.lock(tx, hook_id.raw), maker)
        after = edit(before)
        if after.status == "active" and before.status != "active":
            await history.forget_dead_letters(tx, before.id)
        await store.update(tx, after)
        return replace(after, turn=after.turn + 1)

    return await context.database.write(write, order=hook_id.raw)


async def remove(context: Context, maker: Maker | None, hook_id: WebhookId) -> None:
    """Remove the hook with all that is stored about it. Raises `WebhookNotFound`."""

    async def write(tx: Transaction) -> None:
        _own(await store.lock(tx, hook_id.raw), maker)
        await store.remove(tx, hook_id.raw)

    await context.database.write(write, order=hook_id.raw)


def updated(context: Context, hook: Hook, body: WebhookUpdate) -> Hook:
    """The hook with the members of `body`. Raises `InvalidBody` as `add`.

    A hook with another URL waits for another challenge: otherwise it could be aimed at somebody who never agreed.
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
    return store.redirected(
        replace(_begun_again(context, hook), url=str(body.url), status="pending", reason=UNCONFIRMED)
    )


def resumed(context: Context, hook: Hook) -> Hook:
    """The hook, active again and due now, at its cursor. Raises `WebhookNotConfirmed`.

    One that was suspended can be resumed when its secret is in the ring again.
    """
    _require_keys(context, hook)
    if hook.status == "pending":
        raise WebhookNotConfirmed(f"{hook.reason}: POST /webhooks/{WebhookId.from_raw(hook.id)}/test comes first")
    return replace(_begun_again(context, hook), status="active", reason=None)


def confirmed(context: Context, hook: Hook) -> Hook:
    """The hook whose receiver has answered a challenge: active, if it waited for that."""
    if hook.status != "pending":
        return hook
    return replace(_begun_again(context, hook), status="active", reason=None)


def replayed(context: Context, hook: Hook, position: Position) -> Hook:
    """The hook with its cursor at `position`, which was checked."""
    return store.redirected(replace(_begun_again(context, hook), epoch=position.epoch, seq=position.seq))


def rotated(context: Context, hook: Hook) -> Hook:
    """The hook with new keys, of the newest secret. The ones before sign too for a day, unless their secret is retired.

    If it is, the receiver must show by a test that it has taken up the new secret.
    """
    secrets, now_ms = context.secrets(), context.now_ms()
    after = replace(hook, secret_id=newest_secret_id(secrets), generation=hook.generation + 1)
    if signers_of(secrets, hook, now_ms) is None or hook.status == "suspended":
        return replace(after, old_secret_id=None, old_until_ms=None, status="pending", reason=UNCONFIRMED)
    return replace(after, old_secret_id=hook.secret_id, old_until_ms=now_ms + OLD_KEYS_MS)


async def check_replay(context: Context, position: Position) -> None:
    """Raise `CursorTooOld` for a position from which the feed cannot go on."""
    await check_position(context, context.database, position)


def secret_text(context: Context, hook: Hook) -> str:
    """The secret of the receiver. Raises `WebhookNotConfirmed` when its secret of the ring was retired."""
    signers = signers_of(context.secrets(), hook, context.now_ms())
    if signers is None:
        raise WebhookNotConfirmed(RETIRED)
    return signers.current.secret_text


def shown(context: Context, hook: Hook, letters: list[DeadLetter] | None = None) -> Webhook:
    """The hook on the wire. One whose secret was retired shows as suspended, before a delivery has noticed it too."""
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
    """An attempt on the wire."""
    has_event = attempt.epoch is not None and attempt.seq is not None
    return WebhookAttempt(
        at=iso_time(attempt.at_ms), took_ms=attempt.took_ms, outcome=attempt.outcome, status=attempt.status,
        event=Position.at(attempt.epoch or 0, attempt.seq or 0) if has_event else None,
    )  # fmt: skip


def _own(hook: Hook | None, maker: Maker | None) -> Hook:
    if hook is None or (maker is not None and hook.maker != maker):
        raise WebhookNotFound("the caller has no webhook with this id")
    return hook


def _begun_again(context: Context, hook: Hook) -> Hook:
    """The hook without its failures, and due now."""
    return replace(
        hook, due_at_ms=context.now_ms(), failures=0, failing_since_ms=None, refused=0, refused_since_ms=None
    )


def _require_keys(context: Context, hook: Hook) -> None:
    if signers_of(context.secrets(), hook, context.now_ms()) is None:
        raise WebhookNotConfirmed(RETIRED)


def _check_own(maker: Maker, filters: WebhookFilters | None) -> None:
    """Raise `InvalidBody` unless a wallet asks for its own events alone. An operator may ask for all."""
    if maker.owner is None:
        return
    own = [Address.from_raw(maker.owner)]
    if filters is None or own not in (filters.owner, filters.signer, filters.user):
        raise InvalidBody("a wallet gets its own events: filters.owner is its address alone", pointer="/filters/owner")
