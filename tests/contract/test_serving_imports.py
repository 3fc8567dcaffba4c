"""What the serving process loads: it compiles and runs no function (decision 0010)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

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
