"""Draws histograms, quartiles and bars as SVG and HTML; stylesheets color them by the split.

The part number 0 of a chart is a filled area, the others are lines over it.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_PARTS = 6
"""Charts have marks for so many splits."""

_HEIGHT = 100

CHART_STYLE = (
    "<style>.beam-tfrecord svg{width:10em;height:2em;overflow:visible}"
    ".beam-tfrecord path{fill:none;stroke:#d9641e;vector-effect:non-scaling-stroke}"
    ".beam-tfrecord .c0{fill:#2b6cb855;stroke:#2b6cb8}</style>"
)
"""The colors of charts in a notebook."""


def histogram(parts: Sequence[Sequence[int]], title: str) -> str:
    """Return a histogram of one or more parts; heights are shares of each part."""
    shares = [[count / (sum(counts) or 1) for count in counts] for counts in parts[:MOST_PARTS]]
    most = max(map(max, shares)) or 1
    paths = [
        f'<path class=c{number} d="{_steps([share / most for share in heights])}"/>'
        for number, heights in enumerate(shares)
    ]
    return (
        f'<svg class=histogram viewBox="0 0 {len(parts[0])} {_HEIGHT}" preserveAspectRatio=none '
        f'role=img aria-label="{html.escape(title)}">{"".join(paths)}</svg>'
    )


def _steps(heights: Sequence[float]) -> str:
    """Return the outline of bars of width 1 as the data of a path."""
    path, last = f"M0 {_HEIGHT}", ""
    for height in heights:
        up = f"V{_HEIGHT - round(_HEIGHT * height)}"
        path += "h1" if up == last else f"{up}h1"
        last = up
    return f"{path}V{_HEIGHT}"


def quartile_strip(low: float, high: float, values: Sequence[float]) -> str:
    """Return a line from the least to the largest of five values, with a box and the median."""
    at = [min(max((value - low) / (high - low), 0), 1) * 100 for value in values]
    least, first, middle, _, most = (f"{place:.4g}" for place in at)
    return (
        "<svg class=strip aria-hidden=true>"
        f'<line x1="{least}%" x2="{most}%" y1=50% y2=50% />'
        f'<rect x="{first}%" width="{at[3] - at[1]:.4g}%" height=100% />'
        f'<line class=median x1="{middle}%" x2="{middle}%" y2=100% /></svg>'
    )


def bars(rows: Sequence[tuple[str, Sequence[float], str]]) -> str:
    """Return a table of bars: the share of a value in the first part, ticks of others, a text."""
    most = max((max(shares) for _, shares, _ in rows), default=0) or 1
    return f"<table class=bars>{''.join(_bar(*row, most) for row in rows)}</table>"


def _bar(name: str, shares: Sequence[float], text: str, most: float) -> str:
    ends = [f"{share / most * 98:.4g}%" for share in shares[:MOST_PARTS]]
    ticks = "".join(
        f'<line class=c{number} x1="{at}" x2="{at}" y2=100% />'
        for number, at in enumerate(ends[1:], start=1)
    )
    return (
        f'<tr><th scope=row>{html.escape(name)}<td><svg aria-hidden=true><rect width="{ends[0]}" '
        f"height=100% />{ticks}</svg><td>{html.escape(text)}"
    )
