"""A registry with a log of a function, two triggers and a deactivation, and a proxy in front of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from builders import Bundle, TriggerDraft, Wallet, deploy, register
from middle import Answered, Asked, Behaviour, Forward, Middle, before
from service import Service

OWNER = Wallet(7)
BUNDLE = Bundle(inputs={"to": "address"})
LOG = {
    "MUNIMENT_TLOG_NAME": "registry.example", "MUNIMENT_TLOG_KEY": "11" * 32,
    "MUNIMENT_TLOG_INTERVAL_S": "1",
}  # fmt: skip
SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Site:
    """A registry, its proxy, and the signatures of two triggers, the second deactivated."""

    url: str
    middle: Middle
    sigs: tuple[str, str]
    ending: str
    operator_key: str


def draft_of(cid: str, number: int) -> TriggerDraft:
    """A trigger of the owner."""
    return TriggerDraft(cid, OWNER, BUNDLE.inputs, version=f"{number}.0.0", input={"to": OWNER.address})


async def fill(url: str) -> tuple[tuple[str, str], str]:
    """Deploy, register and deactivate; the signatures, once everything is logged."""
    async with httpx2.AsyncClient(base_url=url) as client:
        cid = await deploy(client, BUNDLE, wallet=OWNER)
        sigs = [(await register(client, draft_of(cid, number)))["sig"] for number in (1, 2)]
        ending = str(OWNER.sign_deactivation(sigs[1:]))
        consent = {"triggerSigs": sigs[1:], "signature": ending}
        assert (await client.post("/triggers/deactivate", json=consent)).status_code == 204
        deadline = time.monotonic() + SECONDS_MAX
        while (await client.get(f"/deactivations/{ending}/proof")).status_code == 404:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return (sigs[0], sigs[1]), ending


@contextmanager
def followed_registry(directory: Path) -> Generator[Site]:
    """A registry on a new directory, and its proxy."""
    with Service(directory / "data", environment=LOG) as service:
        sigs, ending = asyncio.run(fill(service.url))
        with before(service.url) as middle:
            yield Site(service.url, middle, sigs, ending, service.operator_key())


def changing(path: str, change: Any) -> Behaviour:
    """Behaviour of a proxy that changes the JSON at a path."""

    def behave(asked: Asked, forward: Forward) -> Answered:
        answer = forward()
        if asked.target.partition("?")[0] != path:
            return answer
        return answer._replace(content=json.dumps(change(json.loads(answer.content))).encode())

    return behave
