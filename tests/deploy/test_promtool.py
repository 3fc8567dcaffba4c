"""The metrics as `promtool check metrics` reads them, which Debian's package `prometheus` brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx2
from programs import installed

from builders import TriggerDraft, deploy, register
from service import Service


async def test_promtool_has_nothing_to_say_about_the_metrics(tmp_path: Path) -> None:
    promtool = installed("promtool")
    with Service(tmp_path / "data") as service:
        async with httpx2.AsyncClient(base_url=service.url, trust_env=False) as client:
            await register(client, TriggerDraft(await deploy(client)))
            text = (await client.get("/metrics")).text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
