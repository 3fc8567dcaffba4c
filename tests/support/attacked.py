"""A service to attack, with default limits and some records."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import LiteralString

import httpx2

from builders import Bundle, TriggerDraft, Wallet, deploy
from feed_writing import ROWS_AT_ONCE, add_events, execute_all
from muniment.service.running.settings import Settings

# The tests else turn them off.
LIMITS = {f"MUNIMENT_RATE_LIMIT_{name.upper()}": getattr(Settings(), f"rate_limit_{name}") for name in
          ("client", "login", "owner", "stop")}  # fmt: skip
INPUTS = {"note": "string"}
_INPUT_BYTES = 100_000
_ANSWER_SECONDS_MAX = 60
# Of a registry that looks lived in: triggers beyond the longest walk by offset, and events beside those of triggers.
TRIGGERS, EVENTS = 100_200, 300_000
# Deactivations of a hundred triggers, the longest entries of the log, in its last bundle.
_BUNDLE, _LONG_ENTRIES = 256, 200
_LOGGED_SECONDS_MAX = 300
_COPIED: LiteralString = """INSERT INTO triggers
  (sig, signer, digest, function_digest, protocol, live, deactivated, end_date_ms, created_at_ms, record)
  SELECT {sig}, {signer}, {digest}, function_digest, protocol, n % 2, 1 - n % 2, end_date_ms, created_at_ms, record
  FROM {numbers} CROSS JOIN (SELECT * FROM triggers WHERE length(record) < 5000 LIMIT 1) AS one"""
_COPIES = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) "
    + _COPIED.format(
        sig="CAST(randomblob(64) || x'1b' AS BLOB)", signer="randomblob(20)", digest="randomblob(32)", numbers="numbers"
    ),
    "postgres": _COPIED.format(
        sig=r"sha512(n::text::bytea) || '\x1b'", signer="substr(sha256(n::text::bytea), 1, 20)",
        digest="sha256(n::text::bytea)", numbers="generate_series({first}, {last}) AS numbers(n)",
    ),
}  # fmt: skip


async def prepare(url: str) -> tuple[str, str]:
    """CID of a function and signature of a short trigger. Also adds a hundred triggers of the maximal size."""
    async with _client(url) as client:
        cid = await deploy(client, Bundle(inputs={"note": "string"}), Wallet(secrets.randbits(64)))
        drafts = [
            TriggerDraft(cid, Wallet(7), inputs=INPUTS, input={"note": text}, version=f"{number}.0.0")
            for number, text in enumerate(["short", *["x" * _INPUT_BYTES] * 100])
        ]
        answers = [await client.post("/triggers", json=draft.signed()) for draft in drafts]
    assert not (refused := [answer.text for answer in answers if answer.status_code != 200]), refused[0]
    return cid, answers[0].json()["sig"]


async def furnish(url: str, data_dir: Path, database_url: str, cid: str) -> None:
    """Add many triggers and events, and a log whose last bundle is long. The service has no limits meanwhile."""
    engine = "postgres" if database_url else "sqlite"
    for first in range(1, TRIGGERS + 1, ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE - 1, TRIGGERS)
        await execute_all(data_dir, database_url, [_COPIES[engine].format(first=first, last=last)])
    await add_events(data_dir, database_url, EVENTS)
    async with _client(url) as client:
        size = await _logged(client, TRIGGERS)
        count = 100 + _LONG_ENTRIES
        # The long entries begin near the beginning of a bundle.
        sigs = [await _consent(client, cid, number) for number in range(count + -(size + count) % _BUNDLE)]
        await _logged(client, size + len(sigs))
        await _end(client, sigs[:100])
        for sig in sigs[100:count]:
            await _end(client, [*sigs[:99], sig])
        await _logged(client, size + len(sigs) + 1 + _LONG_ENTRIES)


def _client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS_MAX, trust_env=False)


async def _consent(client: httpx2.AsyncClient, cid: str, number: int) -> str:
    draft = TriggerDraft(cid, Wallet(8), INPUTS, input={"note": "short"}, version=f"{number}.0.0")
    answer = await client.post("/triggers", json=draft.signed())
    assert answer.status_code == 200, answer.text
    return answer.json()["sig"]


async def _end(client: httpx2.AsyncClient, sigs: list[str]) -> None:
    body = {"triggerSigs": sigs, "signature": Wallet(8).sign_deactivation(sigs)}
    answer = await client.post("/triggers/deactivate", json=body)
    assert answer.status_code == 204, answer.text


async def _logged(client: httpx2.AsyncClient, least: int) -> int:
    """Size of the log, once it has at least so many entries and has stopped growing."""
    size, since = 0, time.monotonic()
    deadline = since + _LOGGED_SECONDS_MAX
    while size < least or time.monotonic() < since + 4:
        assert time.monotonic() < deadline, f"the log has {size} entries of {least}"
        answer = await client.get("/log/1/checkpoint")
        if answer.status_code == 200 and (now := int(answer.text.splitlines()[1])) != size:
            size, since = now, time.monotonic()
        await asyncio.sleep(0.2)
    return size
