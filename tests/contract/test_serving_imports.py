"""What the serving process loads: no engine of functions (decision 0010), and nothing that it has no use for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx2

from answers import until_ready

LOADED: Final = """
import json, pkgutil, sys
from importlib import import_module
import muniment.service
for module in pkgutil.walk_packages(muniment.service.__path__, "muniment.service."):
    import_module(module.name)
import_module("muniment.cli.main"), import_module("muniment.cli.serve")
print(json.dumps(sorted(sys.modules)))
"""


def test_muniment_serve_loads_neither_the_sandbox_nor_the_relayer_nor_their_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert {"muniment.cli.serve", "muniment.service.app.application", "uvicorn"} <= set(loaded)
    refused = ("muniment.guest", "muniment.relayer", "wasmtime", "eth_abi")
    assert [name for name in loaded if name.startswith(refused)] == []


SERVED: Final = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules))))
from muniment.__main__ import main
main()
"""
# What makes requests to other servers.
REQUESTS: Final = ("httpcore2", "h11", "anyio", "truststore", "muniment.outgoing.exchanges")


def loaded_by_service(data_dir: Path, **environment: str) -> list[str]:
    """The modules of a service that was ready and then stopped."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    with subprocess.Popen(
        [sys.executable, "-c", SERVED, "serve", "--port", "0", "--data-dir", str(data_dir)],
        stdout=subprocess.PIPE, text=True, env=kept | environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[3]
            with httpx2.Client(base_url=url, timeout=60) as client:
                until_ready(client)
        finally:
            process.terminate()
        return json.loads(process.stdout.read())


def of(packages: tuple[str, ...], loaded: list[str]) -> list[str]:
    return [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in packages)]


def test_a_service_with_default_settings_loads_nothing_for_what_it_does_not_do(tmp_path: Path) -> None:
    loaded = loaded_by_service(tmp_path)
    assert {"muniment.cli.serve", "muniment.service.app.application", "uvicorn"} <= set(loaded)
    unused = (
        *REQUESTS, "httpx2", "muniment.client", "muniment.cli.client", "muniment.cli.demo", "muniment.cli.webhooks",
        "asyncpg", "obstore", "opentelemetry", "difflib",
    )  # fmt: skip
    assert of(unused, loaded) == []


def test_a_service_that_asks_other_servers_is_ready_with_what_requests_need(tmp_path: Path) -> None:
    chains = tmp_path / "chains.toml"
    chains.write_text('[[chains]]\nid = 8453\nrpc_urls = ["http://127.0.0.1:9"]\n')
    loaded = loaded_by_service(tmp_path, MUNIMENT_CHAINS_FILE=str(chains))
    assert {*REQUESTS, "anyio._backends._asyncio"} <= set(loaded)


REQUESTED: Final = """
import asyncio, sys, threading
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is threading.main_thread():
            print(name)

from muniment.outgoing import Outgoing, Unreachable

async def ask():
    sys.meta_path.insert(0, Watch())
    async with Outgoing(allow_private=True) as outgoing:
        try:
            await outgoing.get("http://127.0.0.1:9/", seconds_max=60)
        except Unreachable:
            pass
    assert "httpcore2" in sys.modules

asyncio.run(ask())
"""


def test_the_first_request_to_another_server_loads_its_library_outside_the_event_loop() -> None:
    done = subprocess.run([sys.executable, "-c", REQUESTED], capture_output=True, text=True, check=True)
    assert of(REQUESTS, done.stdout.split()) == []
