"""How many functions of Python a read calls, from the bytes of its request to those of its answer.

A read spends its time on calls, of 50 to 100 ns each, and on little else that is ours. It made 92 of them, and a page
of ten 213, when links, limits and times had come; the bounds are what is left without work that is done twice. Time
itself is measured by `make bench`, since no verdict of a test may depend on the speed of a machine.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

import httpx2
import pytest
from wires import Wire

from builders import TriggerDraft, Wallet, deploy, register
from muniment.service.app import Application

ONE, TEN = 56, 80
OWNER = Wallet(120)
# The event loop, and what stands for its transport and its clock: with uvloop none of them is written in Python.
_LOOP = ("/asyncio/", "/selectors.py", "/wires.py", __file__)
_FIELDS = "host: 127.0.0.1:8787\r\naccept: application/json\r\nconnection: keep-alive"


async def calls_of(wire: Wire, target: str) -> int:
    """The fewest calls of one of ten requests: some meet work in the background."""
    sent = f"GET {target} HTTP/1.1\r\n{_FIELDS}\r\n\r\n".encode()
    counts: list[int] = []

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not any(part in frame.f_code.co_filename for part in _LOOP):
            counts[-1] += 1

    for _ in range(5):  # statements and links are kept from now on
        await wire.answered(sent)
    gc.disable()
    try:
        for _ in range(10):
            counts.append(0)
            sys.setprofile(see)
            await wire.answered(sent)
            sys.setprofile(None)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert wire.transport.statuses == [200] * len(wire.transport.statuses)
    return min(counts)


@pytest.mark.one_engine
async def test_a_read_makes_few_calls(client: httpx2.AsyncClient, app: Application) -> None:
    cid = await deploy(client)
    sigs = [(await register(client, TriggerDraft(cid, OWNER, version=f"1.{n}.0")))["sig"] for n in range(12)]
    assert await calls_of(Wire(app), f"/triggers/{sigs[0]}") <= ONE
    assert await calls_of(Wire(app), f"/triggers?signer={OWNER.address}&limit=10") <= TEN
