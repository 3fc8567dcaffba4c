"""Check the status of an answer before its body is read, and repeat requests while a service is busy."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import httpx2

from muniment.service.http.paging import Cursor, cursor_after

_LINK = re.compile(r'<(\?[^<>]*)>; rel="(next|prev)"')
_LINKS = re.compile(rf"{_LINK.pattern}(, {_LINK.pattern})?")
# This ends a hang.
ANSWERED_SECONDS_MAX = 60


def ok(answer: httpx2.Response) -> httpx2.Response:
    """The answer, which must have the status 200; otherwise the test fails with its body."""
    asked = answer.request
    assert answer.status_code == 200, f"{asked.method} {asked.url}: {answer.status_code} {answer.text[:1_000]}"
    return answer


def target_of(answer: httpx2.Response, relation: str = "next") -> str | None:
    """The target of a link: the path that was asked for, with the query of the link (RFC 3986 section 5.2.2)."""
    field = answer.headers.get("link", "")
    assert not field or _LINKS.fullmatch(field), field
    query = {name: reference for reference, name in _LINK.findall(field)}.get(relation)
    return None if query is None else answer.url.raw_path.decode().partition("?")[0] + query


async def answered(client: httpx2.AsyncClient, method: str, target: str, **given: Any) -> httpx2.Response:
    """The answer with status 200; repeats the request after 429 or 503, as `asked` does."""
    return ok(await asked(client, method, target, **given))


async def asked(client: httpx2.AsyncClient, method: str, target: str, **given: Any) -> httpx2.Response:
    """The answer, whatever its status; repeats the request after 429 or 503.

    The contract allows both at any time, and a busy service, or one whose database is busy, gives them. So `asked`
    sends only what may be sent twice.
    """
    deadline = time.monotonic() + ANSWERED_SECONDS_MAX
    while True:
        answer = await client.request(method, target, **given)
        if answer.status_code not in {429, 503} or time.monotonic() > deadline:
            return answer
        await asyncio.sleep(int(answer.headers["retry-after"]))


def until_ready(client: httpx2.Client) -> None:
    """Wait until the service is ready: one that stood still for two seconds and a half says that it is not."""
    deadline = time.monotonic() + ANSWERED_SECONDS_MAX
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < deadline, "never ready"
        time.sleep(0.05)


def cursor_at(table: str, seq: int, epoch: int | None = None) -> Cursor:
    """Cursor of the listing of a table after the row with this sequence number."""
    return Cursor(cursor_after(table, seq, epoch).decode())
