"""A node's own sentence, as logs and records may show it: short, visible, without the node's URL or its key. Pure."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from muniment.protocol.visible import visible

SENTENCE_MAX: Final = 200
# What is read of a text: after the URLs are taken out, enough is left for a sentence.
_READ_MAX: Final = 2_000
# Shorter parts of a URL are no keys, such as the `v2` of a path.
_PART_MIN: Final = 4
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{0,20}:\\?/\\?/\S*", re.IGNORECASE)
# A long word of a sentence that is a part of the URL, as a key that a node cut.
_WORD: Final = re.compile(r"[\w-]{8,}")
_BETWEEN: Final = re.compile(r"[/?&=:@#;,]+")
_LEFT_OUT: Final = "…"


def sentence_of(text: str, url: str) -> str:
    """`text`, which a node of `url` sent, in one line of at most `SENTENCE_MAX` characters."""
    secrets, whole = _secrets_of(url)
    text = _URL.sub(_LEFT_OUT, text[:_READ_MAX])
    if secrets is not None:
        text = secrets.sub(_LEFT_OUT, text)
    text = _WORD.sub(lambda word: _LEFT_OUT if word[0].lower() in whole else word[0], text)
    return visible(" ".join(text.split()))[:SENTENCE_MAX]


@lru_cache(maxsize=256)
def _secrets_of(url: str) -> tuple[re.Pattern[str] | None, str]:
    """What finds the parts of a URL in a text, in any case and encoding of URLs, and the URL in lower case."""
    forms = {url, unquote(url), unquote_plus(url)}
    user = urlsplit(url).netloc.rpartition("@")[0]
    parts = {part for form in forms for part in (form, *_BETWEEN.split(form.partition("://")[2]))}
    if user:
        parts.add(base64.b64encode(unquote(user).encode()).decode())
    parts |= {quote(part, safe="") for part in parts}
    longest_first = sorted((part for part in parts if len(part) >= _PART_MIN), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if longest_first else None
    return pattern, " ".join(forms).lower()
