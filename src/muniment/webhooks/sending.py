"""Requests to receivers: one signed POST, and what came of it. URLs never reach a log: they may carry a secret."""

from __future__ import annotations

import ipaddress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from muniment.errors import InvalidBody
from muniment.outgoing import OnBehalf, Unreachable, is_public
from muniment.webhooks.signing import signed_fields
from muniment.webhooks.types import DELIVERED

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.webhooks.keys import Signers
    from muniment.webhooks.store import Hook

SINGLE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
# A receiver that needs longer should answer first and work then.
SECONDS_MAX: Final = 15.0
# A `Retry-After` counts up to an hour: nobody keeps a hook waiting for days.
RETRY_AFTER_S_MAX: Final = 3_600
# The answer to a challenge has its 32 digits; the rest of an answer is nobody's business.
CONTENT_BYTES_MAX: Final = 4_096
_HTTPS_PORT: Final = 443
# RFC 9110, section 15.3.
_SUCCESSFUL: Final = range(200, 300)
# Below it are the ports of mail servers and the like, which a request could be taken for a command by.
_FREE_PORTS: Final = 1_024
_DATE_LENGTH_MAX: Final = 64
_USER_AGENT: Final = "Muniment-Webhooks"


class Sent(NamedTuple):
    """What came of a request. `status` is None when no answer came; `outcome` is `delivered`, or one word why not.

    `retry_after_s`: the seconds that the receiver asks for, at most `RETRY_AFTER_S_MAX`.
    """

    status: int | None
    outcome: str
    took_ms: int
    retry_after_s: int | None = None
    content: bytes = b""

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver has taken the request: a status of 2xx."""
        return self.outcome == DELIVERED


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise `InvalidBody` for a URL to which this service does not send.

    Without `allow_private` it is https, to port 443 or a port from 1024 on, and an address in it is public. A host name
    is looked up when a request is made, and its addresses are checked then.
    """
    if allow_private:
        return
    parts = urlsplit(url)
    port = parts.port or _HTTPS_PORT
    if parts.scheme != "https":
        raise InvalidBody("a receiver has an https URL", pointer="/url")
    if port != _HTTPS_PORT and port < _FREE_PORTS:
        raise InvalidBody(f"a receiver listens on port {_HTTPS_PORT}, or on one from {_FREE_PORTS} on", pointer="/url")
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return  # a name
    if not is_public(address):
        raise InvalidBody("a receiver has no private, loopback or link-local address", pointer="/url")


async def send(
    context: Context, hook: Hook, signers: Signers, message_id: str, body: bytes,
    media_type: str = SINGLE, *, is_test: bool = False,
) -> Sent:  # fmt: skip
    """POST `body` to the receiver of `hook`, signed. Takes at most `SECONDS_MAX`, and raises nothing."""
    began_ms = context.clock.monotonic_ms()

    def took_ms() -> int:
        return context.clock.monotonic_ms() - began_ms

    fields = [("content-type", media_type), ("user-agent", _USER_AGENT)]
    fields += signed_fields(signers, message_id, context.now_ms() // 1000, body)
    try:
        check_url(hook.url, allow_private=context.settings.allow_private_networks)
        receipt = await context.outgoing_webhooks.deliver(
            hook.url, fields, body,
            whose=OnBehalf(hook.maker, is_test), seconds_max=SECONDS_MAX, bytes_max=CONTENT_BYTES_MAX,
        )  # fmt: skip
    except InvalidBody:  # the operator has changed the setting since
        return Sent(None, "forbidden-address", took_ms())
    except Unreachable as error:
        return Sent(None, error.reason, took_ms())
    is_good = receipt.status in _SUCCESSFUL
    outcome = DELIVERED if is_good else f"http-{receipt.status}"
    wait_s = retry_after_s(receipt.retry_after, context.now_ms())
    return Sent(receipt.status, outcome, took_ms(), wait_s, receipt.content)


def retry_after_s(text: str | None, now_ms: int) -> int | None:
    """The seconds of a `Retry-After` (RFC 9110 section 10.2.3): a number, or a date. None: it says nothing."""
    if text is None or len(text) > _DATE_LENGTH_MAX:
        return None
    if text.isascii() and text.isdigit():
        return min(int(text), RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(text)
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now_ms / 1000
    except (ValueError, OverflowError):  # OverflowError: a year beyond all integers
        return None
    return max(0, min(int(seconds), RETRY_AFTER_S_MAX))
