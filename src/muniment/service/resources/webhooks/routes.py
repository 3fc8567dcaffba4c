"""The endpoints of webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Self

from muniment.protocol.errors import (
    CursorTooOld,
    DiskAlmostFull,
    InvalidBody,
    Overloaded,
    Refusal,
    TooManyWebhooks,
    UnknownPath,
    WebhookNotConfirmed,
    WebhookNotFound,
)
from muniment.protocol.wire import encode
from muniment.service.context import Context
from muniment.service.http.operation import operation
from muniment.service.http.reply import JSON, NO_STORE, Ready
from muniment.service.resources.feed.reading import check_position
from muniment.service.resources.operators import OperatorCaller
from muniment.service.resources.webhooks import managing, store
from muniment.service.resources.webhooks.managing import run_test
from muniment.service.resources.webhooks.types import (
    ChallengeResult,
    NewWebhook,
    Replay,
    Webhook,
    WebhookAttempt,
    WebhookId,
    WebhookSecret,
    WebhookUpdate,
)
from muniment.service.running.limits.costs import Shed

if TYPE_CHECKING:
    from muniment.service.http.request import Request
    from muniment.service.resources.webhooks.store import Hook

_PRIVATE = (JSON, NO_STORE)
# As other writes and reads of operators.
_COST: Final = 8


class HookOperator(OperatorCaller):
    """The operator of hooks, by `x-operator-key`, where the settings have webhooks."""

    __slots__ = ()

    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (*OperatorCaller.refuses_with, UnknownPath)

    @classmethod
    async def from_request(cls, request: Request) -> Self:
        """Raises the refusals of `OperatorCaller`, and before them `UnknownPath`: webhooks, or the feed, are off."""
        if not managing.are_on(Context.from_request(request).settings):
            raise UnknownPath("this service has no webhooks")
        return await super().from_request(request)


@operation("POST", "/webhooks", cost=_COST, sheds=Shed.LATE, refuses=(InvalidBody, TooManyWebhooks, DiskAlmostFull))
async def add_webhook(context: Context, caller: HookOperator, body: NewWebhook) -> Ready[WebhookSecret]:
    """Add a webhook.

    The answer has the secret with which the receiver checks signatures; it is not shown again. Give it to the
    receiver, then POST …/test: the webhook is `pending` until the receiver has answered that challenge, and then gets
    the events since it was added.
    """
    context.disk.require()
    return _with_secret(context, await managing.add(context, caller.name, body))


@operation("GET", "/webhooks", cost=_COST, sheds=Shed.READ)
async def list_webhooks(context: Context, caller: HookOperator) -> Ready[list[Webhook]]:
    """List the operator's webhooks.

    All of them, oldest first.
    """
    hooks = await store.of_operator(context.database, caller.name)
    return Ready(encode([managing.shown(context, hook) for hook in hooks]), _PRIVATE)


@operation("GET", "/webhooks/{id}", cost=_COST, sheds=Shed.READ, refuses=(WebhookNotFound,))
async def get_webhook(context: Context, caller: HookOperator, id: WebhookId) -> Ready[Webhook]:
    """Read a webhook.

    With its `deadLetters`, the events that its receiver refused; GET /events returns them again.
    """
    return await _shown(context, await managing.get(context, caller.name, id))


@operation("PATCH", "/webhooks/{id}", cost=_COST, sheds=Shed.LATE, refuses=(WebhookNotFound, DiskAlmostFull))
async def update_webhook(context: Context, caller: HookOperator, id: WebhookId, body: WebhookUpdate) -> Ready[Webhook]:
    """Change a webhook.

    What the body leaves out stays. With another URL it is `pending` until a test.
    """
    edited = await managing.change(context, caller.name, id, lambda hook: managing.updated(context, hook, body))
    return await _shown(context, edited)


@operation("DELETE", "/webhooks/{id}", cost=_COST, sheds=Shed.LATE, refuses=(WebhookNotFound,))
async def remove_webhook(context: Context, caller: HookOperator, id: WebhookId) -> None:
    """Remove a webhook.

    A delivery that has begun may still arrive.
    """
    await managing.remove(context, caller.name, id)


@operation(
    "POST", "/webhooks/{id}/resume", cost=_COST, sheds=Shed.LATE,
    refuses=(WebhookNotFound, WebhookNotConfirmed, DiskAlmostFull),
)  # fmt: skip
async def resume_webhook(context: Context, caller: HookOperator, id: WebhookId) -> Ready[Webhook]:
    """Resume a webhook.

    A disabled webhook becomes active again, continues at its cursor, and forgets its dead letters; so does a suspended
    webhook whose secret is back. A webhook that waits after failures is tried at once.
    """
    return await _shown(
        context, await managing.change(context, caller.name, id, lambda hook: managing.resumed(context, hook))
    )


@operation(
    "POST", "/webhooks/{id}/replay", cost=_COST, sheds=Shed.LATE,
    refuses=(WebhookNotFound, CursorTooOld, DiskAlmostFull),
)  # fmt: skip
async def replay_webhook(context: Context, caller: HookOperator, id: WebhookId, body: Replay) -> Ready[Webhook]:
    """Deliver events again, or skip some.

    The cursor moves to the given one, and the events after it come next.
    """
    await managing.get(context, caller.name, id)
    await check_position(context, context.database, body.cursor)
    return await _shown(
        context,
        await managing.change(
            context, caller.name, id, lambda hook: managing.replayed(context, hook, body.cursor)
        ),
    )  # fmt: skip


@operation("POST", "/webhooks/{id}/rotate", cost=_COST, sheds=Shed.LATE, refuses=(WebhookNotFound, DiskAlmostFull))
async def rotate_webhook(context: Context, caller: HookOperator, id: WebhookId) -> Ready[WebhookSecret]:
    """Give a webhook a new secret.

    The answer has it, and it is not shown again. For 24 hours each request is signed with the old secret too.
    A suspended webhook becomes `pending`: POST …/test when the receiver has the new secret.
    """
    edited = await managing.change(context, caller.name, id, lambda hook: managing.rotated(context, hook))
    return _with_secret(context, edited)


@operation(
    "POST", "/webhooks/{id}/test", cost=_COST, sheds=Shed.EARLY,
    refuses=(WebhookNotFound, WebhookNotConfirmed, Overloaded, DiskAlmostFull),
)  # fmt: skip
async def test_webhook(context: Context, caller: HookOperator, id: WebhookId) -> Ready[ChallengeResult]:
    """Send a challenge to the receiver.

    A signed event of the type `muniment.webhook.challenge`. The receiver answers 2xx, with the text `data.challenge`
    anywhere in the first 4 KiB of the body; then a `pending` webhook becomes active. The answer has the outcome.
    """
    return Ready(encode(await run_test(context, caller.name, id)), _PRIVATE)


@operation("GET", "/webhooks/{id}/attempts", cost=_COST, sheds=Shed.READ, refuses=(WebhookNotFound,))
async def list_attempts(context: Context, caller: HookOperator, id: WebhookId) -> Ready[list[WebhookAttempt]]:
    """List the last requests to the receiver.

    At most 100, newest first. Only the status of an answer is kept, not its content.
    """
    hook = await managing.get(context, caller.name, id)
    found = await store.attempts(context.database, hook.id)
    return Ready(encode([managing.attempt_shown(each) for each in found]), _PRIVATE)


async def _shown(context: Context, hook: Hook) -> Ready[Webhook]:
    letters = await store.dead_letters(context.database, hook.id)
    return Ready(encode(managing.shown(context, hook, letters)), _PRIVATE)


def _with_secret(context: Context, hook: Hook) -> Ready[WebhookSecret]:
    secret = managing.secret_text(context, hook)
    return Ready(encode(WebhookSecret(webhook=managing.shown(context, hook), secret=secret)), _PRIVATE)


OPERATIONS = (
    add_webhook,
    list_webhooks,
    get_webhook,
    update_webhook,
    remove_webhook,
    resume_webhook,
    replay_webhook,
    rotate_webhook,
    test_webhook,
    list_attempts,
)
