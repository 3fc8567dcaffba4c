"""Actions on webhooks, of the API and of commands: add, change, resume, replay, rotate, test, remove.

`operator` is the name of the caller, who sees and changes only their own hooks. None stands for the command line, which
may change every hook.

A test is a handshake: a new hook, or one with a new URL, is `pending`. The test sends a signed event with a random
text, the challenge. The receiver answers 2xx with this text in the body, and the hook becomes active. So the registry
sends events only to servers that have agreed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from muniment.protocol.errors import Overloaded, TooManyWebhooks, WebhookNotConfirmed, WebhookNotFound
from muniment.protocol.wire import encode, iso_time
from muniment.service.resources.feed.events import Position
from muniment.service.resources.feed.reading import newest, source_of
from muniment.service.resources.webhooks import store
from muniment.service.resources.webhooks.hook_state import reset_failures
from muniment.service.resources.webhooks.sending import Sent, check_url, newest_secret_id, send, signers_of
from muniment.service.resources.webhooks.store import Attempt, Hook
from muniment.service.resources.webhooks.types import (
    OLD_KEY_MS,
    RETIRED,
    ChallengeResult,
    Webhook,
    WebhookAttempt,
    WebhookId,
    WebhookUrl,
)
from muniment.service.running.limits.overload import subtract

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from muniment.service.context import Context
    from muniment.service.resources.webhooks.store import DeadLetter
    from muniment.service.resources.webhooks.types import NewWebhook, WebhookUpdate
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Transaction

UNCONFIRMED: Final = "the receiver has not answered the challenge of a test yet"


def are_on(settings: Settings) -> bool:
    """Whether this service has webhooks, and delivers their events: both need the feed."""
    return settings.webhooks != "off" and settings.feed != "off"


async def add(context: Context, operator: str, body: NewWebhook) -> Hook:
    """Store a new hook. It gets the events from now on once its receiver has answered a challenge.

    Raises `InvalidBody` for a URL to which this service does not send, and `TooManyWebhooks`.
    """
    check_url(body.url, allow_private=context.settings.allow_private_networks)
    database, now_ms = context.database, context.clock.now_ms()
    hook = Hook(
        id=context.random_bytes(16), operator=operator, url=str(body.url),
        types=store.types_text(body.types), filters=store.filters_text(body.filters), is_batched=body.batch,
        status="pending", reason=UNCONFIRMED,
        secret_id=newest_secret_id(context.secrets()), key_generation=1, old_secret_id=None, old_until_ms=None,
        epoch=await context.epochs.number(database), seq=await newest(database),
        due_at_ms=now_ms, failures=0, failing_since_ms=None, refused=0,
        revision=0, redirects=0, created_at_ms=now_ms,
    )  # fmt: skip
    if not await database.write(lambda tx: store.add(tx, hook), order=hook.id):
        raise TooManyWebhooks(
            f"an operator has at most {store.HOOKS_PER_OPERATOR_MAX} webhooks, and the registry {store.HOOKS_MAX}: "
            "remove one first"
        )
    return hook


async def get(context: Context, operator: str | None, hook_id: WebhookId) -> Hook:
    """The hook. Raises `WebhookNotFound`, also for a hook of another operator."""
    return _own(await store.find(context.database, hook_id.raw), operator)


async def change(context: Context, operator: str | None, hook_id: WebhookId, edit: Callable[[Hook], Hook]) -> Hook:
    """Store the hook as `edit` returns it. Raises `WebhookNotFound`, `DiskAlmostFull`, and the refusals of `edit`."""
    context.disk.require()

    async def write(tx: Transaction) -> Hook:
        before = _own(await store.lock(tx, hook_id.raw), operator)
        after = edit(before)
        if after.status == "active" and before.status != "active":
            await store.remove_dead_letters(tx, before.id)
        await store.update(tx, after)
        return replace(after, revision=after.revision + 1)

    return await context.database.write(write, order=hook_id.raw)


async def remove(context: Context, operator: str | None, hook_id: WebhookId) -> None:
    """Remove the hook, its attempts and its dead letters. Raises `WebhookNotFound`."""

    async def write(tx: Transaction) -> None:
        _own(await store.lock(tx, hook_id.raw), operator)
        await store.remove(tx, hook_id.raw)

    await context.database.write(write, order=hook_id.raw)


def updated(context: Context, hook: Hook, body: WebhookUpdate) -> Hook:
    """The hook with the members of `body`. Raises `InvalidBody` as `add`.

    A new URL needs a new challenge: its receiver has not agreed yet.
    """
    before = hook
    if body.filters is not UNSET:
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
    hook = reset_failures(hook, context.clock.now_ms())
    return store.redirected(replace(hook, url=str(body.url), status="pending", reason=UNCONFIRMED))


def resumed(context: Context, hook: Hook) -> Hook:
    """The hook, active again and due now, at its cursor. Raises `WebhookNotConfirmed`.

    A suspended hook can be resumed when its secret is in the ring again.
    """
    secret_text(context, hook)
    if hook.status == "pending":
        raise WebhookNotConfirmed(f"{hook.reason}: POST /webhooks/{WebhookId.from_raw(hook.id)}/test comes first")
    return replace(reset_failures(hook, context.clock.now_ms()), status="active", reason=None)


def confirmed(context: Context, hook: Hook) -> Hook:
    """The hook after its receiver answered a challenge: active, if it was pending."""
    if hook.status != "pending":
        return hook
    return replace(reset_failures(hook, context.clock.now_ms()), status="active", reason=None)


def replayed(context: Context, hook: Hook, position: Position) -> Hook:
    """The hook with its cursor at `position`, which was checked."""
    return store.redirected(
        replace(reset_failures(hook, context.clock.now_ms()), epoch=position.epoch, seq=position.seq)
    )


def rotated(context: Context, hook: Hook) -> Hook:
    """The hook with a new key, of the newest secret. The old one signs too for a day, unless its secret is retired.

    If it is, a test must show that the receiver uses the new secret.
    """
    secrets, now_ms = context.secrets(), context.clock.now_ms()
    after = replace(hook, secret_id=newest_secret_id(secrets), key_generation=hook.key_generation + 1)
    if signers_of(secrets, hook, now_ms) is None or hook.status == "suspended":
        return replace(after, old_secret_id=None, old_until_ms=None, status="pending", reason=UNCONFIRMED)
    return replace(after, old_secret_id=hook.secret_id, old_until_ms=now_ms + OLD_KEY_MS)


def secret_text(context: Context, hook: Hook) -> str:
    """The secret of the receiver. Raises `WebhookNotConfirmed` when the secret of the ring was retired."""
    signers = signers_of(context.secrets(), hook, context.clock.now_ms())
    if signers is None:
        raise WebhookNotConfirmed(RETIRED)
    return signers.current.secret_text


def shown(context: Context, hook: Hook, letters: list[DeadLetter] | None = None) -> Webhook:
    """The hook for the API. It is shown as suspended as soon as its secret is retired, before the next delivery."""
    is_retired = hook.status != "disabled" and signers_of(context.secrets(), hook, context.clock.now_ms()) is None
    return Webhook(
        id=WebhookId.from_raw(hook.id),
        url=WebhookUrl(hook.url),
        types=hook.type_names,
        filters=hook.event_filters,
        batch=hook.is_batched,
        status="suspended" if is_retired else hook.status,
        reason=RETIRED if is_retired else hook.reason,
        cursor=Position.at(hook.epoch, hook.seq),
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


def _own(hook: Hook | None, operator: str | None) -> Hook:
    if hook is None or operator not in {None, hook.operator}:
        raise WebhookNotFound("the caller has no webhook with this id")
    return hook


EVENT_TYPE: Final = "muniment.webhook.challenge"
# The outcome of an answer of 2xx whose body lacks the challenge.
UNANSWERED: Final = "no-challenge"
# Concurrent tests of a process: half of the connections of deliveries.
_TESTS_MAX: Final = 16
# Tests of one operator. A test takes up to 15 seconds.
_TESTS_PER_OPERATOR_MAX: Final = 2
_CHALLENGE_BYTES: Final = 16
# Running tests by operator (None: the command line).
_tests: Final = Counter["str | None"]()


async def run_test(context: Context, operator: str | None, hook_id: WebhookId) -> ChallengeResult:
    """Send a challenge; a pending hook becomes active when it comes back, unless the hook was changed meanwhile.

    Raises `WebhookNotFound`, `WebhookNotConfirmed` when the secret of its key was retired, `Overloaded`, and
    `DiskAlmostFull`.
    """
    context.disk.require()
    hook = await get(context, operator, hook_id)
    with _slot(operator):
        sent = await _send_challenge(context, hook)
    after = await context.database.write(lambda tx: _note(tx, context, hook, sent), order=hook.id)
    return ChallengeResult(status=shown(context, after).status, outcome=sent.outcome, took_ms=sent.took_ms)


@contextmanager
def _slot(operator: str | None) -> Generator[None]:
    """Count the test inside. Raises `Overloaded`."""
    if _tests.total() >= _TESTS_MAX:
        raise Overloaded("many webhooks are being tested now")
    if _tests[operator] >= _TESTS_PER_OPERATOR_MAX:
        raise Overloaded(f"{_TESTS_PER_OPERATOR_MAX} webhooks of the caller are being tested now: wait for them")
    _tests[operator] += 1
    try:
        yield
    finally:
        subtract(_tests, operator)


async def _send_challenge(context: Context, hook: Hook) -> Sent:
    signers = signers_of(context.secrets(), hook, context.clock.now_ms())
    if signers is None:
        raise WebhookNotConfirmed(RETIRED)
    challenge = context.random_bytes(_CHALLENGE_BYTES).hex()
    source = await source_of(context, context.database)
    message_id = f"challenge-{challenge}"
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": message_id,
        "source": source.urn,
        "type": EVENT_TYPE,
        "subject": WebhookId.from_raw(hook.id),
        "time": iso_time(context.clock.now_ms()),
        "data": {"challenge": challenge},
    }
    sent = await send(context, hook, signers, message_id, encode(event), awaited=challenge.encode())
    if sent.is_delivered and challenge.encode() not in sent.content:
        return sent._replace(outcome=UNANSWERED)
    return sent


async def _note(tx: Transaction, context: Context, tested: Hook, sent: Sent) -> Hook:
    """Store the outcome of the test; returns the hook as it is now."""
    hook = await store.lock(tx, tested.id)
    if hook is None:
        raise WebhookNotFound("the webhook was removed while it was tested")
    attempt = Attempt(context.clock.now_ms(), None, None, sent.status, sent.took_ms, sent.outcome)
    await store.add_attempts(tx, hook.id, [attempt])
    after = confirmed(context, hook)
    if not sent.is_delivered or hook.url != tested.url or after is hook:
        return hook
    await store.update(tx, after)
    return after
