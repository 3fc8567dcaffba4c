"""Programs of a user that are killed: `dies.py follow|offer URL KEY USER DIRECTORY`.

Both follow the intents of USER with a checkpoint in DIRECTORY, from where they were. `follow` writes each hash into a
file; `offer` is a solver: it writes a proposal and a line to each intent by a writer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from muniment.client import AsyncRegistry, Checkpoint, KeySigner, Registry, sign_proposal

# The work on an intent takes a moment, in which the program may be killed; 250 of them take longer than a busy machine
# lets the killer wait.
WORK_S = 0.02


def follow(url: str, user: str, directory: Path) -> None:
    place = Checkpoint(directory / "place", url=url, user=user)
    with Registry(url) as registry, (directory / "handled").open("a") as handled:
        for page in registry.intents.follow(after=place.read(), user=user):
            for intent in page:
                handled.write(f"{intent.hash}\n")
                handled.flush()
                time.sleep(WORK_S)
            place.write(page.cursor)


async def offer(url: str, key: str, user: str, directory: Path) -> None:
    me = KeySigner((72).to_bytes(32))
    place = Checkpoint(directory / "place", url=url, user=user)
    async with AsyncRegistry(url, operator_key=key) as registry, registry.writer(concurrency=4) as writer:
        async for page in registry.intents.follow(after=place.read(), user=user):
            for intent in page:
                made = sign_proposal(me, intent, chain_id=8453, fees=["1"], deadline=intent.deadline)
                await writer.propose(intent.hash, made)
                await writer.log(intent.hash, "info", "offered", id=f"solver/{intent.hash}")
            await writer.flush()
            place.write(page.cursor)


if __name__ == "__main__":
    mode, url, key, user, directory = sys.argv[1:]
    if mode == "follow":
        follow(url, user, Path(directory))
    else:
        asyncio.run(offer(url, key, user, Path(directory)))
