"""All metrics as text, in version 0.0.4 of Prometheus' format (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from muniment.service.running.metrics.families import FAMILIES, PREFIX, Family, Kind, family_of

if TYPE_CHECKING:
    from array import array

    from muniment.service.running.metrics.values import Series, Values

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_Regions = list[tuple["array[float]", bool]]


def render(values: Values) -> bytes:
    """The metrics of all processes together. Every metric has its two comment lines, also without a series."""
    by_family: defaultdict[str, list[Series]] = defaultdict(list)
    for each in values.series():
        if (family := family_of(each.name)) is not None:
            by_family[family.name].append(each)
    regions = values.regions()
    lines: list[str] = []
    for family in FAMILIES:
        lines += (f"# HELP {PREFIX}{family.name} {family.help}", f"# TYPE {PREFIX}{family.name} {family.type}")
        for each in sorted(by_family[family.name]):
            lines += _lines(family, each, regions)
    return "\n".join([*lines, ""]).encode()


def _lines(family: Family, series: Series, regions: _Regions) -> list[str]:
    """The lines of one series; empty for a gauge that no running process has set."""
    place = series.place
    if family.kind is Kind.COUNTER:
        return [f"{PREFIX}{series.name} {_number(sum(numbers[place] for numbers, _ in regions))}"]
    if family.kind is Kind.SUM:
        total = sum(numbers[place] for numbers, is_running in regions if is_running)
        return [f"{PREFIX}{series.name} {_number(total)}"]
    if family.kind is Kind.LATEST:
        time_s, value = max((numbers[place + 1], numbers[place]) for numbers, is_running in regions if is_running)
        return [f"{PREFIX}{series.name} {_number(value)}"] if time_s else []
    return _histogram_lines(family, series, regions)


def _histogram_lines(family: Family, series: Series, regions: _Regions) -> list[str]:
    *buckets, total = (
        sum(column)
        for column in zip(*(numbers[series.place : series.place + series.width] for numbers, _ in regions), strict=True)
    )
    name, _, labels = series.name.partition("{")
    labels = labels.rstrip("}")
    before = f"{labels}," if labels else ""
    lines: list[str] = []
    count = 0.0
    for bound, size in zip((*map(_number, family.buckets), "+Inf"), buckets, strict=True):
        count += size
        lines.append(f'{PREFIX}{name}_bucket{{{before}le="{bound}"}} {_number(count)}')
    braces = f"{{{labels}}}" if labels else ""
    return [
        *lines,
        f"{PREFIX}{name}_sum{braces} {_number(total)}",
        f"{PREFIX}{name}_count{braces} {_number(count)}",
    ]


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
