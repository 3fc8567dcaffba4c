"""The files in `deploy/` match the service."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from golden import ROOT

from each_row import each_row
from muniment.service.running.environment import known_variables
from muniment.service.storage.postgres import connection

_DEPLOY = ROOT / "deploy"
_FILES = sorted(each for each in _DEPLOY.rglob("*") if each.is_file())


@each_row("file", _FILES, ids=[str(file.relative_to(_DEPLOY)) for file in _FILES])
def test_variables_that_a_file_sets_are_read(file: Path) -> None:
    named = set(re.findall(r"\bMUNIMENT_[A-Z_]+", file.read_text("utf-8")))
    assert named <= known_variables()


def test_kustomize_names_the_image_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    overlays = sorted((_DEPLOY / "kustomize" / "overlays").glob("*/kustomization.yaml"))
    assert len(overlays) == 2
    assert [re.findall(r"newTag: ([\w.]+)", each.read_text("utf-8")) for each in overlays] == [[version]] * 2


def test_a_backup_reaches_the_blocks_wherever_the_service_does() -> None:
    families = [
        re.findall(r"^RestrictAddressFamilies=(.*)$", (_DEPLOY / "systemd" / unit).read_text("utf-8"), re.MULTILINE)
        for unit in ("muniment.service", "muniment-backup.service")
    ]
    assert families[0] == families[1] == ["AF_INET AF_INET6 AF_UNIX"]  # an S3 server is reached by the internet


def test_the_role_behind_a_pooler_gets_the_limits_that_the_service_sets() -> None:
    role = dict(re.findall(r"SET (\w+) = '?(\w+)'?;", (_DEPLOY / "pgbouncer" / "role.sql").read_text("utf-8")))
    assert role == {
        "statement_timeout": f"{connection.STATEMENT_SECONDS_MAX:.0f}s",
        "lock_timeout": f"{connection.LOCK_SECONDS_MAX:.0f}s",
        "idle_in_transaction_session_timeout": f"{connection.IDLE_TRANSACTION_SECONDS_MAX:.0f}s",
        **{name: value for name, value in connection.SESSION.items() if name == "jit" or name.startswith("enable_")},
        "synchronous_commit": "on",
    }


def test_the_pooler_ignores_the_parameters_that_the_role_has() -> None:
    role = re.findall(r"SET (\w+) =", (_DEPLOY / "pgbouncer" / "role.sql").read_text("utf-8"))
    ini = (_DEPLOY / "pgbouncer" / "pgbouncer.ini").read_text("utf-8")
    (ignored,) = re.findall(r"ignore_startup_parameters = (\S+)", ini)
    # The service sets synchronous_commit by a statement, and that one reaches the server.
    assert {*ignored.split(","), "synchronous_commit"} == set(role)
