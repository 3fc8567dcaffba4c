"""Signed requests to receivers: slots, keys, signatures, and one POST (Standard Webhooks 1.0, standardwebhooks.com).

HKDF-SHA256 (RFC 5869) derives a key for each hook and key generation from a secret of the ring; no key is stored. The
signature `v1` is an HMAC-SHA256 of `<webhook-id>.<webhook-timestamp>.<body>`. The text of a key is `whsec_` and base64.
URLs never reach a log: they may carry a secret.

Slots limit concurrent requests, in total, by host, and for slow receivers. A receiver that was slow counts as slow for
ten minutes: one that is slow every other time must not take a quick slot each time.
"""

from __future__ import annotations

import hmac
import ipaddress
from base64 import b64encode
from collections import Counter
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from muniment.outgoing import Unreachable, is_public
from muniment.protocol.errors import InvalidBody
from muniment.service.auth.secrets import derive_key, ring_of
from muniment.service.resources.webhooks.types import DELIVERED
from muniment.service.running.limits.overload import subtract

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.service.context import Context
    from muniment.service.resources.webhooks.store import Hook

# Concurrent requests, and those to one host: a registry must not be a weapon.
REQUESTS_MAX: Final = 32
PER_HOST_MAX: Final = 4
# Of these, requests to slow or failing receivers: the rest is for quick ones.
SLOW_MAX: Final = 24
PER_HOST_SLOW_MAX: Final = 3
# A longer request makes its receiver slow, and for this time.
SLOW_MS: Final = 1_000
_STAYS_SLOW_MS: Final = 10 * 60 * 1_000


class Sender(Protocol):
    """A hook with its request; `sends_since_ms` is None without a request."""

    sends_since_ms: int | None

    @property
    def hook(self) -> Hook:
        """The hook as it is now."""
        ...

    @property
    def host(self) -> str:
        """The host of the receiver."""
        ...


S = TypeVar("S", bound=Sender)


class Slots(Generic[S]):
    """The slots in use, and the slow receivers. `monotonic_ms` only goes forward."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        """Begin without requests."""
        self._monotonic_ms = monotonic_ms
        # Whether each sender has a slow slot.
        self._taken: dict[S, bool] = {}
        self._hosts: Counter[str] = Counter()
        # By hook id: a sender is replaced when a person changes its hook.
        self._slow_until_ms: dict[bytes, int] = {}
        # Whether a sender found no slot at the last call of `take`.
        self.is_short = False

    def take(self, senders: list[S]) -> list[S]:
        """Give slots to senders in this order; returns those that have one now."""
        given = [sender for sender in senders if self._take(sender)]
        self.is_short = len(given) < len(senders)
        return given

    def _take(self, sender: S) -> bool:
        is_slow = self.is_slow(sender)
        if len(self._taken) >= REQUESTS_MAX or self._hosts[sender.host] >= PER_HOST_MAX:
            return False
        if is_slow and not self._has_slow_slot(sender):
            return False
        self._taken[sender] = is_slow
        self._hosts[sender.host] += 1
        return True

    def leave(self, sender: S) -> None:
        """Free the slot of a sender."""
        del self._taken[sender]
        subtract(self._hosts, sender.host)

    def may_keep(self, sender: S) -> bool:
        """Whether the slot may serve another request: it is still of the right kind."""
        return self._taken[sender] == self.is_slow(sender)

    def is_slow(self, sender: S) -> bool:
        """Whether the receiver fails, or was slow lately."""
        return sender.hook.failures > 0 or self._slow_until_ms.get(sender.hook.id, 0) > self._monotonic_ms()

    def note_slow(self) -> list[S]:
        """Mark receivers without an answer for `SLOW_MS` as slow; returns those for which no slow slot is free."""
        now_ms = self._monotonic_ms()
        excess: list[S] = []
        for sender, is_slow in self._taken.items():
            if sender.sends_since_ms is None or now_ms - sender.sends_since_ms <= SLOW_MS:
                continue
            self._slow_until_ms[sender.hook.id] = now_ms + _STAYS_SLOW_MS
            if not is_slow and not self._has_slow_slot(sender):
                excess.append(sender)
            else:
                self._taken[sender] = True
        return excess

    def forget_quick(self) -> None:
        """Forget receivers that are no longer slow."""
        now_ms = self._monotonic_ms()
        self._slow_until_ms = {hook: until for hook, until in self._slow_until_ms.items() if until > now_ms}

    def _has_slow_slot(self, sender: S) -> bool:
        if sum(self._taken.values()) >= SLOW_MAX:
            return False
        if self._hosts[sender.host] < PER_HOST_SLOW_MAX:
            return True
        return sum(is_slow and each.host == sender.host for each, is_slow in self._taken.items()) < PER_HOST_SLOW_MAX


SINGLE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
# A receiver that needs longer should answer before it works.
SECONDS_MAX: Final = 15.0
# A longer `Retry-After` is cut to an hour.
RETRY_AFTER_S_MAX: Final = 3_600
# The answer to a challenge has its 32 digits; more of an answer is not read.
CONTENT_BYTES_MAX: Final = 4_096
_HTTPS_PORT: Final = 443
# RFC 9110, section 15.3.
_SUCCESSFUL: Final = range(200, 300)
# Ports below it belong to mail servers and the like, which could take a request for a command.
_FREE_PORTS: Final = 1_024
_DATE_LENGTH_MAX: Final = 64
_DEVELOPMENT: Final = ", unless the operator of this registry sets allow_private_networks, for development"
_USER_AGENT: Final = "Muniment-Webhooks"
# Two for each of the thousand hooks of a registry; an entry takes under a kilobyte.
_KEYS_KEPT: Final = 2_048


class HookKey(NamedTuple):
    """The key of one generation; only `secret_text` is shown, and only to the operator of the hook."""

    raw: bytes

    def __repr__(self) -> str:
        """Without the key: it must not reach a log."""
        return "HookKey()"

    @property
    def secret_text(self) -> str:
        """The secret of the receiver: `whsec_` and base64."""
        return "whsec_" + b64encode(self.raw).decode("ascii")

    def signature(self, signed: bytes) -> str:
        """The signature of these bytes: `v1,` and base64."""
        return "v1," + b64encode(hmac.digest(self.raw, signed, sha256)).decode("ascii")


class Signers(NamedTuple):
    """The keys that sign now: `current`, and for a day after a rotation `old`."""

    current: HookKey
    old: HookKey | None


def newest_secret_id(secrets: Sequence[bytes]) -> str:
    """The id of the secret for a new hook; `secrets` are the raw ones of the ring, newest first."""
    return ring_of(tuple(secrets)).newest.id


def signers_of(secrets: Sequence[bytes], hook: Hook, now_ms: int) -> Signers | None:
    """The keys of `hook`; None when its secret was retired: then the hook must be suspended."""
    current = _find(secrets, hook.id, hook.secret_id, hook.key_generation)
    if current is None:
        return None
    old = None
    if hook.old_secret_id is not None and hook.old_until_ms is not None and now_ms < hook.old_until_ms:
        old = _find(secrets, hook.id, hook.old_secret_id, hook.key_generation - 1)
    return Signers(current, old)


def _find(secrets: Sequence[bytes], hook_id: bytes, secret_id: str, generation: int) -> HookKey | None:
    raw = tuple(secrets)
    for secret, each in zip(ring_of(raw).secrets, raw, strict=True):
        if secret.id == secret_id:
            return _derived(each, hook_id, generation)
    return None


@lru_cache(maxsize=_KEYS_KEPT)
def _derived(secret: bytes, hook_id: bytes, generation: int) -> HookKey:
    return HookKey(derive_key(secret, "webhook mac", b" " + hook_id + generation.to_bytes(8)))


def signed_fields(signers: Signers, message_id: str, timestamp_s: int, body: bytes) -> list[tuple[str, str]]:
    """The header fields that sign a request; `message_id` has no dot, `timestamp_s` is in Unix seconds.

    The current one comes last: some libraries read only the part after the last comma.
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    signatures = [key.signature(signed) for key in (signers.old, signers.current) if key is not None]
    return [
        ("webhook-id", message_id),
        ("webhook-timestamp", str(timestamp_s)),
        ("webhook-signature", " ".join(signatures)),
    ]


class Sent(NamedTuple):
    """The result of a request. `status` is None without an answer; `outcome` is `delivered`, or one word why not.

    `retry_after_s`: the pause that the receiver asks for, at most `RETRY_AFTER_S_MAX`.
    """

    status: int | None
    outcome: str
    took_ms: int
    retry_after_s: int | None = None
    content: bytes = b""

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver answered 2xx."""
        return self.outcome == DELIVERED


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise `InvalidBody` for a URL to which this service does not send.

    Without `allow_private` the URL is https, its port 443 or at least 1024, and a literal address public. The addresses
    of a host name are checked when a request is made.
    """
    if allow_private:
        return
    parts = urlsplit(url)
    port = parts.port or _HTTPS_PORT
    if parts.scheme != "https":
        raise InvalidBody(f"the URL must be https{_DEVELOPMENT}", pointer="/url")
    if port != _HTTPS_PORT and port < _FREE_PORTS:
        raise InvalidBody(f"the port must be {_HTTPS_PORT}, or at least {_FREE_PORTS}", pointer="/url")
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return  # a name
    if not is_public(address):
        raise InvalidBody(f"the address must not be private, loopback or link-local{_DEVELOPMENT}", pointer="/url")


async def send(
    context: Context, hook: Hook, signers: Signers, message_id: str, body: bytes, media_type: str = SINGLE,
    *, awaited: bytes = b"",
) -> Sent:  # fmt: skip
    """POST `body`, signed, to the receiver of `hook`, within `SECONDS_MAX`. Never raises.

    `awaited` is what the answer has to have in its content.
    """
    began_ms = context.clock.monotonic_ms()

    def took_ms() -> int:
        return context.clock.monotonic_ms() - began_ms

    fields = [("content-type", media_type), ("user-agent", _USER_AGENT)]
    fields += signed_fields(signers, message_id, context.clock.now_ms() // 1000, body)
    try:
        check_url(hook.url, allow_private=context.settings.allow_private_networks)
        receipt = await context.outgoing_webhooks.deliver(
            hook.url, fields, body, seconds_max=SECONDS_MAX, bytes_max=CONTENT_BYTES_MAX, awaited=awaited
        )
    except InvalidBody:  # the operator changed the setting since
        return Sent(None, "forbidden-address", took_ms())
    except Unreachable as error:
        return Sent(None, error.reason, took_ms())
    is_good = receipt.status in _SUCCESSFUL
    outcome = DELIVERED if is_good else f"http-{receipt.status}"
    wait_s = retry_after_s(receipt.retry_after, context.clock.now_ms())
    return Sent(receipt.status, outcome, took_ms(), wait_s, receipt.content)


def retry_after_s(text: str | None, now_ms: int) -> int | None:
    """The seconds of a `Retry-After` (RFC 9110 section 10.2.3), a number or a date; None when it is invalid."""
    if text is None or len(text) > _DATE_LENGTH_MAX:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text), RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(text)
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now_ms / 1000
    except (ValueError, OverflowError):  # OverflowError: a year that no integer holds
        return None
    return max(0, min(int(seconds), RETRY_AFTER_S_MAX))
