"""The blocking client, `muniment/client/sync.py`, generated from the one for asyncio, `muniment/client/aio.py`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

_CLIENT: Final = Path(__file__).parents[2] / "src" / "muniment" / "client"
SYNC: Final = _CLIENT / "sync.py"
# A line that ends with this mark, and all lines after one that is only this mark, have no blocking twin.
_ASYNC_ONLY: Final = "# async only"
_DOCSTRING: Final = '"""The blocking client. Do not edit: `make golden` generates it from `muniment.client.aio`."""'
_REPLACED: Final = (
    (r'(?s)\A""".*?"""', _DOCSTRING),
    (r"(?s)\n\n    # async only\n.*", "\n"),
    (rf".*{_ASYNC_ONLY}\n", ""),
    (r"await asyncio\.to_thread\(([\w.]+), (.+)\)(?=\n)", r"\1(\2)"),
    (r"for record in page:\s+yield record", "yield from page"),
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    ("awaitable calls", "blocking calls"),
    ("`async with`", "`with`"),
    ("__a(?=enter|exit|iter)", "__"),
    (r"\baclose\b", "close"),
    (r"\bAwaiting\b", "Blocking"),
    (r"\bAsync(?=[A-Z])", ""),
)


def sync_text() -> str:
    """The text of the blocking client, formatted."""
    text = (_CLIENT / "aio.py").read_text("utf-8")
    for pattern, replacement in _REPLACED:
        text = re.sub(pattern, replacement, text)
    return _ruff(_ruff(text, "check", "--fix", "--select", "I"), "format")


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--quiet", "--stdin-filename", str(SYNC), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
