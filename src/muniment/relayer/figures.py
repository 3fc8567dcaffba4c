"""The metrics of a relayer, in the text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "muniment_relayer_"
# Each metric: its type, its help, and its labels.
_FAMILIES: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "triggers": ("gauge", "Active triggers that this relayer serves.", ()),
    "runs_waiting": ("gauge", "Runs that are due and have not ended.", ()),
    "runs_unpublished": ("gauge", "Runs in the journal that the registry does not have yet.", ()),
    "clocks_agree": ("gauge", "1 while this machine and the registry agree on the time; nothing runs at 0.", ()),
    "lateness_seconds": ("gauge", "From the time of the last published run to its publication.", ()),
    "runs_total": ("counter", "Runs by result.", ("result",)),
    "intents_total": ("counter", "Intents by outcome: written or refused.", ("outcome",)),
    "failures_total": ("counter", "Failures by kind: registry, incomplete, internal, refused, funds.", ("kind",)),
    "late_events_total": ("counter", "Events that only the second cursor found.", ()),
    "head_block": ("gauge", "The head of a chain, as nodes have it.", ("chain",)),
    "next_block": ("gauge", "The next block to read, by chain and lane.", ("chain", "lane")),
    "seconds_behind": ("gauge", "Seconds since nothing was left to read, by chain and lane.", ("chain", "lane")),
    "disputed_logs": ("gauge", "Logs that nodes do not agree on, and that wait.", ("chain",)),
    "busy_contracts": ("gauge", "Contracts with first topics that are too busy to be read now.", ("chain",)),
    "node_failures": ("gauge", "Failures of nodes since the start, by chain and kind.", ("chain", "kind")),
}


_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Figures:
    """Numbers that a relayer counts and shows. Names are those of `_FAMILIES`."""

    _values: dict[str, dict[tuple[str, ...], float]] = field(
        default_factory=lambda: defaultdict[str, dict[tuple[str, ...], float]](lambda: defaultdict(float)), init=False
    )

    def add(self, name: str, *labels: str, count: float = 1) -> None:
        """Count `count` more of a counter."""
        assert _FAMILIES[name][0] == "counter"  # noqa: S101 - the caller's mistake
        self._values[name][labels] += count

    def show(self, name: str, value: float) -> None:
        """Set a gauge."""
        assert _FAMILIES[name][0] == "gauge"  # noqa: S101 - the caller's mistake
        self._values[name] = {(): value}

    def show_each(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a gauge for each value of its labels; the others go."""
        assert _FAMILIES[name][0] == "gauge"  # noqa: S101 - the caller's mistake
        self._values[name] = dict(values)

    def fail(self, kind: str, what: str, error: Exception, **facts: object) -> None:
        """Count a failure of a kind, and log it."""
        self.add("failures_total", kind)
        _log.error(what, error=type(error).__name__, reason=str(error), **facts)

    def text(self) -> str:
        """All metrics. Source: Prometheus, "Exposition formats"."""
        lines: list[str] = []
        for name, (kind, what, labels) in _FAMILIES.items():
            lines += [f"# HELP {_PREFIX}{name} {what}", f"# TYPE {_PREFIX}{name} {kind}"]
            for values, number in sorted(self._values[name].items()):
                pairs = ",".join(f'{label}="{value}"' for label, value in zip(labels, values, strict=True))
                lines.append(f"{_PREFIX}{name}{{{pairs}}} {number:.15g}" if pairs else f"{_PREFIX}{name} {number:.15g}")
        return "\n".join(lines) + "\n"
