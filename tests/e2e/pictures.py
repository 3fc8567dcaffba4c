"""Take the pictures of the console that the docs show: `pictures.py FOLDER`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import httpx2
from playwright.async_api import expect

from browsing import browser
from console_world import fill
from limitless import unlimited_settings
from muniment.service.app import Application, build_context
from service import Service
from without_server import InProcess

_WIDTH, _HEIGHT = 1120, 760


async def main(folder: Path) -> None:
    """Fill a registry, serve it, and look at two of its pages."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        now_ms = [time.time_ns() // 1_000_000]
        context = build_context(unlimited_settings(data_dir=Path(data)), now_ms=lambda: now_ms[0])
        await context.database.migrate()
        transport = InProcess(Application(context))
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            world = await fill(context, client, lambda moment_ms: now_ms.__setitem__(0, moment_ms), intents=400)
        for part in (context.outgoing, context.outgoing_webhooks, context.database):
            await part.close()
        service = Service(Path(data), environment={"MUNIMENT_TLOG_NAME": "registry.example.org"}).start()
        try:
            async with browser() as launched:
                page = await launched.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
                await page.goto(f"{service.url}/console/triggers/{world.triggers[2]['sig']}")
                await expect(page.locator("#proof .verdict")).to_contain_text("Yes.")
                await expect(page.locator("#logged .verdict")).to_contain_text("Yes.", timeout=20_000)
                await page.screenshot(path=folder / "trigger.png")
                await page.goto(f"{service.url}/console")
                await page.screenshot(path=folder / "overview.png")
        finally:
            service.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
