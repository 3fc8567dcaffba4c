"""A client's work on a running service: log-in, the largest upload, a trigger, and reading both.

Arguments: the URL of the service and, where an authority of its own signed the certificate, the file of this authority.
A program, so that it can run in the network of a container.
"""

from __future__ import annotations

import asyncio
import ssl
import sys

import httpx2

from builders import EMPTY_WASM, Bundle, TriggerDraft, deploy, register

MODULE_BYTES = 16 * 1024 * 1024


def largest_module() -> bytes:
    """A module of exactly the largest size: a custom section fills it (WebAssembly 1.0, section 5.5.3)."""
    filling = MODULE_BYTES - len(EMPTY_WASM) - 1 - 4  # the section's id, and its size in four bytes of LEB128
    size = bytes([filling & 0x7F | 0x80, filling >> 7 & 0x7F | 0x80, filling >> 14 & 0x7F | 0x80, filling >> 21])
    return EMPTY_WASM + b"\0" + size + bytes(filling)


async def main(url: str, authority: str | None = None) -> None:
    context = ssl.create_default_context(cafile=authority)
    async with httpx2.AsyncClient(base_url=url, verify=context, timeout=60, trust_env=False) as client:
        module = largest_module()
        cid = await deploy(client, Bundle(wasm=module))
        trigger = await register(client, TriggerDraft(cid))
        assert (await client.get(f"/triggers/{trigger['sig']}")).json() == trigger
        assert (await client.get(f"/functions/{cid}/wasm")).content == module


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
