"""The check of the sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from breaking import breaks
from muniment.guest import children
from muniment.guest.confinement import Confinement
from muniment.operate.doctor import sandbox
from muniment.operate.doctor.findings import Examined, Level
from muniment.service.running.settings import Settings

WHOLE = Confinement(memory=True, no_new_privs=True, landlock=7, seccomp=True)


@pytest.fixture
def examined(tmp_path: Path) -> Examined:
    return Examined(replace(Settings(), data_dir=tmp_path))


@pytest.mark.programs
def test_a_system_that_confines_functions_has_no_fault(examined: Examined) -> None:
    finding = asyncio.run(sandbox.check_sandbox(examined))
    assert finding.level is Level.OK
    assert finding.message.startswith("functions run confined: seccomp, Landlock ")


@breaks("sandbox")
def test_what_the_system_lacks_is_named() -> None:
    for lacking, words in (
        (changed(WHOLE, landlock=0), "without Landlock"),
        (changed(WHOLE, seccomp=False), "without seccomp"),
        (Confinement(memory=True), "without no_new_privs, Landlock, seccomp"),
    ):
        finding = sandbox.judge_confinement(lacking)
        assert (finding.level, finding.message) == (Level.WARN, f"a function runs {words}")


def test_an_installation_that_runs_no_functions_has_no_fault(
    examined: Examined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_LIBRARIES", ("a_library_that_is_not_there",))
    finding = asyncio.run(sandbox.check_sandbox(examined))
    assert (finding.level, "not installed: " in finding.message) == (Level.OK, True)


@breaks("sandbox")
def test_a_process_that_does_not_start_is_a_fault(examined: Examined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    finding = asyncio.run(sandbox.check_sandbox(examined))
    assert finding.level is Level.FAIL
    assert "muniment.guest.launcher" in finding.message
