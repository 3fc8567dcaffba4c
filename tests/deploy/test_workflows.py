"""The workflows can be run, and give nobody a right that they do not need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import ROOT, installed, packaged, run

WORKFLOWS = ROOT / ".github" / "workflows"
USED = re.findall(r"uses: (\S+)", "".join(each.read_text("utf-8") for each in WORKFLOWS.glob("*.yml")))


def jobs_of(workflow: str) -> dict[str, Any]:
    return yaml.safe_load((WORKFLOWS / workflow).read_text("utf-8"))["jobs"]


def targets_of(job: dict[str, Any]) -> list[str]:
    """What a job makes with `make`."""
    made = re.findall(r"\bmake (.+)", "\n".join(step.get("run", "") for step in job["steps"]))
    return [word for words in made for word in words.split() if re.fullmatch(r"[a-z][a-z-]*", word)]


def test_an_audit_finds_no_weakness() -> None:
    done = run(packaged("zizmor"), "--offline", "--pedantic", "--no-progress", WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_the_syntax_has_no_fault() -> None:
    done = run(installed("actionlint"), *sorted(WORKFLOWS.glob("*.yml")))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """The workflow that docs/use/notebooks.md prints, where GitHub reads workflows."""
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "use" / "notebooks.md").read_text("utf-8"), re.DOTALL)
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "deploy.yml").write_text(text)
    return folder


def test_an_audit_finds_no_weakness_in_the_printed_workflow(printed: Path) -> None:
    done = run(packaged("zizmor"), "--offline", "--pedantic", "--no-progress", printed)
    assert done.returncode == 0, done.stdout


def test_the_syntax_of_the_printed_workflow_has_no_fault(printed: Path) -> None:
    done = run(installed("actionlint"), printed / "deploy.yml")
    assert (done.returncode, done.stdout) == (0, "")


def test_every_action_is_named_by_a_commit() -> None:
    assert len(USED) > 5
    assert [each for each in USED if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_an_action_has_one_commit_in_all_workflows() -> None:
    assert len({each.split("@")[0] for each in USED}) == len(set(USED))


@pytest.mark.parametrize("workflow", sorted(each.name for each in WORKFLOWS.glob("*.yml")))
def test_the_makefile_has_every_target_that_a_job_makes(workflow: str) -> None:
    there = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    made = {target for job in jobs_of(workflow).values() for target in targets_of(job)}
    assert made
    assert made - there == set()


def test_a_change_is_checked_and_tested_and_a_night_runs_the_long_tests() -> None:
    assert {name: targets_of(job) for name, job in jobs_of("ci.yml").items()} == {
        "check": ["check", "types-of-tests", "docs"], "test": ["test"], "long": ["test-long"],
    }  # fmt: skip


def test_a_change_is_tested_on_every_python_that_the_package_supports() -> None:
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    [(first, end)] = re.findall(r"^>=3\.(\d+),<3\.(\d+)$", bounds)
    supported = [f"3.{minor}" for minor in range(int(first), int(end))]
    assert jobs_of("ci.yml")["test"]["strategy"]["matrix"]["python"] == supported
