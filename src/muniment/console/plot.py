"""Plots as inline SVG: presentation attributes and classes, which a page without inline styles may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.console.times import absolute
from muniment.http.html.markup import Html, html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Units of the drawing, which is as wide as the page and as high as the style sheet says.
_WIDTH: Final = 1200
_HEIGHT: Final = 100
# The part of a bar's place that it fills.
_FILLED: Final = 0.86
# A label of the time below every so many bars.
_LABELLED: Final = 6


class Bar(NamedTuple):
    """One bar: its time in milliseconds since 1970, and counts in the order in which they are stacked."""

    at_ms: int
    counts: Mapping[str, int]


def bars(columns: Sequence[Bar], kinds: Sequence[str], *, label: str) -> Html:
    """Stacked bars over time, a colour for each of `kinds`; each bar says its numbers as its title.

    The drawing is stretched to its place. So the words stand outside of it, in a size that does not change.
    """
    highest = max((sum(each.counts.values()) for each in columns), default=0)
    step = _WIDTH / max(len(columns), 1)
    drawn = [_bar(each, kinds, number * step, step, _HEIGHT / max(highest, 1)) for number, each in enumerate(columns)]
    labels = [html("<span>{}</span>", absolute(each.at_ms)[11:16]) for each in columns[::_LABELLED]]
    return html(
        '<div class="plot"><div class="scale">{}</div><svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg><div class="scale times">{}</div></div>',
        f"{highest:,}", _WIDTH, _HEIGHT, label, drawn, labels,
    )  # fmt: skip


def _bar(bar: Bar, kinds: Sequence[str], x: float, step: float, scale: float) -> Html:
    """A bar, and an unseen area as high as the drawing that has the title too: the pointer need not hit the bar."""
    top = float(_HEIGHT)
    pieces: list[Html] = []
    for kind in kinds:
        height = bar.counts.get(kind, 0) * scale
        if height:
            top -= height
            pieces.append(html(
                '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
                kind, f"{x:.1f}", f"{top:.2f}", f"{step * _FILLED:.1f}", f"{height:.2f}",
            ))  # fmt: skip
    words = ", ".join(f"{bar.counts[kind]} {kind}" for kind in kinds if bar.counts.get(kind))
    return html(
        '<g><title>{} UTC: {}</title><rect fill="none" pointer-events="all" x="{}" y="0" width="{}" height="{}"/>{}'
        "</g>",
        absolute(bar.at_ms)[11:16], words or "none", f"{x:.1f}", f"{step:.1f}", _HEIGHT, pieces,
    )  # fmt: skip
