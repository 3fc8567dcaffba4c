"""The units are ones that systemd takes, and it counts little that they may do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import DEPLOY, installed, run

UNITS = sorted((DEPLOY / "systemd").glob("muniment*.*"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
# In tenths. systemd calls less than 20 "OK"; a service without any restriction has 96.
EXPOSURE_MAX = 15


def copied(unit: Path, folder: Path) -> Path:
    """The unit with a program that exists on every machine: systemd checks that it does."""
    copy = folder / unit.name
    copy.write_text(unit.read_text("utf-8").replace("/opt/muniment/bin/muniment", "/bin/true"))
    return copy


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    return [copied(unit, tmp_path) for unit in UNITS]


def test_systemd_finds_no_fault_in_the_units(copies: list[Path]) -> None:
    assert len(copies) == 6
    done = run(installed("systemd-analyze"), "verify", "--man=no", *copies)
    faults = [line for line in done.stderr.splitlines() if "muniment" in line]
    assert (done.returncode, faults) == (0, [])


def test_an_unknown_directive_is_a_fault(copies: list[Path]) -> None:
    unit = next(copy for copy in copies if copy.name == "muniment.service")
    unit.write_text(unit.read_text("utf-8").replace("RemoveIPC", "RemoveICP"))
    done = run(installed("systemd-analyze"), "verify", "--man=no", *copies)
    assert "'RemoveICP'" in done.stderr


@pytest.mark.parametrize("unit", SERVICES, ids=[unit.stem for unit in SERVICES])
def test_a_unit_may_do_little(unit: Path) -> None:
    words = ("security", "--offline=yes", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit)
    done = run(installed("systemd-analyze"), *words)
    assert done.returncode == 0, done.stdout


def user_of(name: str) -> str:
    lines = (DEPLOY / "systemd" / f"{name}.service").read_text("utf-8").splitlines()
    (user,) = [line.removeprefix("User=") for line in lines if line.startswith("User=")]
    return user


def test_the_backup_runs_as_the_user_of_the_service_and_what_is_beside_a_registry_does_not() -> None:
    users = {unit.stem: user_of(unit.stem) for unit in SERVICES}
    assert users == {
        "muniment": "muniment", "muniment@": "muniment", "muniment-backup": "muniment",
        "muniment-relayer": "muniment-relayer", "muniment-pins": "muniment-pins",
    }  # fmt: skip


def values(unit: Path, name: str, instance: int = 0) -> list[str]:
    """The values of a directive, of an instance."""
    lines = unit.read_text("utf-8").replace("%i", str(instance)).splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


def test_each_of_several_services_has_a_directory_and_a_port_of_its_own_and_all_have_one_secret() -> None:
    unit, ports = DEPLOY / "systemd" / "muniment@.service", set[str]()
    for instance in range(1, 10):
        (directory,) = values(unit, "StateDirectory", instance)
        (command,) = values(unit, "ExecStart", instance)
        *_, serve, data_dir_option, data_dir, port_option, port = command.split()
        assert (serve, data_dir_option, port_option) == ("serve", "--data-dir", "--port")
        assert data_dir == f"/var/lib/{directory}"
        assert directory.endswith(str(instance))
        assert values(unit, "LoadCredential", instance) == ["secret:/etc/muniment/secret"]
        ports.add(port)
    assert len(ports) == 9
    named = set(re.findall(r"# server 127\.0\.0\.1:([0-9]+);", (DEPLOY / "nginx" / "upstream.conf").read_text("utf-8")))
    assert named
    assert named <= ports


def test_one_of_several_services_may_do_what_the_only_one_may() -> None:
    one, several = (DEPLOY / "systemd" / f"{name}.service" for name in ("muniment", "muniment@"))
    of_its_own = ("Description", "ExecStart", "EnvironmentFile", "Environment", "LoadCredential", "StateDirectory")

    def common(unit: Path) -> list[str]:
        lines = unit.read_text("utf-8").splitlines()
        return [line for line in lines if not line.startswith("#") and line.partition("=")[0] not in of_its_own]

    assert common(one) == common(several)
