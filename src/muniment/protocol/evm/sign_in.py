"""Sign-In with Ethereum (ERC-4361): the text in which a wallet says where it logs in, written and read.

Unlike a bare nonce, the text names the service, so that a signature for one service is useless at another. It is
read by the ABNF of ERC-4361, with the rules of RFC 3986 and RFC 3339 to which that refers. Each pattern is a row of
classes of characters that exclude each other, so every line is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

_ASKS: Final = " wants you to sign in with your Ethereum account:"
# RFC 3986: sections 2.1 to 2.3, 3.1, 3.2 and 3.3.
_SUB: Final = r"!$&'()*+,;="
_ESCAPED: Final = r"%[0-9A-Fa-f]{2}"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_USER: Final = re.compile(rf"(?:[A-Za-z0-9._~{_SUB}:\-]|{_ESCAPED})*")
_LITERAL: Final = rf"\[(?:[0-9A-Fa-f:.]+|[vV][0-9A-Fa-f]+\.[A-Za-z0-9._~{_SUB}:\-]+)\]"
_NAME: Final = rf"(?:[A-Za-z0-9._~{_SUB}\-]|{_ESCAPED})*"
_HOST_AND_PORT: Final = re.compile(rf"({_LITERAL}|{_NAME})(?::[0-9]*)?")
_PATH: Final = re.compile(rf"(?:[A-Za-z0-9._~{_SUB}:@/\-]|{_ESCAPED})*")
_QUERY: Final = re.compile(rf"(?:[A-Za-z0-9._~{_SUB}:@/?\-]|{_ESCAPED})*")
_STATEMENT: Final = re.compile(rf"[A-Za-z0-9._~:/?#\[\]@{_SUB} \-]*")
# RFC 3339 section 5.6. A second of 60 is a leap second.
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_LEAP_SECOND: Final = 60
_ADDRESS: Final = re.compile("0x[0-9A-Fa-f]{40}")


def _is_authority(text: str) -> bool:
    user, at, place = text.rpartition("@")
    host_and_port = _HOST_AND_PORT.fullmatch(place)
    if host_and_port is None or (at and not _USER.fullmatch(user)):
        return False
    host = host_and_port[1]
    if host.startswith("[") and host[1] not in "vV":
        try:
            IPv6Address(host[1:-1])
        except ValueError:
            return False
    return True


def is_uri(text: str) -> bool:
    """Whether a text is a URI of RFC 3986 with a scheme, as a log-in in words has it."""
    scheme, colon, rest = text.partition(":")
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    return (
        colon == ":"
        and _SCHEME.fullmatch(scheme) is not None
        and _is_authority(authority)
        and _PATH.fullmatch(path) is not None
        and _QUERY.fullmatch(query) is not None
        and _QUERY.fullmatch(fragment) is not None
    )


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


# The lines after the statement, in order: the prefix of the line, and whether a text may follow it.
_LINES: Final[dict[str, Callable[[str], bool]]] = {
    "URI: ": is_uri,
    "Version: ": _matches("1"),
    "Chain ID: ": _matches("[0-9]+"),
    "Nonce: ": _matches("[A-Za-z0-9]{8,}"),
    "Issued At: ": _is_time,
    "Expiration Time: ": _is_time,
    "Not Before: ": _is_time,
    "Request ID: ": _matches(rf"(?:[A-Za-z0-9._~{_SUB}:@\-]|{_ESCAPED})*"),
}
_OPTIONAL: Final = frozenset({"Expiration Time: ", "Not Before: ", "Request ID: "})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SignIn:
    """The fields of such a text. Times are milliseconds since 1970; `scheme` is None where the text names none.

    The statement, the chain, the request and the resources say nothing about a log-in, so they are not kept.
    """

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
    first, address, *rest = text.split("\n") if "\n" in text else (text, "")
    scheme, separator, domain = first.removesuffix(_ASKS).rpartition("://")
    is_scheme = not separator or _SCHEME.fullmatch(scheme)
    if not (first.endswith(_ASKS) and is_scheme and _is_authority(domain) and domain[:1] not in {"", ":"}):
        raise ValueError("the first line is not ERC-4361")
    if not _ADDRESS.fullmatch(address):
        raise ValueError("the second line is not an address")
    fields = _fields(_after_statement(rest))
    issued_at_ms, expires_at_ms, not_before_ms = (
        _milliseconds(name, fields[name]) if name in fields else None
        for name in ("Issued At: ", "Expiration Time: ", "Not Before: ")
    )
    assert issued_at_ms is not None  # noqa: S101 - the line is not optional
    return SignIn(
        scheme if separator else None, domain, address, fields["URI: "], fields["Nonce: "],
        issued_at_ms, expires_at_ms, not_before_ms,
    )  # fmt: skip


def _after_statement(lines: list[str]) -> list[str]:
    """The lines after the statement, which stands between two empty lines; without one there are the two lines."""
    begin, *rest = lines or ["no line"]
    if begin == "" and rest[:1] == [""] and rest[1:] and rest[1].startswith("URI: "):
        return rest[1:]
    if begin != "" or rest[1:2] != [""] or not _STATEMENT.fullmatch(rest[0]):
        raise ValueError("the statement is not between empty lines, or has an invalid character")
    return rest[2:]


def _fields(lines: list[str]) -> dict[str, str]:
    """The values by the beginnings of their lines."""
    found: dict[str, str] = {}
    for name, may_follow in _LINES.items():
        line = lines[len(found)] if len(found) < len(lines) else ""
        if line.startswith(name):
            found[name] = line.removeprefix(name)
            if not may_follow(found[name]):
                raise ValueError(f"the line {name.strip(': ')} has an invalid value")
        elif name not in _OPTIONAL:
            raise ValueError(f"the line {name.strip(': ')} is missing or at another place")
    if resources := lines[len(found) :]:
        title, *listed = resources
        if title != "Resources:" or not all(each.startswith("- ") and is_uri(each[2:]) for each in listed):
            raise ValueError("there are extra lines at the end")
    return found


def _milliseconds(name: str, text: str) -> int:
    """The time in milliseconds since 1970 of a text that `_TIME` matches. Raises `ValueError` for no such day."""
    parts = _TIME.fullmatch(text)
    assert parts is not None  # noqa: S101 - see above
    year, month, day, hour, minute, second = map(int, parts.groups()[:6])
    fraction, sign, hours, minutes = parts.groups()[6:]
    # The second 60 is the moment at which the next minute begins.
    leap = timedelta(seconds=1) if second == _LEAP_SECOND else timedelta()
    try:
        zone = timezone(timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)) if sign else UTC
        at = datetime(year, month, day, hour, minute, min(second, _LEAP_SECOND - 1) if leap else second, tzinfo=zone)
    except ValueError:
        raise ValueError(f"the line {name.strip(': ')} is no time") from None
    # In this order: the last minute of the year 9999 may have such a second, and its end is no `datetime`.
    return (at - _EPOCH + leap) // timedelta(milliseconds=1) + int((fraction or "0")[:3].ljust(3, "0"))


def domain_of(url: str) -> str:
    """The host of a URL with its port, as browsers write it: in lower case, without the default port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return shown if parts.port in {None, _DEFAULT_PORTS.get(parts.scheme)} else f"{shown}:{parts.port}"


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine: `localhost`, or a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def normal_form(url: str) -> str:
    """A URL in the normal form of RFC 3986 sections 6.2.2 and 6.2.3, without a slash at its end.

    Raises `ValueError` for a port that is none, and for a user name, which would look like a host.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("the URL has a user name")
    escaped = re.sub("%[0-9A-Fa-f]{2}", lambda each: quote(unquote_to_bytes(each[0]), safe=""), parts.path)
    segments: list[str] = []
    for segment in escaped.split("/")[1:]:  # section 5.2.4
        if segment != "..":
            segments += [] if segment == "." else [segment]
        elif segments:
            segments.pop()
    path = "".join(f"/{segment}" for segment in segments).rstrip("/")
    rest = url[len(url.partition("#")[0].partition("?")[0]) :]
    return f"{parts.scheme}://{domain_of(url)}{path}{rest}"


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
