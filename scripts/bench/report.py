"""Prints the results of the benchmark: medians, and the bars that they meet or miss."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from cases import BARS, CASES, Bar, Metric
from measure import Outcome

MEGA = 1e6
GIGA = 1e9


def figure(outcome: Outcome, metric: Metric) -> float:
    """Return one figure of one run."""
    if metric == "rows_per_second":
        return outcome.rows / outcome.seconds
    if metric == "rows_per_cpu_second":
        return outcome.rows / outcome.cpu_seconds
    if metric == "gigabytes_per_second":
        return outcome.output_bytes / outcome.seconds / GIGA
    if metric == "peak_rss_gigabytes":
        return outcome.peak_rss / GIGA
    return float(outcome.seconds if metric == "seconds" else outcome.peak_rss)


def median(outcomes: Sequence[Outcome], metric: Metric) -> float | None:
    """Return the median over the runs that worked, None where none did."""
    values = [figure(outcome, metric) for outcome in outcomes if not outcome.error]
    return statistics.median(values) if values else None


@dataclasses.dataclass(frozen=True)
class Judged:
    """A bar and what was measured for it; `measured` is None where a case is missing."""

    bar: Bar
    measured: float | None

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where it cannot be told."""
        if self.measured is None:
            return None
        if self.bar.at_least:
            return self.measured >= self.bar.threshold
        return self.measured <= self.bar.threshold

    @property
    def verdict(self) -> str:
        """Met or missed, and by what part of the threshold."""
        if self.measured is None:
            return "not measured"
        part = abs(self.measured / self.bar.threshold - 1)
        return f"{'met' if self.met else 'MISSED'} by {part:.0%}"


def judge(results: Mapping[str, Sequence[Outcome]], bars: Sequence[Bar] = BARS) -> list[Judged]:
    """Compare medians with the bars."""
    judged = []
    for bar in bars:
        measured = median(results.get(bar.numerator, ()), bar.metric)
        if bar.denominator is not None and measured is not None:
            below = median(results.get(bar.denominator, ()), bar.metric)
            measured = measured / below if below else None
        judged.append(Judged(bar, measured))
    return judged


def _case_line(name: str, outcomes: Sequence[Outcome]) -> str:
    worked = [outcome for outcome in outcomes if not outcome.error]
    if not worked:
        why = outcomes[-1].error if outcomes else "not run"
        return f"| {name} | | | | | | {why.replace('|', '/')[:100]} |"
    seconds = [outcome.seconds for outcome in worked]
    rows = statistics.median(outcome.rows for outcome in worked)
    middle = statistics.median(seconds)
    rate = f"{rows / middle / MEGA:.3f}" if rows else ""
    speed = f"{statistics.median(it.output_bytes for it in worked) / middle / MEGA:.0f}"
    peak = f"{statistics.median(outcome.peak_rss for outcome in worked) / MEGA:.0f}"
    spread = f"{middle:.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
    return f"| {name} | {rows:.0f} | {spread} | {rate} | {speed} | {peak} | {CASES[name].about} |"


def as_markdown(results: Mapping[str, Sequence[Outcome]]) -> str:
    """Return the table of the cases and the table of the bars."""
    lines = [
        "| case | rows | seconds (min-max) | M rows/s | MB/s out | peak RSS, MB | what it does |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(_case_line(name, outcomes) for name, outcomes in results.items()),
        "",
        "| bar | measured | threshold | |",
        "|---|---:|---:|---|",
    ]
    for judged in judge(results):
        measured = "" if judged.measured is None else f"{judged.measured:.3g}"
        threshold = f"{'≥' if judged.bar.at_least else '≤'} {judged.bar.threshold:g}"
        lines.append(f"| {judged.bar.name} | {measured} | {threshold} | {judged.verdict} |")
    return "\n".join(lines)


def as_json(results: Mapping[str, Sequence[Outcome]], **about: Any) -> dict[str, Any]:
    """Return everything measured, with medians and bars, ready for JSON."""
    metrics: tuple[Metric, ...] = ("seconds", "rows_per_second", "rows_per_cpu_second", "peak_rss")
    return {
        **about,
        "cases": {
            name: {
                "about": CASES[name].about,
                "medians": {
                    metric: median(outcomes, metric)
                    for metric in metrics
                    if not metric.startswith("rows_per")
                    or any(outcome.rows for outcome in outcomes)
                },
                "runs": [dataclasses.asdict(outcome) for outcome in outcomes],
            }
            for name, outcomes in results.items()
        },
        "bars": [
            {**dataclasses.asdict(judged.bar), "measured": judged.measured, "met": judged.met}
            for judged in judge(results)
        ],
    }
