"""What a relayer logs about its sandbox."""

from __future__ import annotations

from structlog.testing import capture_logs

from muniment.cli.relayer import warn_of_missing
from muniment.guest.confinement import Confinement


def test_a_relayer_logs_what_its_system_does_not_confine_functions_by() -> None:
    with capture_logs() as lines:
        warn_of_missing(Confinement(memory=True, no_new_privs=True, landlock=0, seccomp=False))
    assert lines == [{"event": "sandbox_incomplete", "missing": "Landlock, seccomp", "log_level": "warning"}]


def test_a_relayer_on_a_system_that_has_everything_logs_nothing_of_it() -> None:
    with capture_logs() as lines:
        warn_of_missing(Confinement(memory=True, no_new_privs=True, landlock=1, seccomp=True))
    assert lines == []
