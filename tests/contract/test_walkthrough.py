"""The README's walk with curl works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from service import Service

ROOT = Path(__file__).parents[2]


def test_the_walk_of_the_readme_ends_with_no_active_trigger(service: Service) -> None:
    found = re.search(r"<!-- walk -->\n```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    script = re.sub(r"URL=\S+", f"URL={service.url}", found[1], count=1).replace(".venv/bin/python", sys.executable)
    walked = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert walked.returncode == 0, walked.stderr
    assert '"description":"Every six hours"' in walked.stdout
    assert walked.stdout.endswith("[]"), walked.stdout
