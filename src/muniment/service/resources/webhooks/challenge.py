"""The handshake: a receiver confirms that it wants the events of this registry.

A new hook, or one with a new URL, is `pending`. A test sends a signed event with a random text, the challenge. The
receiver answers 2xx with this text in the body, and the hook becomes active. So the registry sends events only to
servers that have agreed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from muniment.protocol.errors import Overloaded, WebhookNotConfirmed, WebhookNotFound
from muniment.protocol.wire import encode, iso_time
from muniment.service.resources.feed.reading import source_of
from muniment.service.resources.webhooks import managing, store
from muniment.service.resources.webhooks.sending import Sent, send, signers_of
from muniment.service.resources.webhooks.store import Attempt
from muniment.service.resources.webhooks.types import RETIRED, ChallengeResult, WebhookId
from muniment.service.running.limits.overload import has_most

if TYPE_CHECKING:
    from collections.abc import Generator

    from muniment.service.context import Context
    from muniment.service.resources.webhooks.store import Hook, Maker
    from muniment.service.storage.database import Transaction

T = TypeVar("T")

EVENT_TYPE: Final = "muniment.webhook.challenge"
# The outcome of an answer of 2xx whose body lacks the challenge.
UNANSWERED: Final = "no-challenge"
# Concurrent tests of a process: half of the connections of deliveries.
_TESTS_MAX: Final = 16
# Tests of wallets, which are free to make: the rest is for operators.
_WALLETS_TESTS_MAX: Final = 12
# Tests of one maker, and of all wallets of one address. A test takes up to 15 seconds.
_TESTS_PER_MAKER_MAX: Final = 2
_TESTS_PER_CLIENT_MAX: Final = 2
_CHALLENGE_BYTES: Final = 16
# Running tests by maker (None: the command line), and by the names of clients.
_tests: Final = Counter["Maker | None"]()
_of_clients: Final[Counter[str]] = Counter()


async def run_test(
    context: Context, maker: Maker | None, hook_id: WebhookId, *, client: tuple[str, ...] = ()
) -> ChallengeResult:
    """Send a challenge; a pending hook becomes active when it comes back, unless the hook was changed meanwhile.

    `client` are the names of a client whose tests are limited; empty for others.

    Raises `WebhookNotFound`, `WebhookNotConfirmed` when the secret of its keys was retired, and `Overloaded`.
    """
    hook = await managing.get(context, maker, hook_id)
    with _slot(maker, client):
        sent = await _send_challenge(context, hook)
    after = await context.database.write(lambda tx: _note(tx, context, hook, sent), order=hook.id)
    shown = managing.shown(context, after)
    return ChallengeResult(status=shown.status, outcome=sent.outcome, took_ms=sent.took_ms)


@contextmanager
def _slot(maker: Maker | None, client: tuple[str, ...]) -> Generator[None]:
    """Count the test inside. Raises `Overloaded`."""
    of_wallets = sum(count for each, count in _tests.items() if each is not None and each.owner is not None)
    is_wallet = maker is not None and maker.owner is not None
    if _tests.total() >= _TESTS_MAX or (is_wallet and of_wallets >= _WALLETS_TESTS_MAX):
        raise Overloaded("many webhooks are being tested now")
    if maker is not None and _tests[maker] >= _TESTS_PER_MAKER_MAX:
        raise Overloaded(f"{_TESTS_PER_MAKER_MAX} webhooks of the caller are being tested now: wait for their outcome")
    if has_most(client, _of_clients.__getitem__, _TESTS_PER_CLIENT_MAX):
        raise Overloaded(f"{_TESTS_PER_CLIENT_MAX} webhooks from this address are being tested now: wait for them")
    _tests[maker] += 1
    _of_clients.update(client)
    try:
        yield
    finally:
        _leave(_tests, maker)
        for name in client:
            _leave(_of_clients, name)


def _leave(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


async def _send_challenge(context: Context, hook: Hook) -> Sent:
    signers = signers_of(context.secrets(), hook, context.now_ms())
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
        "time": iso_time(context.now_ms()),
        "data": {"challenge": challenge},
    }
    sent = await send(context, hook, signers, message_id, encode(event), is_test=True)
    if sent.is_delivered and challenge.encode() not in sent.content:
        return sent._replace(outcome=UNANSWERED)
    return sent


async def _note(tx: Transaction, context: Context, tested: Hook, sent: Sent) -> Hook:
    """Store the outcome of the test; returns the hook as it is now."""
    hook = await store.lock(tx, tested.id)
    if hook is None:
        raise WebhookNotFound("the webhook was removed while it was tested")
    attempt = Attempt(context.now_ms(), None, None, sent.status, sent.took_ms, sent.outcome)
    await store.add_attempts(tx, hook.id, [attempt])
    after = managing.confirmed(context, hook)
    if not sent.is_delivered or hook.url != tested.url or after is hook:
        return hook
    await store.update(tx, after)
    return after
