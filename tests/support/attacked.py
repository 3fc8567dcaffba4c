"""A service that is there to be attacked: the limits that hold by default, and something to ask for."""

from __future__ import annotations

import secrets

import httpx2

from builders import Bundle, TriggerDraft, Wallet, deploy
from muniment.settings import Settings

# The tests else turn them off.
LIMITS = {f"MUNIMENT_RATE_LIMIT_{name.upper()}": getattr(Settings(), f"rate_limit_{name}") for name in
          ("client", "login", "owner", "stop")}  # fmt: skip
_INPUT_BYTES = 100_000
_ANSWER_SECONDS_MAX = 60


async def prepare(url: str) -> tuple[str, str]:
    """The CID of a function and the signature of a short trigger; a hundred others are as long as they may be."""
    inputs = {"note": "string"}
    async with httpx2.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS_MAX, trust_env=False) as client:
        cid = await deploy(client, Bundle(inputs=inputs), Wallet(secrets.randbits(64)))
        drafts = [
            TriggerDraft(cid, Wallet(7), inputs=inputs, input={"note": text}, version=f"{number}.0.0")
            for number, text in enumerate(["short", *["x" * _INPUT_BYTES] * 100])
        ]
        answers = [await client.post("/triggers", json=draft.signed()) for draft in drafts]
    assert not (refused := [answer.text for answer in answers if answer.status_code != 200]), refused[0]
    return cid, answers[0].json()["sig"]
