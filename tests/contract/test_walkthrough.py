"""The shell walks of the documentation work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from service import Service

ROOT = Path(__file__).parents[2]


def _walked(page: str, service: Service, **said: str) -> str:
    """Output of the walk of a page, with `said` in place of its assignments."""
    found = re.search(r"<!-- walk -->\n```sh\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    script = found[1].replace(".venv/bin/python", sys.executable)
    for name, value in {"URL": service.url, **said}.items():
        script, count = re.subn(rf"^{name}=\S+", f"{name}={value}", script, count=1, flags=re.MULTILINE)
        assert count == 1, f"the walk has no line for {name}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    walked = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert walked.returncode == 0, walked.stderr
    return walked.stdout


def test_the_walk_of_the_readme_ends_with_no_active_trigger(service: Service) -> None:
    function, preview, created, listed = map(json.loads, _walked("README.md", service).splitlines())
    assert function["name"] == "Transfer"
    assert preview["summary"][0].startswith(f"Function {function['CID']} may run in your name")
    assert created["description"] == "Every six hours"
    assert listed == created


def test_the_walk_with_curl_ends_with_no_active_trigger(service: Service) -> None:
    printed = _walked("docs/use/api.md", service)
    assert "# The trigger, registered\n{" in printed
    assert '"description":"Every six hours"' in printed
    assert printed.endswith("[]"), printed


def test_the_walk_for_relayers_ends_with_a_submitted_intent(service: Service, tmp_path: Path) -> None:
    added = subprocess.run(
        [sys.executable, "-m", "muniment", "operators", "add", "relayer-1", "--data-dir", str(tmp_path / "data")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    printed = _walked("docs/use/relaying.md", service, OPERATOR_KEY=added.stdout.strip())
    assert "# The proposal\n{" in printed
    (intent,) = json.loads(printed[printed.rindex('[{"op"') :])
    assert intent["status"] == "submitted"
    assert [each["status"] for each in intent["proposals"]] == ["received"]
    assert [each["id"] for each in intent["logs"]] == ["relayer-1/7"]
