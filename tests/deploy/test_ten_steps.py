"""The ten steps of docs/run/deployment.md lead from a new Debian to a registry behind TLS with backups."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from debian import need_root
from machine import Machine
from programs import ROOT

# Caddy makes the certificate of this name itself.
SITE = "localhost"
AUTHORITY = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt"


def steps() -> dict[int, str]:
    """The lines of each numbered step that has lines."""
    page = (ROOT / "docs" / "run" / "deployment.md").read_text("utf-8")
    section = page.partition("\n## From nothing to a service\n")[2].partition("\n## ")[0]
    items = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", section, re.MULTILINE | re.DOTALL)
    blocks = {
        int(number): re.search(r"^ {3}```sh\n(.*?)^ {3}```", text, re.MULTILINE | re.DOTALL) for number, text in items
    }
    return {
        number: textwrap.dedent(block[1]).replace("registry.example.org", SITE)
        for number, block in blocks.items() if block
    }  # fmt: skip


def relayer_lines() -> tuple[str, str]:
    """The line that installs the extra, and those that start the relayer."""
    page = (ROOT / "docs" / "run" / "deployment.md").read_text("utf-8")
    block = re.search(r"^### A relayer beside it\n.*?^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert block
    install, _, others = block[1].partition("\n")
    return install, others


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine after the installation, which needs the Internet."""
    need_root("mmdebstrap", "systemd-nspawn")
    made = Machine(tmp_path_factory.mktemp("machine") / "debian")
    for number in (2, 3):
        made.prepare(steps()[number])
    made.prepare(relayer_lines()[0])
    with made:
        yield made


@pytest.fixture(scope="module")
def served(machine: Machine) -> Machine:
    """The machine after step 7, with Caddy's authority among those that its programs trust."""
    for number in (4, 5):
        machine.run(steps()[number])
    assert machine.run(steps()[6]) == '{"status":"ok"}'
    *start, ask = steps()[7].splitlines()
    assert ask.startswith("curl ")
    machine.run("\n".join(start))
    machine.run(f"timeout 30 sh -c 'until test -s {AUTHORITY}; do sleep 0.1; done'")
    machine.run(f"cp {AUTHORITY} /usr/local/share/ca-certificates/caddy.crt && update-ca-certificates")
    assert machine.run(ask) == '{"status":"ok"}'
    return machine


@pytest.fixture(scope="module")
def used(served: Machine) -> Machine:
    """The machine after a client's work through Caddy, which includes an upload of 16 MiB."""
    client = (sys.executable, Path(__file__).with_name("one_client.py"))
    authority = served.folder / AUTHORITY.lstrip("/")
    done = served.reach(*client, f"https://{SITE}", authority, PYTHONPATH=str(ROOT / "tests" / "support"))
    assert done.returncode == 0, done.stderr
    return served


def shown(machine: Machine, unit: str, name: str) -> str:
    """A property of a unit (systemctl(1), "show")."""
    return machine.run(f"systemctl show --property={name} --value {unit}").strip()


def test_the_readme_has_the_lines_of_steps_2_to_9() -> None:
    assert set(range(2, 10)) <= set(steps())


def test_the_largest_upload_and_a_trigger_pass_through_caddy(used: Machine) -> None:
    assert used.run(f"curl --silent 'https://{SITE}/triggers' | grep --count '\"sig\"'") == "1\n"


def test_caddy_hides_the_metrics(served: Machine) -> None:
    answer = served.run(f"curl --silent --output /dev/null --write-out '%{{http_code}}' https://{SITE}/metrics")
    assert answer == "404"


def test_the_running_processes_have_no_right(served: Machine) -> None:
    pid = shown(served, "muniment", "MainPID")
    status = served.run(f"cat /proc/{pid}/status")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert facts["Uid"].split()[0] != "0"
    assert (int(facts["CapEff"], 16), facts["NoNewPrivs"], facts["Seccomp"]) == (0, "1", "2")
    assert served.run("stat --format=%a /var/lib/private /var/lib/private/muniment") == "700\n700\n"


def test_a_backup_is_restored_and_verified(used: Machine) -> None:
    used.run(steps()[8])
    assert shown(used, "muniment-backup", "Result") == "success"
    said = used.run(steps()[9])
    assert "triggers: 1 checked" in said
    assert "all signatures and hashes match" in said


def test_the_timer_makes_a_backup(used: Machine) -> None:
    """Every second in place of every night."""
    used.run(
        "systemctl stop muniment-backup.timer; rm -r /var/lib/private/muniment-backup;"
        " mkdir -p /run/systemd/system/muniment-backup.timer.d;"
        " printf '[Timer]\\nOnCalendar=\\nOnCalendar=*:*:*\\nRandomizedDelaySec=0\\nAccuracySec=1ms\\n'"
        " > /run/systemd/system/muniment-backup.timer.d/test.conf; systemctl daemon-reload;"
        " systemctl start muniment-backup.timer;"
        " timeout 60 sh -c 'until test -e /var/lib/muniment-backup/backup.json; do sleep 0.1; done'"
    )  # fmt: skip
    used.run("rm -r /run/systemd/system/muniment-backup.timer.d; systemctl daemon-reload")
    used.run("systemctl restart muniment-backup.timer")


def test_a_command_works_with_the_rights_of_the_service(served: Machine) -> None:
    served.run("muniment operators add relayer")
    assert "relayer" in served.run("muniment operators list")
    assert served.run("find /var/lib/private/muniment ! -user $(stat --format=%u /var/lib/private/muniment)") == ""
    assert served.run("stat --format=%a /var/lib/private/muniment") == "700\n"


def test_the_doctor_finds_no_fault(used: Machine) -> None:
    used.run(steps()[8])
    words = f"muniment doctor --json --url https://{SITE} --backup /var/lib/muniment-backup"
    report = json.loads(used.run(words, status=2))
    faults = {each["check"]: each["message"] for each in report["findings"] if each["level"] != "ok"}
    # A certificate of Caddy's own authority is good for twelve hours.
    assert faults == {"TLS": "the certificate is good for 0 days"}


def test_a_relayer_runs_a_function_with_the_rights_of_its_unit(used: Machine) -> None:
    used.run(relayer_lines()[1])
    client = (sys.executable, Path(__file__).with_name("one_run.py"))
    done = used.reach(*client, "http://127.0.0.1:8787", PYTHONPATH=str(ROOT / "tests" / "support"))
    log = used.run("journalctl --unit=muniment-relayer --no-pager")
    assert done.returncode == 0, done.stderr + log
    assert "sandbox_incomplete" not in log
    pid = shown(used, "muniment-relayer", "MainPID")
    status = used.run(f"cat /proc/{pid}/status")
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert facts["Uid"].split()[0] not in {"0", shown(used, "muniment", "UID")}
    assert (int(facts["CapEff"], 16), facts["NoNewPrivs"], facts["Seccomp"]) == (0, "1", "2")
    used.run("systemctl stop muniment-relayer")
    assert (shown(used, "muniment-relayer", "Result"), shown(used, "muniment-relayer", "ExecMainStatus")) == (
        "success", "0",
    )  # fmt: skip


def test_secrets_may_be_kept_outside_of_the_data_directory(used: Machine) -> None:
    used.run(
        "mkdir -p /etc/systemd/system/muniment.service.d; umask 077;"
        " mv /var/lib/private/muniment/secrets /etc/muniment/secret;"
        " cp deploy/systemd/secret.conf /etc/systemd/system/muniment.service.d/;"
        " systemctl daemon-reload; systemctl restart muniment"
    )  # fmt: skip
    assert used.run(steps()[6]) == '{"status":"ok"}'
    used.run("test ! -e /var/lib/private/muniment/secrets; systemctl start muniment-backup")
    report = json.loads(used.run("muniment doctor --json"))
    assert [each["level"] for each in report["findings"] if each["check"] == "secrets"] == ["ok"]


def test_a_service_that_is_stopped_ends_with_status_0(used: Machine) -> None:
    used.run("systemctl stop muniment")
    assert (shown(used, "muniment", "Result"), shown(used, "muniment", "ExecMainStatus")) == ("success", "0")
    used.run("systemctl start muniment")
    assert used.run(steps()[6]) == '{"status":"ok"}'
    assert used.run(f"curl --silent --retry 10 --retry-all-errors 'https://{SITE}/triggers' | grep -c sig") == "1\n"
