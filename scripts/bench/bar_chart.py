"""Draws the result of `user_functions.py` or `peers.py` as bars.

python scripts/bench/bar_chart.py RESULT.json docs/user-functions.svg
python scripts/bench/bar_chart.py RESULT.json docs/peers.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, AFTER = 880, 210
BAR, STEP, HEADING, GAP = 20, 26, 28, 16
# Readable on white and on black, as are texts and lines of a middle gray.
COLORS = {"ours": "#0a63c9", "limit": "#1a7f37", "stock": "#8250df"}
FONTS = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
LABELS = {"ours": "this package", "limit": "limit", "stock": "stock Beam"}
GRAY = "#7d8590"


def as_svg(found: Mapping[str, Any]) -> str:
    """Return the picture; the longest bar of each case is as long as that of any other."""
    chart = found.get("chart") or {
        "title": "Rows per second with a Python function of the user",
        "labels": LABELS,
        "caption": "Each case has a scale of its own. Limit: the same function without Beam in "
        f"{found['settings']['processes']} plain processes.",
    }
    labels = chart["labels"]
    left = 27 + round(7.6 * max(map(len, labels.values())))
    longest = WIDTH - left - AFTER
    body, top = [], 10
    for case, of in found["cases"].items():
        rates = {
            way: of["ways"][way]["rows_per_second"]["median"]
            for way in labels
            if way in of["ways"] and of["ways"][way]["rows_per_second"]["median"] is not None
        }
        if not rates:
            continue
        body.append(
            f'  <text x="5" y="{top + 16}"><tspan font-weight="bold">{escape(case)}</tspan>: '
            f"{escape(of['about'])}</text>"
        )
        top += HEADING
        for way, rate in rates.items():
            color = COLORS.get(way.partition("_")[0], COLORS["stock"])
            length = longest * rate / max(rates.values())
            body += [
                f'  <text x="{left - 8}" y="{top + 15}" text-anchor="end">'
                f"{escape(labels[way])}</text>",
                f'  <rect x="{left}" y="{top}" width="{length:.2f}" height="{BAR}" '
                f'fill="{color}"/>',
                f'  <text x="{left + length + 8:.2f}" y="{top + 15}">'
                f"{rate:,.0f} {of['unit']}/s</text>",
            ]
            top += STEP
        top += GAP
    caption = f"{chart['caption']} {found['machine']['cores']} cores."
    body.append(f'  <text x="5" y="{top + 8}">{escape(caption)}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 20}" role="img" '
            f'aria-labelledby="title"\n     font-family="{FONTS}" font-size="14" fill="{GRAY}">',
            f'  <title id="title">{escape(chart["title"])}</title>',
            *body,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Read a result, and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    found = json.loads(options.result.read_text(encoding="utf-8"))
    options.picture.write_text(as_svg(found), encoding="utf-8")


if __name__ == "__main__":
    main()
