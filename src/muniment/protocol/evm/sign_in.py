"""Sign-In with Ethereum (ERC-4361): the text in which a wallet says where it logs in, written and read.

Unlike a bare nonce, the text names the service, so that a signature for one service is useless at another. Domain and
URI are compared with those of the service, so here they are any characters of a URL. Statement, chain, request and
resources say nothing about a log-in: only their place and their characters are checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

_ASKS: Final = " wants you to sign in with your Ethereum account:"
# RFC 3339 section 5.6, without leap seconds.
_TIME: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
# Each line is read once: what may follow a part begins with a character that the part does not have.
_TEXT: Final = re.compile(
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://)?(?P<domain>[!-.0-~]+){_ASKS}\n"
    r"(?P<address>0x[0-9A-Fa-f]{40})\n"
    r"\n(?:[ !#$&-;=?-\[\]_a-z~]*\n)?\n"  # the statement, between empty lines
    r"URI: (?P<uri>[!-~]+)\n"
    r"Version: 1\n"
    r"Chain ID: [0-9]+\n"
    r"Nonce: (?P<nonce>[A-Za-z0-9]{8,})\n"
    rf"Issued At: (?P<issued_at>{_TIME})"
    rf"(?:\nExpiration Time: (?P<expires_at>{_TIME}))?"
    rf"(?:\nNot Before: (?P<not_before>{_TIME}))?"
    r"(?:\nRequest ID: [!-~]*)?"
    r"(?:\nResources:(?:\n- [!-~]+)*)?"
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SignIn:
    """The fields of such a text. Times are milliseconds since 1970; `scheme` is None where the text names none."""

    scheme: str | None
    domain: str
    address: str
    uri: str
    nonce: str
    issued_at_ms: int
    expires_at_ms: int | None
    not_before_ms: int | None


def read_sign_in(text: str) -> SignIn:
    """The fields of `text`. Raises `ValueError` for a text that is not ERC-4361."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError("not a text of ERC-4361")
    expires_at, not_before = found["expires_at"], found["not_before"]
    return SignIn(
        found["scheme"], found["domain"], found["address"], found["uri"], found["nonce"],
        _milliseconds(found["issued_at"]),
        _milliseconds(expires_at) if expires_at else None, _milliseconds(not_before) if not_before else None,
    )  # fmt: skip


def _milliseconds(text: str) -> int:
    """A time in milliseconds since 1970. Raises `ValueError` for no such day."""
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(milliseconds=1)


def domain_of(url: str) -> str:
    """The host of a URL with its port, as browsers write it: in lower case, without the default port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return shown if parts.port in {None, _DEFAULT_PORTS.get(parts.scheme)} else f"{shown}:{parts.port}"


def write_sign_in(url: str, *, address: str, nonce: str, issued_at: str) -> str:
    """The text with which `address` logs in at the service whose URL is `url`; `nonce` has hex digits without 0x.

    `issued_at` is a time of RFC 3339. The scheme stands there where it is not https, which wallets assume.
    """
    scheme = urlsplit(url).scheme
    origin = domain_of(url) if scheme == "https" else f"{scheme}://{domain_of(url)}"
    return "\n".join((
        f"{origin}{_ASKS}", address, "", "Log in to this registry. The signature permits nothing else.", "",
        f"URI: {url}", "Version: 1", "Chain ID: 1", f"Nonce: {nonce}", f"Issued At: {issued_at}",
    ))  # fmt: skip
