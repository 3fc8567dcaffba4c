"""The CPU of the console's pages beside a million intents, in process. Runs alone: `python bench/console_pages.py`."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx2

from in_process import unlimited
from intents import IMPORTED, MANY, copy_all, fill
from muniment.app import Application, build_context
from ours import deploy, muniment, register
from samples import signed_triggers

_TRIGGERS: Final = 1_000
_ROUNDS: Final = 40
_BROWSER: Final = {"accept": "text/html"}


async def _measure(data: Path) -> None:
    context = build_context(unlimited(data))
    transport = httpx2.ASGITransport(app=Application(context))
    async with httpx2.AsyncClient(transport=transport, base_url="http://test", headers=_BROWSER) as client:
        intent = (await client.get("/intents?limit=1")).json()[0]["hash"]
        sig = (await client.get("/triggers?limit=1")).json()[0]["sig"]
        for path in (
            "/healthz", "/console", "/console/intents", "/console/intents?status=created", f"/console/intents/{intent}",
            "/console/triggers", "/console/triggers?active=true", f"/console/triggers/{sig}", "/console/functions",
            "/console/triggers/new", "/console/service", f"/console/find?q={intent}",
        ):  # fmt: skip
            micros: list[float] = []
            for _ in range(_ROUNDS + 1):
                started = time.thread_time_ns()
                answer = await client.get(path)
                micros.append((time.thread_time_ns() - started) / 1_000)
                assert answer.status_code in {200, 303}, path
            used = sorted(micros[1:])
            print(f"{path[:40]:42}{statistics.median(used):8.0f} µs  ({used[0]:.0f} … {used[-1]:.0f})")
    await context.database.close()


def main() -> None:
    """Fill a registry, and print the CPU of the event loop for each page; the first line is the client's own part."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        fill(data, IMPORTED)
        copy_all(data / "muniment.db")
        with muniment(data) as service, httpx2.Client(base_url=service.url) as client:
            register(service, signed_triggers(range(_TRIGGERS), deploy(client)))
        print(f"{MANY:,} intents, {_TRIGGERS:,} triggers, pages of 25 rows")
        asyncio.run(_measure(data))


if __name__ == "__main__":
    main()
