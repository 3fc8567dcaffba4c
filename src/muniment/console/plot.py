"""Plots as inline SVG: presentation attributes and classes, which a page without inline styles may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.console.times import absolute
from muniment.http.html.markup import Html, html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Units of the drawing, which scales to the width of the page.
_WIDTH: Final = 1200
_HEIGHT: Final = 190
_LEFT: Final = 40
_FOOT: Final = 24
_HEAD: Final = 12
# A label of the time below every so many bars.
_LABELLED: Final = 6


class Bar(NamedTuple):
    """One bar: its time in milliseconds since 1970, and counts in the order in which they are stacked."""

    at_ms: int
    counts: Mapping[str, int]


def bars(columns: Sequence[Bar], kinds: Sequence[str], *, label: str) -> Html:
    """Stacked bars over time, a colour for each of `kinds`; each bar says its numbers as its title."""
    highest = max((sum(each.counts.values()) for each in columns), default=0)
    scale = (_HEIGHT - _HEAD - _FOOT) / max(highest, 1)
    step = (_WIDTH - _LEFT) / max(len(columns), 1)
    base = _HEIGHT - _FOOT
    drawn = [_bar(each, kinds, _LEFT + number * step, step * 0.86, scale) for number, each in enumerate(columns)]
    labels = [
        html('<text x="{}" y="{}">{}</text>', f"{_LEFT + number * step:.0f}", _HEIGHT - 6, absolute(each.at_ms)[11:16])
        for number, each in enumerate(columns)
        if number % _LABELLED == 0
    ]
    return html(
        '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<line x1="{}" x2="{}" y1="{}" y2="{}"/><line x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<text x="0" y="{}">{}</text><text x="0" y="{}">0</text>{}{}</svg>',
        _WIDTH, _HEIGHT, label,
        _LEFT, _WIDTH, _HEAD, _HEAD, _LEFT, _WIDTH, base, base,
        _HEAD + 4, f"{highest:,}", base + 4, drawn, labels,
    )  # fmt: skip


def _bar(bar: Bar, kinds: Sequence[str], x: float, width: float, scale: float) -> Html:
    top = float(_HEIGHT - _FOOT)
    pieces: list[Html] = []
    for kind in kinds:
        height = bar.counts.get(kind, 0) * scale
        if height:
            top -= height
            pieces.append(html(
                '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
                kind, f"{x:.1f}", f"{top:.1f}", f"{width:.1f}", f"{height:.1f}",
            ))  # fmt: skip
    words = ", ".join(f"{bar.counts[kind]} {kind}" for kind in kinds if bar.counts.get(kind))
    return html("<g><title>{} UTC: {}</title>{}</g>", absolute(bar.at_ms)[11:16], words or "none", pieces)
