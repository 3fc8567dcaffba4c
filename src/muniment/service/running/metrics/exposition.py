"""All metrics of a process, in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.service.running.metrics.families import FAMILIES, PREFIX, Family, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muniment.service.running.metrics.recorder import Histogram, Labels, Metrics

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"


def render(metrics: Metrics) -> bytes:
    """The metrics as text. Every metric has its two comment lines, also without a series."""
    lines: list[str] = []
    for family in FAMILIES:
        lines += (f"# HELP {PREFIX}{family.name} {family.help}", f"# TYPE {PREFIX}{family.name} {family.type}")
        if family.kind is Kind.HISTOGRAM:
            for labels, histogram in sorted(metrics.histograms[family.name].items()):
                lines += _histogram_lines(family, labels, histogram)
        else:
            lines += [
                f"{PREFIX}{family.name}{_braces(family, labels)} {_number(value)}"
                for labels, value in sorted(metrics.numbers(family.name).items())
            ]
    return "\n".join([*lines, ""]).encode()


def _histogram_lines(family: Family, labels: Labels, histogram: Histogram) -> Iterator[str]:
    name, count = f"{PREFIX}{family.name}", 0
    for bound, size in zip((*map(_number, family.buckets), "+Inf"), histogram.counts, strict=True):
        count += size
        yield f"{name}_bucket{_braces(family, labels, bound)} {count}"
    yield f"{name}_sum{_braces(family, labels)} {_number(histogram.sum)}"
    yield f"{name}_count{_braces(family, labels)} {count}"


def _braces(family: Family, labels: Labels, bound: str = "") -> str:
    """The labels of a series with their values, and the upper bound of its bucket if it has one; empty without any."""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(family.labels, labels, strict=True)]
    if bound:
        pairs.append(f'le="{bound}"')
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
