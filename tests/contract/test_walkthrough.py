"""The shell walks of the documentation work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from answers import ok
from builders import TriggerDraft, Wallet, deploy, register
from service import Service

ROOT = Path(__file__).parents[2]
OWNER = Wallet(9)
# In place of foundry's `cast wallet sign … FILE`: signs the typed data in a file as OWNER.
CAST = f"""#!{sys.executable}
import json, sys
from pathlib import Path
from muniment.protocol.evm.signature import sign
from muniment.protocol.evm.typed_data import Domain, compile_types, digest
data = json.loads(Path(sys.argv[-1]).read_text())
assert data["types"].pop("EIP712Domain") == [{{"name": each, "type": "string"}} for each in ("name", "version")]
hash_ = compile_types(data["types"], data["primaryType"]).struct_hash(data["message"])
print(sign(digest(Domain(**data["domain"]), hash_), bytes.fromhex("{OWNER.key.hex()}")))
"""


def _walked(page: str, service: Service, directory: Path = ROOT, **said: str) -> str:
    """Output of the walk of a page in a directory, whose programs it finds, with `said` in place of its assignments."""
    found = re.search(r"<!-- walk -->\n```sh\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    script = found[1].replace(".venv/bin/python", sys.executable)
    for name, value in {"URL": service.url, **said}.items():
        script, count = re.subn(rf"^{name}=\S+", f"{name}={value}", script, count=1, flags=re.MULTILINE)
        assert count == 1, f"the walk has no line for {name}"
    path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    walked = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=directory, env={**os.environ, "PATH": path}, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert walked.returncode == 0, walked.stderr
    return walked.stdout


def test_the_first_steps_end_with_no_active_trigger(service: Service) -> None:
    printed = _walked("docs/use/first-steps.md", service).splitlines()
    function, preview, created, listed, ended = map(json.loads, printed)
    assert function["name"] == "Transfer"
    assert preview["summary"][0].startswith(f"Function {function['CID']} may run in your name")
    assert created["description"] == "Every six hours"
    assert listed == created
    assert ended["triggerSigs"] == [created["sig"]]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
async def test_the_walk_for_stopping_deactivates_the_trigger(service: Service, tmp_path: Path) -> None:
    async with httpx2.AsyncClient(base_url=service.url, timeout=60) as client:
        sig = (await register(client, TriggerDraft(await deploy(client), OWNER)))["sig"]
        (tmp_path / "cast").write_text(CAST)
        (tmp_path / "cast").chmod(0o755)
        assert sig in _walked("docs/use/stop.md", service, tmp_path, SIG=sig)
        kept = json.loads((tmp_path / "deactivation.json").read_text())
        assert (kept["signer"], kept["triggerSigs"]) == (OWNER.address, [sig])
        assert ok(await client.get(f"/triggers/{sig}")).json()["deactivateSig"] == kept["signature"]


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
