"""The rules and the configuration of Prometheus: promtool reads them, and each alert fires when it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from alert_cases import CASES, MACHINE, OF_CHAINS, WATCHERS, Case
from programs import DEPLOY, installed, run

MONITORING: Final = DEPLOY / "monitoring"
RULES: Final = MONITORING / "alerts.yml"
BY_NAME: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}

# The labels of a case's series that its alert does not have.
SUMMED: Final = {"MunimentOverloaded": ["code"], **{case.alert: ["instance"] for case in OF_CHAINS}}


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
    all_of_them = {alert: expected if alert == case.alert else [] for alert in BY_NAME}
    check_rules(tmp_path, case.series(is_firing=is_firing), case.minute, all_of_them)


@pytest.mark.parametrize("watcher", WATCHERS)
@pytest.mark.parametrize("case", OF_CHAINS, ids=[case.alert for case in OF_CHAINS])
def test_each_alert_about_chains_fires_from_a_watcher_that_has_stopped(
    case: Case, watcher: str, tmp_path: Path
) -> None:
    """One that hangs is still there, so `MunimentWatcherGone` is silent; the others tell that it does nothing."""
    is_firing = {"its target is down": True, "it hangs": case.alert != "MunimentWatcherGone", "it goes on": False}
    expected = [_expected(case, job="muniment-watcher")] if is_firing[watcher] else []
    check_rules(tmp_path, WATCHERS[watcher], 40, {case.alert: expected})


def check_rules(folder: Path, series: list[dict[str, str]], minute: int, expected: dict[str, list[Any]]) -> None:
    """Exactly the alerts `expected` fire in that minute; alerts that it does not name are not looked at."""
    file = folder / "cases.yml"
    file.write_text(yaml.safe_dump({
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": [
                {"alertname": alert, "eval_time": f"{minute}m", "exp_alerts": alerts}
                for alert, alerts in expected.items()
            ],
        }],
    }))  # fmt: skip
    done = run(installed("promtool"), "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def _expected(case: Case, **others: str) -> dict[str, Any]:
    """The alert; `others` take the place of labels of the machine."""
    rule = BY_NAME[case.alert]
    labels = {**dict(re.findall(r'(\w+)="([^"]*)"', f"{MACHINE}, {case.labels}")), **others}
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
