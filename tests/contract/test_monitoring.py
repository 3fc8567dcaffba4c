"""The dashboard and the alerts query metrics that exist, and Grafana can read the dashboard."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from golden import ROOT

from each_row import each_row
from muniment.service.running.metrics.families import FAMILIES, PREFIX, Kind

_FOLDER: Final = ROOT / "deploy" / "monitoring"
_RULES: Final = (_FOLDER / "alerts.yml").read_text("utf-8")
_DASHBOARD: Final[dict[str, Any]] = json.loads((_FOLDER / "dashboard.json").read_text("utf-8"))
_PANELS: Final[list[dict[str, Any]]] = [each for each in _DASHBOARD["panels"] if each["type"] != "row"]
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WORD: Final = re.compile(rf"\b{PREFIX}\w+")


def _series() -> set[str]:
    """Names of all series."""
    names: set[str] = set()
    for family in FAMILIES:
        ends = ("_bucket", "_sum", "_count") if family.kind is Kind.HISTOGRAM else ("",)
        names |= {f"{PREFIX}{family.name}{end}" for end in ends}
    return names


def _expressions() -> list[str]:
    return [target["expr"] for panel in _PANELS for target in panel["targets"]]


def test_every_metric_that_a_panel_asks_for_exists() -> None:
    named = set(_WORD.findall("\n".join(_expressions())))
    assert named
    assert named <= _series()


def test_every_metric_that_an_alert_names_exists() -> None:
    named = set(_WORD.findall(_RULES))
    families = {f"{PREFIX}{family.name}" for family in FAMILIES}  # a remedy names a histogram as a whole
    assert named
    assert named <= _series() | families


def test_every_metric_has_a_panel() -> None:
    shown = "\n".join(_expressions())
    assert [family.name for family in FAMILIES if not re.search(rf"\b{PREFIX}{family.name}", shown)] == []


def test_every_label_that_an_expression_asks_for_exists() -> None:
    known = {label for family in FAMILIES for label in family.labels} | {"job", "instance", "le"}
    asked: set[str] = set()
    for text in (_RULES, *_expressions()):
        for labels in re.findall(r"\bby \(([^)]*)\)", text):
            asked |= set(labels.replace(" ", "").split(","))
        asked |= set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', text))
    assert asked <= known


@each_row("panel", _PANELS, ids=[each["title"] for each in _PANELS])
def test_a_panel_has_a_unit_and_asks_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == _SOURCE
    assert [target["datasource"] for target in panel["targets"]] == [_SOURCE] * len(panel["targets"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_have_ids_and_titles_of_their_own_and_do_not_overlap() -> None:
    panels = _DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len({each["title"] for each in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (each["gridPos"] for each in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24  # the columns of Grafana's grid


def test_the_source_and_the_instances_are_variables() -> None:
    variables = {each["name"]: each for each in _DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert set(_WORD.findall(variables["instance"]["query"])) <= _series()
    assert set(re.findall(r"\$(\w+)", "\n".join(_expressions()))) == {"instance", "__rate_interval"}
