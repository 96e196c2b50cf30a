"""Compares the speed of two source trees: runs in turn, and a confidence interval of the ratio.

    python scripts/bench/compare.py BEFORE [AFTER] [--cases A,B] [--pairs 7] [--most-pairs 21]

BEFORE and AFTER are source trees with a built kernel; AFTER is this one by default. Each pair runs
a case in both, each in a process of its own, the one that ran second last time first. The speed
ratio is seconds before / seconds after: above 1 is faster. Its 95 % interval is that of Student's t
over the logarithms of the ratios of the pairs. Pairs are added until the interval is narrow enough.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import CASES
from measure import Outcome, run_case
from saving import RESULTS, describe_machine, save
from scipy.stats import t as student_t
from tables import make_inputs

HERE = Path(__file__).resolve().parents[2]
MAIN_CASES = (
    "source_order",
    "shuffle",
    "shuffle_csv",
    "gzip_write",
    "map_rows",
    "numpy_source_order",
    "images",
    "sqlite",
    "small_job",
    "verify",
    "load",
)
CONFIDENCE = 0.95
TIMEOUT_S = 600.0


@dataclasses.dataclass(frozen=True)
class Interval:
    """A ratio of speeds: its estimate and both ends of its confidence interval."""

    low: float
    estimate: float
    high: float

    @property
    def width(self) -> float:
        """Distance of the ends."""
        return self.high - self.low


def interval_of(ratios: Sequence[float]) -> Interval:
    """Return the geometric mean of at least two ratios with its confidence interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    quantile = float(student_t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1))
    margin = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(*(math.exp(end) for end in (mean - margin, mean, mean + margin)))


def compare(
    name: str, trees: tuple[Path, Path], options: argparse.Namespace, told: Path, work: Path
) -> dict[str, Any]:
    """Run pairs of a case until its interval is narrow enough, or there are enough of them."""
    pairs: list[tuple[Outcome, Outcome]] = []
    interval = None
    while len(pairs) < options.most_pairs:
        order = (0, 1) if len(pairs) % 2 == 0 else (1, 0)
        outcomes: dict[int, Outcome] = {}
        for which in order:
            outcomes[which] = run_case(
                name,
                told=told,
                place=work,
                workers=options.workers,
                timeout_seconds=TIMEOUT_S,
                checkout=trees[which],
            )
            if outcomes[which].error:
                raise SystemExit(f"compare: {name}: {outcomes[which].error}")
        pairs.append((outcomes[0], outcomes[1]))
        if len(pairs) >= options.pairs:
            interval = interval_of([before.seconds / after.seconds for before, after in pairs])
            if interval.width <= options.width:
                break
    assert interval is not None
    print(
        f"{name}: {interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}] "
        f"in {len(pairs)} pairs",
        file=sys.stderr,
    )
    return {
        "speed_ratio": dataclasses.asdict(interval),
        "before_seconds": [before.seconds for before, _ in pairs],
        "after_seconds": [after.seconds for _, after in pairs],
        "before_peak_rss": max(before.peak_rss for before, _ in pairs),
        "after_peak_rss": max(after.peak_rss for _, after in pairs),
    }


def main() -> None:
    """Compare, print a line for each case, and save the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=HERE)
    parser.add_argument("--cases", default=",".join(MAIN_CASES), metavar="A,B")
    parser.add_argument("--pairs", type=int, default=7, help="at least; 2 or more")
    parser.add_argument("--most-pairs", type=int, default=21)
    parser.add_argument("--width", type=float, default=0.06, help="of the interval, wanted")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table")
    parser.add_argument("--tables", type=int, default=5, help="tables, each one Parquet file")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results-dir", type=Path, default=RESULTS)
    options = parser.parse_args()
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"compare: no case {', '.join(unknown)}")
    if not 2 <= options.pairs <= options.most_pairs:
        raise SystemExit("compare: --pairs is at least 2 and at most --most-pairs")
    trees = (options.before.resolve(), options.after.resolve())
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as folder:
        work = Path(folder)
        sizes = {"rows": options.rows, "tables": options.tables}
        told = make_inputs(work, **sizes, stock_rows=1_000, seed=0)
        found = {name: compare(name, trees, options, told, work) for name in names}
        machine = describe_machine(work, None)
    save("compare", {"machine": machine, **sizes, "cases": found}, directory=options.results_dir)


if __name__ == "__main__":
    main()
