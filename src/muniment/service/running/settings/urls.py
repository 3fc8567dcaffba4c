"""URLs in settings: their validation, and their display without secrets."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

MASK: Final = "********"
# In a URL: after the user's name (RFC 3986 section 3.2.1; up to the last @, for one that was not escaped), or as a
# parameter, where PostgreSQL's drivers look too.
_PASSWORD: Final = re.compile(r"(://[^:/@]*:).*(?=@)|(password=)[^&]*")


def without_password(text: str) -> str:
    """The text with its passwords masked."""
    return _PASSWORD.sub(rf"\g<1>\g<2>{MASK}", text)


def is_postgresql(url: str) -> bool:
    """Whether this is the URL of a PostgreSQL."""
    return url.startswith(("postgresql://", "postgres://"))


def is_base_url(url: str) -> bool:
    """Whether paths can be appended to this URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for an invalid port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url and not {"@", "?", "#"} & set(url)
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname)


def without_path(url: str) -> str:
    """Scheme and host alone: paid price APIs and collectors have their keys in the path or the query."""
    parts = urlsplit(url)
    hidden = f"/{MASK}" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{hidden}" if url else ""
