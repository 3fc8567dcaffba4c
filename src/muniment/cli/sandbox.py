"""The sandbox and the nodes of commands that run functions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from muniment.cli.client.service import FailedError
from muniment.cli.options import settings_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from muniment.chains.catalogue import Chain
    from muniment.chains.nodes import Nodes
    from muniment.guest.sandbox import Sandbox
    from muniment.outgoing import Outgoing


@asynccontextmanager
async def opened_sandbox() -> AsyncGenerator[Sandbox]:
    """A sandbox. Open it first: its processes begin before a key is read.

    Raises `FailedError` where functions cannot run.
    """
    from muniment.guest.children import SandboxMissing
    from muniment.guest.sandbox import Sandbox

    try:
        async with Sandbox.open() as sandbox:
            yield sandbox
    except SandboxMissing as error:
        raise FailedError(str(error)) from error


def chains_and_nodes(outgoing: Outgoing, chains_file: Path | None) -> tuple[Mapping[int, Chain], Mapping[int, Nodes]]:
    """The chains of a file, or of the settings, and the nodes of those that have any, by chain id.

    Raises `ValueError` for an unusable file, and `OSError` for an unreadable one.
    """
    import random
    import time

    from muniment.chains.catalogue import load_chains
    from muniment.relayer.runner.pinning import nodes_of

    chains = load_chains(settings_of(None, chains_file=chains_file).chains_file)
    # What a command tells of a failure is its result; its output has no log.
    nodes = nodes_of(outgoing, chains.values(), now_s=time.monotonic, chance=random.random, is_logged=False)
    return chains, nodes
