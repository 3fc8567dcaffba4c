"""What witnesses know of a log: the memory of others, when a registry cannot trust its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muniment.outgoing import Outgoing
from muniment.tlog.witnessing.asking import SECONDS_MAX, read_checkpoint
from muniment.tlog.witnessing.policies import witnesses_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from muniment.tlog.keys import VerifierKey
    from muniment.tlog.policy import Policy
    from muniment.tlog.witnessing.asking import Known


async def known_checkpoints(
    policy: Policy, origin: str, key: VerifierKey, *, names: Collection[str] | None = None
) -> list[Known]:
    """What the witnesses with a URL have of the log `origin` with this key, each asked for at most five seconds.

    `names`: only these witnesses. The operator has named them, so they may be at private addresses. Raises nothing.
    """
    asked = [each for each in witnesses_of(policy) if names is None or each.name in names]
    if not asked:
        return []
    async with Outgoing(allow_private=True, connect_seconds_max=SECONDS_MAX) as outgoing:
        return await asyncio.gather(*(read_checkpoint(outgoing, each, origin, key) for each in asked))
