"""The metrics of a relayer, in the text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import structlog

_PREFIX: Final = "muniment_relayer_"
# Each metric: its type, its help, and its one label or none.
_FAMILIES: Final[dict[str, tuple[str, str, str]]] = {
    "triggers": ("gauge", "Active triggers that this relayer serves.", ""),
    "runs_waiting": ("gauge", "Runs that are due and have not ended.", ""),
    "runs_unpublished": ("gauge", "Runs in the journal that the registry does not have yet.", ""),
    "clocks_agree": ("gauge", "1 while this machine and the registry agree on the time; nothing runs at 0.", ""),
    "lateness_seconds": ("gauge", "From the time of the last published run to its publication.", ""),
    "runs_total": ("counter", "Runs by result.", "result"),
    "intents_total": ("counter", "Intents by outcome: written or refused.", "outcome"),
    "failures_total": ("counter", "Failures by kind: registry, incomplete, internal, refused, funds.", "kind"),
}


_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Figures:
    """Numbers that a relayer counts and shows. Names are those of `_FAMILIES`."""

    _values: dict[str, dict[str, float]] = field(
        default_factory=lambda: defaultdict[str, dict[str, float]](lambda: defaultdict(float)), init=False
    )

    def add(self, name: str, label: str = "", count: float = 1) -> None:
        """Count `count` more of a counter."""
        assert _FAMILIES[name][0] == "counter"  # noqa: S101 - the caller's mistake
        self._values[name][label] += count

    def show(self, name: str, value: float) -> None:
        """Set a gauge."""
        assert _FAMILIES[name][0] == "gauge"  # noqa: S101 - the caller's mistake
        self._values[name][""] = value

    def fail(self, kind: str, what: str, error: Exception, **facts: object) -> None:
        """Count a failure of a kind, and log it."""
        self.add("failures_total", kind)
        _log.error(what, error=type(error).__name__, reason=str(error), **facts)

    def text(self) -> str:
        """All metrics. Source: Prometheus, "Exposition formats"."""
        lines: list[str] = []
        for name, (kind, what, label) in _FAMILIES.items():
            lines += [f"# HELP {_PREFIX}{name} {what}", f"# TYPE {_PREFIX}{name} {kind}"]
            lines += [
                f'{_PREFIX}{name}{{{label}="{each}"}} {value:g}' if label else f"{_PREFIX}{name} {value:g}"
                for each, value in sorted(self._values[name].items())
            ]
        return "\n".join(lines) + "\n"
