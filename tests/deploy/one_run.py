"""A trigger that is due at once, signed at a running service, and the wait for the run that a relayer makes of it.

Argument: the URL of the service. A program, so that it can run in the network of a container.
"""

from __future__ import annotations

import asyncio
import sys

import httpx2

from builders import TriggerDraft, deploy, once, register
from guest_functions import INPUTS, bundle

# Ends the wait for a relayer that does not work.
SECONDS_MAX = 60
GIVEN = {
    "chainId": 8453, "token": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "1000000",
    "recipient": "0x1111111111111111111111111111111111111111", "fee": "10000",
}  # fmt: skip


async def main(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        cid = await deploy(client, bundle("transfer"))
        draft = TriggerDraft(cid, config=once(startDate=0, delta="1h"), inputs={**INPUTS["transfer"]}, input=GIVEN)
        trigger = await register(client, draft)
        async with asyncio.timeout(SECONDS_MAX):
            while not (runs := (await client.get("/executions", params={"triggerSig": trigger["sig"]})).json()):
                await asyncio.sleep(0.2)
    (run,) = runs
    assert (run["result"], run["status"]) == ("intents", "valid"), run


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
