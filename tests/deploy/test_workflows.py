"""The workflow of a release can be run, and gives nobody a right that it does not need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import ROOT, installed, packaged, run

WORKFLOWS = ROOT / ".github" / "workflows"


def test_an_audit_finds_no_weakness() -> None:
    done = run(packaged("zizmor"), "--offline", "--pedantic", "--no-progress", WORKFLOWS)
    assert done.returncode == 0, done.stdout


def test_the_syntax_has_no_fault() -> None:
    done = run(installed("actionlint"), *sorted(WORKFLOWS.glob("*.yml")))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """The workflow that docs/notebooks.md prints, where GitHub reads workflows."""
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "notebooks.md").read_text("utf-8"), re.DOTALL)
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
    uses = re.findall(r"uses: (\S+)", "".join(each.read_text("utf-8") for each in WORKFLOWS.glob("*.yml")))
    assert len(uses) > 5
    assert [each for each in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []
