"""The shapes of webhooks."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import quote, urlsplit

from msgspec import UNSET, Meta, UnsetType

from muniment.protocol.errors import InvalidBody, InvalidParameter
from muniment.protocol.wire import DateTime, ProvedText, Record
from muniment.service.resources.feed.events import Filters, Position, TypeName, Types

# A length that browsers and servers take; no standard sets one.
URL_LENGTH_MAX: Final = 2_000
# Attempts that are kept for each hook.
ATTEMPTS_KEPT: Final = 100
# With this many dead letters a hook is disabled: its receiver does not understand the events.
DEAD_LETTERS_MAX: Final = 100
# How long the old key signs too after a rotation: a day to give the receiver the new secret.
OLD_KEY_MS: Final = 86_400_000

# The outcome of a request that the receiver answered 2xx.
DELIVERED: Final = "delivered"
# The reason of a suspended hook.
RETIRED: Final = "the secret of its key was retired; rotate gives it a new one"
_ID: Final = re.compile(r"mnh_[0-9a-f]{32}")
# RFC 3986 without credentials and a fragment. A host is an address, or a name as a resolver takes it, which may have an
# underscore, as those of containers do.
_LABEL: Final = "[A-Za-z0-9_-]{1,63}"
_URL: Final = re.compile(
    rf"[Hh][Tt][Tt][Pp][Ss]?://(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?(?:[/?][!$&-;=?@A-Z_a-z~%]*)?"
)
_ODD_IN_HOST: Final = re.compile(r"[^A-Za-z0-9_.:\[\]-]")
_ODD: Final = re.compile("[^!$&-;=?@A-Z_a-z~%]")
_ADDRESS_EXAMPLE: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
_POSITION_EXAMPLE: Final = "ZS0wYmFkY2FmZS0xMDA"

# pending: the receiver has not answered the challenge yet. active: events are delivered. disabled: after failures, or
# at the wish of the receiver. suspended: the secret of its key was retired.
WebhookStatus = Literal["pending", "active", "disabled", "suspended"]


class WebhookId(ProvedText):
    """The id of a webhook: `mnh_` and 16 random bytes in hex."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^{_ID.pattern}$",
        "description": "The id of a webhook",
        "examples": ["mnh_" + "0a" * 16],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter`."""
        if not _ID.fullmatch(text):
            raise InvalidParameter("the id of a webhook is mnh_ and 32 hex digits")
        return cls(text)

    @classmethod
    def from_raw(cls, raw: bytes) -> Self:
        """The id of 16 bytes."""
        return cls(f"mnh_{raw.hex()}")

    @property
    def raw(self) -> bytes:
        """The 16 bytes."""
        return bytes.fromhex(self[4:])


class WebhookUrl(ProvedText):
    """The URL of a receiver, as it was given. `sending.check_url` checks whether this service may send to it."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "format": "uri",
        "pattern": f"^{_URL.pattern}$",
        "maxLength": URL_LENGTH_MAX,
        "description": "https, port 443 or at least 1024, without credentials or fragment, in ASCII",
        "examples": ["https://hooks.example.org/muniment"],
    }
    refuses = InvalidBody

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidBody` for a text that is not the URL of a server, or has credentials or a fragment."""
        if len(text) > URL_LENGTH_MAX:
            raise InvalidBody(f"a URL has at most {URL_LENGTH_MAX} characters")
        if fault := _fault_of(text):
            raise InvalidBody(f"the URL must be https://host/path, and this one {fault}")
        return cls(text)


def _fault_of(text: str) -> str:
    """Why it is not the URL of a receiver, and what to do; empty if it is one."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in {"http", "https"}:
        return "does not begin with https://"
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if not authority:
        return "has no host"
    if "@" in authority:
        return "has a user name or a password: put a token into its path or query"
    if odd := _ODD_IN_HOST.search(authority):
        return f"has {odd[0]!a} in its host: write a name in its ASCII form (xn--…)"
    if "#" in rest:
        return "has a fragment (#…), which is never sent: leave it out, or write # as %23"
    if odd := _ODD.search(rest, len(authority)):
        return f"has {odd[0]!a}: write it as {quote(odd[0])}"
    try:
        is_good = _URL.fullmatch(text) is not None and urlsplit(text).port != 0
    except ValueError:
        is_good = False
    return "" if is_good else "has a malformed host or port"


class WebhookFilters(Filters, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Events that match every given filter in one of its values, as the parameters of GET /events."""

    example: ClassVar[dict[str, Any]] = {"owner": [_ADDRESS_EXAMPLE]}


class NewWebhook(Record, frozen=True, forbid_unknown_fields=True):
    """A webhook to add. Without types and filters it gets every event."""

    url: WebhookUrl
    types: Types | None = None
    filters: WebhookFilters | None = None
    batch: Annotated[bool, Meta(description="true: up to 100 events in one request, as a JSON array")] = False

    example: ClassVar[dict[str, Any]] = {
        "url": "https://hooks.example.org/muniment", "filters": WebhookFilters.example,
    }  # fmt: skip


class WebhookUpdate(Record, frozen=True, forbid_unknown_fields=True):
    """The members to change; the others stay, and null removes types or filters."""

    url: WebhookUrl | UnsetType = UNSET
    types: Types | UnsetType | None = UNSET
    filters: WebhookFilters | UnsetType | None = UNSET
    batch: bool | UnsetType = UNSET

    example: ClassVar[dict[str, Any]] = {"batch": True}


class Webhook(Record, frozen=True, omit_defaults=True):
    """A webhook, as its operator sees it."""

    id: WebhookId
    url: WebhookUrl
    batch: bool
    status: WebhookStatus
    cursor: Annotated[Position, Meta(description="The last event that was delivered or moved to dead letters")]
    failures: Annotated[int, Meta(description="Attempts in a row that failed")]
    created_at: DateTime
    reason: Annotated[str, Meta(description="Why it is not active")] | None = None
    types: list[TypeName] | None = None
    filters: WebhookFilters | None = None
    failing_since: DateTime | None = None
    due_at: Annotated[DateTime, Meta(description="The next attempt, after a failure")] | None = None
    dead_letters: (
        Annotated[list[Position], Meta(description="Events that the receiver refused several times")] | None
    ) = None

    example: ClassVar[dict[str, Any]] = {
        "id": "mnh_" + "0a" * 16, "url": "https://hooks.example.org/muniment", "batch": False, "status": "active",
        "cursor": _POSITION_EXAMPLE, "failures": 0,
        "createdAt": "2026-11-20T19:48:00.123Z", "filters": WebhookFilters.example,
    }  # fmt: skip


class WebhookSecret(Record, frozen=True):
    """A webhook and the secret of its receiver, which is shown only here."""

    webhook: Webhook
    secret: Annotated[str, Meta(description="Of the signatures: `whsec_` and 32 bytes in base64")]

    example: ClassVar[dict[str, Any]] = {"webhook": Webhook.example, "secret": "whsec_" + "A" * 43 + "="}


class Replay(Record, frozen=True, forbid_unknown_fields=True):
    """The event after which delivery starts again."""

    cursor: Position

    example: ClassVar[dict[str, Any]] = {"cursor": _POSITION_EXAMPLE}


class WebhookAttempt(Record, frozen=True, omit_defaults=True):
    """A request to the receiver."""

    at: DateTime
    took_ms: Annotated[int, Meta(ge=0, description="Milliseconds until its answer")]
    outcome: Annotated[str, Meta(description="One word, such as `delivered`, `timeout` or `http-500`")]
    status: Annotated[int, Meta(description="HTTP status; absent if no answer")] | None = None
    event: Annotated[Position, Meta(description="The last event that was sent; absent for a test")] | None = None

    example: ClassVar[dict[str, Any]] = {
        "at": "2026-11-20T19:48:00.123Z", "tookMs": 31, "outcome": "delivered", "status": 204,
        "event": _POSITION_EXAMPLE,
    }  # fmt: skip


class ChallengeResult(Record, frozen=True, omit_defaults=True):
    """The answer of a receiver to a challenge."""

    status: WebhookStatus
    outcome: Annotated[str, Meta(description="`delivered`: the challenge came back; else one word for the reason")]
    took_ms: Annotated[int, Meta(ge=0, description="Milliseconds until its answer")]

    example: ClassVar[dict[str, Any]] = {"status": "active", "outcome": "delivered", "tookMs": 31}
