"""When more writes wait than may, creates are refused; what ends a trigger is taken all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from builders import TriggerDraft, Wallet, deploy, register
from muniment.storage import backlog

OWNER = Wallet(43)


async def test_creates_are_refused_and_deactivations_are_not(
    client: httpx.AsyncClient, nothing_stored: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = await deploy(client)
    sig = (await register(client, TriggerDraft(cid, OWNER)))["sig"]
    refused = TriggerDraft(cid, OWNER, version="2.0.0")
    with monkeypatch.context() as patched:
        patched.setattr(backlog, "WAITING_MAX", 0)
        async with nothing_stored():
            response = await client.post("/triggers", json=refused.signed())
        assert (response.status_code, response.json()["code"]) == (503, "overloaded")
        assert response.headers["retry-after"] == "1"
        body = {"triggerSigs": [sig], "signature": OWNER.sign_deactivation([sig])}
        assert (await client.post("/triggers/deactivate", json=body)).status_code == 204
    assert "deactivateSig" in (await client.get(f"/triggers/{sig}")).json()
    await register(client, refused)
