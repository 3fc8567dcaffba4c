"""The rules and the configuration of Prometheus: promtool reads them, and each alert fires when it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from alert_cases import CASES, MACHINE, Case
from programs import DEPLOY, installed, run

MONITORING: Final = DEPLOY / "monitoring"
RULES: Final = MONITORING / "alerts.yml"
BY_NAME: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}

# The labels of a case's series that its alert does not have.
SUMMED: Final = {"MunimentOverloaded": ["code"], "MunimentWatcherGone": ["instance"]}


def test_promtool_takes_the_rules() -> None:
    done = run(installed("promtool"), "check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", sorted(MONITORING.glob("prometheus*.yml")), ids=lambda file: file.name)
def test_promtool_takes_the_configuration(file: Path) -> None:
    done = run(installed("promtool"), "check", "config", "--lint-fatal", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    assert [case.alert for case in CASES] == list(BY_NAME)


@pytest.mark.parametrize("is_firing", [True, False], ids=["firing", "silent"])
@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_an_alert_fires_in_its_case_alone(case: Case, tmp_path: Path, *, is_firing: bool) -> None:
    expected = [_expected(case)] if is_firing else []
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump({
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": case.series(is_firing=is_firing),
            "alert_rule_test": [{
                "alertname": alert, "eval_time": f"{case.minute}m",
                "exp_alerts": expected if alert == case.alert else [],
            } for alert in BY_NAME],
        }],
    }))  # fmt: skip
    done = run(installed("promtool"), "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def _expected(case: Case) -> dict[str, Any]:
    rule = BY_NAME[case.alert]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', f"{MACHINE}, {case.labels}"))
    for label in SUMMED.get(case.alert, ()):
        del labels[label]
    return {
        "exp_labels": {**labels, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }


@pytest.mark.parametrize("alert", BY_NAME)
def test_an_alert_says_what_is_wrong_and_what_to_do(alert: str) -> None:
    rule = BY_NAME[alert]
    assert set(rule["annotations"]) == {"summary", "remedy", "runbook"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (DEPLOY.parent / page).read_text("utf-8"), re.MULTILINE)
    assert (alert.lower(), alert in headings) == (anchor, True)
