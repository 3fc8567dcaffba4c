"""`muniment webhooks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from muniment.cli import output
from muniment.cli.events import filter_options, take_filters
from muniment.cli.options import common_options, in_registry, json_option
from muniment.cli.removed import removed_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from muniment.service.context import Context
    from muniment.service.resources.webhooks.store import Hook
    from muniment.service.resources.webhooks.types import Webhook, WebhookId


# The operator of webhooks that are added here, unless --operator names another.
OPERATOR: Final = "cli"


@click.group()
def webhooks() -> None:
    """Receivers of the change feed, which belong to operators."""


@webhooks.command("add")
@common_options
@click.argument("url")
@filter_options
@click.option("--batch", is_flag=True, help="Send up to 100 events in one request, as a JSON array.")
@click.option("--operator", default=OPERATOR, show_default=True, help="The operator to whom the webhook belongs.")
@json_option
def add_webhook(config: Path | None, url: str, operator: str, *, batch: bool, as_json: bool, **flags: Any) -> None:
    """Add a webhook to URL, and print its id and secret. The secret is shown only once.

    Give the secret to the receiver, then run `muniment webhooks test`. Events are sent once that test has passed.
    """
    from muniment.protocol.forms import decode_record
    from muniment.service.resources.operators import check_name
    from muniment.service.resources.webhooks import managing
    from muniment.service.resources.webhooks.types import NewWebhook

    filters = take_filters(flags)
    types = {"types": filters.pop("types")} if "types" in filters else {}
    body: dict[str, Any] = {"url": url, "batch": batch, **types, "filters": filters}
    name = check_name(operator)
    new = decode_record(body, NewWebhook)
    webhook, secret = in_registry(config, flags, lambda context: _added(context, managing.add(context, name, new)))
    output.print_result({"webhook": webhook, "secret": secret}, f"{webhook.id}\n{secret}", as_json=as_json)


@webhooks.command("list")
@common_options
@json_option
def list_webhooks(config: Path | None, *, as_json: bool, **flags: object) -> None:
    """Print all webhooks, the oldest first."""
    from muniment.service.resources.webhooks import managing, store

    async def read(context: Context) -> list[tuple[str, Webhook]]:
        hooks = await store.everything(context.database)
        return [(hook.operator, managing.shown(context, hook)) for hook in hooks]

    found = in_registry(config, flags, read)
    lines = [f"{webhook.id}  {webhook.status}  {name}  {webhook.url}" for name, webhook in found]
    listed = [{"operator": name, "webhook": webhook} for name, webhook in found]
    empty = "no webhooks; `muniment webhooks add` adds one"
    output.print_result(listed, "\n".join(lines), as_json=as_json, empty=empty)


@webhooks.command("show")
@common_options
@click.argument("hook_id", metavar="ID")
def show_webhook(config: Path | None, hook_id: str, **flags: object) -> None:
    """Print a webhook, its dead letters and its last attempts, as JSON."""
    from muniment.service.resources.webhooks import managing, store

    async def read(context: Context) -> dict[str, object]:
        hook = await managing.get(context, None, _id(hook_id))
        letters = await store.dead_letters(context.database, hook.id)
        attempts = await store.attempts(context.database, hook.id)
        return {
            "operator": hook.operator,
            "webhook": managing.shown(context, hook, letters),
            "attempts": [managing.attempt_shown(each) for each in attempts],
        }

    output.print_json(in_registry(config, flags, read))


@webhooks.command("remove")
@common_options
@click.argument("hook_id", metavar="ID")
def remove_webhook(config: Path | None, hook_id: str, **flags: object) -> None:
    """Remove a webhook, its attempts and its dead letters."""
    from muniment.service.resources.webhooks import managing

    in_registry(config, flags, lambda context: managing.remove(context, None, _id(hook_id)))
    output.print_text(f"{hook_id} is removed")


@webhooks.command("resume")
@common_options
@click.argument("hook_id", metavar="ID")
def resume_webhook(config: Path | None, hook_id: str, **flags: object) -> None:
    """Resume a webhook that is disabled or waits after failures."""
    from muniment.service.resources.webhooks import managing

    _change(config, flags, hook_id, managing.resumed)


@webhooks.command("replay")
@common_options
@click.argument("hook_id", metavar="ID")
@click.argument("cursor")
def replay_webhook(config: Path | None, hook_id: str, cursor: str, **flags: object) -> None:
    """Move a webhook to CURSOR, the id of an event. The events after it come next."""
    from muniment.service.resources.feed.events import Position
    from muniment.service.resources.feed.reading import check_position
    from muniment.service.resources.webhooks import managing

    async def replay(context: Context) -> Webhook:
        position = Position.parse(cursor)
        await check_position(context, context.database, position)
        hook = await managing.change(
            context, None, _id(hook_id), lambda each: managing.replayed(context, each, position)
        )
        return managing.shown(context, hook)

    webhook = in_registry(config, flags, replay)
    output.print_text(f"{webhook.id} continues after {webhook.cursor}")


@webhooks.command("rotate")
@common_options
@click.argument("hook_id", metavar="ID")
@json_option
def rotate_webhook(config: Path | None, hook_id: str, *, as_json: bool, **flags: object) -> None:
    """Print a new secret for a webhook; it is shown only once. The old secret also signs for 24 hours."""
    from muniment.service.resources.webhooks import managing

    async def rotate(context: Context) -> tuple[Webhook, str]:
        changed = managing.change(context, None, _id(hook_id), lambda hook: managing.rotated(context, hook))
        return await _added(context, changed)

    webhook, secret = in_registry(config, flags, rotate)
    output.print_result({"webhook": webhook, "secret": secret}, secret, as_json=as_json)


@webhooks.command("test")
@common_options
@click.argument("hook_id", metavar="ID")
@json_option
def test_webhook(config: Path | None, hook_id: str, *, as_json: bool, **flags: object) -> None:
    """Send a challenge to a receiver. Exit status: 1 unless it comes back. Success activates a pending webhook."""
    from muniment.service.resources.webhooks.managing import run_test
    from muniment.service.resources.webhooks.sending import DELIVERED

    result = in_registry(config, flags, lambda context: run_test(context, None, _id(hook_id)))
    text = f"{hook_id} is {result.status}: {result.outcome} after {result.took_ms} ms"
    output.print_result(result, text, as_json=as_json)
    raise SystemExit(int(result.outcome != DELIVERED))


def _change(config: Path | None, flags: dict[str, object], hook_id: str, edit: Callable[[Context, Hook], Hook]) -> None:
    from muniment.service.resources.webhooks import managing

    async def change(context: Context) -> Webhook:
        hook = await managing.change(context, None, _id(hook_id), lambda each: edit(context, each))
        return managing.shown(context, hook)

    webhook = in_registry(config, flags, change)
    output.print_text(f"{webhook.id} is {webhook.status}")


async def _added(context: Context, changed: Awaitable[Hook]) -> tuple[Webhook, str]:
    """A webhook with a new key, and its secret."""
    from muniment.service.resources.webhooks import managing

    hook = await changed
    return managing.shown(context, hook), managing.secret_text(context, hook)


def _id(text: str) -> WebhookId:
    from muniment.service.resources.webhooks.types import WebhookId

    return WebhookId.parse(text)


webhooks.add_command(removed_command("deliver", "`muniment serve` delivers while the setting `webhooks` is on"))
