"""Metrics, read by the parser of Prometheus' client."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from muniment.service.running.metrics.families import PREFIX


class Scraped:
    """The samples of one answer of GET /metrics."""

    def __init__(self, text: str) -> None:
        self.families = {each.name: each for each in text_string_to_metric_families(text)}
        self.samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }
        self.lines = text.splitlines()

    def value(self, name: str, **labels: str) -> float | None:
        """Value of a sample, or None; `name` without the prefix."""
        return self.samples.get((PREFIX + name, frozenset(labels.items())))

    def labels(self, name: str, label: str) -> set[str]:
        """Every value of a label in the samples of a name."""
        return {dict(labels)[label] for found, labels in self.samples if found == PREFIX + name}
