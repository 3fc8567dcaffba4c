"""The code of docs/use/notebooks.md, run as it is printed: with pandas, and as a job in CI runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

import warm
from answers import ok
from builders import Bundle, TriggerDraft, Wallet, deploy, register
from intent_bodies import intent_body, operations_body
from muniment.client import Registry, rows
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.types import AnyNewIntent
from service import Service

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "notebooks.md").read_text("utf-8")
FRAME, MIRROR = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[WORKFLOW] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
PRINTED_URL = "http://127.0.0.1:8787"
UV = Path(sys.executable).parent / "uv"
# Only this test uses it, so it is no dependency of the development.
LIBRARY = "pandas==3.1.1"
UINT256_MAX = str(2**256 - 1)
OWNER, OTHER = Wallet(9), Wallet(10)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the client and pandas."""
    folder = tmp_path_factory.mktemp("notebook") / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--python", folder / "bin/python", ROOT, LIBRARY], check=True)
    return folder / "bin" / "python"


def run(
    program: str, folder: Path, python: Path | None = None, *, given: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the page, by this Python or another one."""
    if python is None:
        return warm.run(program=["-c", program], directory=folder, environment=given)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MUNIMENT_")}
    return subprocess.run(
        [python, "-c", program],
        cwd=folder, env={**kept, **(given or {})}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


async def owned(url: str) -> None:
    """Two triggers of one owner and one of another, which has the largest fee that there is."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        cid = await deploy(client)
        for draft in (
            TriggerDraft(cid, OWNER),
            TriggerDraft(cid, OWNER, version="2.0.0"),
            TriggerDraft(cid, OTHER, fee_limit=UINT256_MAX),
        ):
            await register(client, draft)


async def test_rows_are_flat_and_amounts_stay_texts(service: Service) -> None:
    await owned(service.url)
    with Registry(service.url) as registry:
        listed = rows(registry.triggers.list())
    assert [each["signer"] for each in listed] == [OWNER.address, OWNER.address, OTHER.address]
    assert [each["executionFeeLimit"] for each in listed] == ["0", "0", UINT256_MAX]
    assert (listed[0]["config.type"], listed[0]["config.schedule"]) == (0, "0 */6 * * *")
    assert json.loads(listed[0]["types.Config"])[0] == {"name": "type", "type": "uint8"}
    assert not [value for each in listed for value in each.values() if isinstance(value, dict | list)]


@pytest.mark.long
async def test_a_data_frame_has_exact_amounts(service: Service, tmp_path: Path, notebook: Path) -> None:
    await owned(service.url)
    done = run(FRAME.replace(PRINTED_URL, service.url), tmp_path, notebook)
    assert (done.returncode, done.stderr) == (0, "")
    head, *counted, largest = done.stdout.splitlines()
    assert (head.strip(), largest) == ("signer", UINT256_MAX)
    assert [line.split() for line in counted] == sorted([[OWNER.address, "2"], [OTHER.address, "1"]])


def test_a_mirror_goes_on_where_it_ended(service: Service, tmp_path: Path) -> None:
    mirror = MIRROR.replace(PRINTED_URL, service.url)
    made: list[str] = []
    with Registry(service.url, operator_key=service.operator_key()) as registry:
        for bodies in ([intent_body(1), operations_body(2)], [intent_body(3)], []):
            made += [registry.intents.put(decode_record(body, AnyNewIntent)).hash for body in bodies]
            done = run(mirror, tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            lines = (tmp_path / "intents.ndjson").read_text().splitlines()
            assert [json.loads(line)["hash"] for line in lines] == made


def deploying_step() -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(WORKFLOW)
    assert workflow["permissions"] == {}
    [step] = [each for each in workflow["jobs"]["deploy"]["steps"] if each.get("shell") == "python"]
    return step


def test_the_job_deploys_what_was_reviewed_and_nothing_else(service: Service, tmp_path: Path) -> None:
    step, bundle = deploying_step(), Bundle()
    assert step["env"]["MUNIMENT_PRIVATE_KEY"] == "${{ secrets.DEPLOY_KEY }}"
    given = {"MUNIMENT_PRIVATE_KEY": OWNER.key.hex(), "REGISTRY_URL": service.url}
    assert {*given} == {*step["env"]}
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "manifest.json").write_bytes(bundle.manifest)
    (tmp_path / "build" / "function.wasm").write_bytes(bundle.wasm)
    [printed] = re.findall(r"```sh\npython -c '(.*?)'\n```", PAGE)
    first, second = run(printed, tmp_path).stdout.split()

    (tmp_path / "function.cid").write_text("QmV2xSyG76zpH98n3aZfr4FVMwC64nbKnQ13vEjyHidmMZ\n")
    refused = run(step["run"], tmp_path, given=given)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"the build is {first} or {second}, and function.cid says QmV2xSyG")
    assert ok(httpx2.get(f"{service.url}/functions")).json() == []

    (tmp_path / "function.cid").write_text(first + "\n")
    done = run(step["run"], tmp_path, given=given)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"deployed {first}"
    [function] = ok(httpx2.get(f"{service.url}/functions")).json()
    assert (function["CID"], function["creator"]) == (first, OWNER.address)
