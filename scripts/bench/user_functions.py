"""Measures what a user's own Python function costs: ours, its limit, and stock Beam with the same.

    python scripts/bench/user_functions.py --work-dir DIR --rows 1000000 --stock-rows 100000

Each case of `user_cases` runs in each way at two sizes, of which the larger is `FACTOR` times the
smaller. The figure of a round is the slope, (rows - rows) / (seconds - seconds), so that starting
and publishing drop out. In a round each way of each case runs in turn, in a process of its own.
Memory is the highest sum of the proportional bytes (PSS) of all processes; pages of files that
programs outside of the run map as well count in part. `bar_chart.py` draws the result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from images import make_pictures
from measure import Outcome, measure_here, run_script
from saving import RESULTS, VERSIONS_OF, describe_machine, save
from tables import make_table
from user_cases import CASES, WAYS, Job, prepare

FACTOR = 4
COLUMNS = ["i0", "i1", "f0", "f1", "s0", "s1"]
ROW_GROUPS = 10  # of a file
# The limit and stock Beam know no hints.
MEASURED_AS = {"map_rows_hint": "map_rows"}
MEGA = 1e6
ABOUT = {
    "figure": "slope between two sizes, (rows - rows) / (seconds - seconds); medians of rounds",
    "limit": "the same function in as many plain processes as cores, without Beam or shuffle",
    "stock": "Beam's own transforms with the same function, FnApiRunner in one process, tables of "
    "fewer rows",
    "one_worker": "ours with workers=1, in the first round alone",
    "memory": "highest sum of PSS of all processes, at both sizes",
}


Pair = tuple[Outcome, Outcome]


def slope(pair: Pair, of: str, over: str = "seconds") -> float | None:
    """Return what one field grows by another's growth between two runs; None if that is noise."""
    small, large = pair
    growth = getattr(large, over) - getattr(small, over)
    if small.error or large.error or growth <= 0:
        return None
    return float((getattr(large, of) - getattr(small, of)) / growth)


def _middle(values: Sequence[float | None], digits: int) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    if not known:
        return {"median": None, "range": None}
    ends = [round(end, digits) for end in (min(known), max(known))]
    return {"median": round(statistics.median(known), digits), "range": ends}


def _rates(pairs: Sequence[Pair]) -> list[float | None]:
    return [slope(pair, "rows") for pair in pairs]


def summary_of_way(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of the rounds of one way."""
    return {
        "rows": [run.rows for run in pairs[0]],
        "rows_per_second": _middle(_rates(pairs), 0),
        "rows_per_cpu_second": _middle([slope(pair, "rows", "cpu_seconds") for pair in pairs], 0),
        "cores": _middle([slope(pair, "cpu_seconds") for pair in pairs], 2),
        "peak_pss": [max(pair[size].peak_pss for pair in pairs) for size in (0, 1)],
        "error": next((run.error for pair in pairs for run in pair if run.error), ""),
        "runs": [[dataclasses.asdict(run) for run in pair] for pair in pairs],
    }


def summary_of_case(case: str, results: dict[tuple[str, str], list[Pair]]) -> dict[str, Any]:
    """Return the figures of a case, and what ours is of the others in the same rounds."""
    pairs = {way: results.get((_key(case, way)), []) for way in WAYS}
    found: dict[str, Any] = {
        "about": CASES[case],
        "unit": "images" if case == "images_resize" else "rows",
        "ways": {way: summary_of_way(of) for way, of in pairs.items() if of},
    }
    for other in ("limit", "stock"):
        rounds = zip(_rates(pairs["ours"]), _rates(pairs[other]), strict=False)
        found[f"ours_to_{other}"] = _middle(
            [ours / theirs if ours and theirs else None for ours, theirs in rounds], 3
        )
    return found


def _key(case: str, way: str) -> tuple[str, str]:
    return (MEASURED_AS.get(case, case) if way in ("limit", "stock") else case), way


def _make_tables(folder: Path, rows: int) -> Path:
    """Write `FACTOR` files of `rows` rows, or take those of an earlier run."""
    made = folder / f"rows-{rows}"
    if not made.exists():
        partial = folder / f"rows-{rows}.partial"
        partial.mkdir(parents=True, exist_ok=True)
        for seed in range(FACTOR):
            table = make_table(rows, seed=seed).select(COLUMNS)
            target = partial / f"part-{seed}.parquet"
            pq.write_table(table, target, row_group_size=-(-rows // ROW_GROUPS))
        partial.rename(made)
    return made


def _make_images(folder: Path, files: int, size: tuple[int, int]) -> Path:
    made = folder / f"images-{files}-{size[0]}x{size[1]}"
    if not made.exists():
        partial = made.with_suffix(".partial")
        make_pictures(partial, files, size)
        partial.rename(made)
    return made


def _inputs(options: argparse.Namespace, case: str, way: str, work: Path) -> list[tuple[str, int]]:
    """Return glob or directory and rows of both sizes."""
    if case == "images_resize":
        counts = (options.images, FACTOR * options.images)
        width, height = map(int, options.pixels.split("x"))
        return [(str(_make_images(work, count, (width, height))), count) for count in counts]
    rows = options.stock_rows if way == "stock" else options.rows
    folder = _make_tables(work, rows)
    return [(f"{folder}/part-0.parquet", rows), (f"{folder}/part-*.parquet", FACTOR * rows)]


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Make the inputs, run all rounds, and return all figures."""
    results: dict[tuple[str, str], list[Pair]] = {}
    for turn in range(options.rounds):
        # In the order of the cases, each once.
        for case, way in dict.fromkeys(
            _key(case, way) for case in options.cases for way in options.ways
        ):
            if way == "one_worker" and turn:
                continue
            workers = {"ours": options.workers, "one_worker": 1}.get(way)
            jobs = [
                Job(case, way, inputs, rows, options.resize, options.processes, workers)
                for inputs, rows in _inputs(options, case, way, work)
            ]
            small, large = (
                run_script(
                    [
                        Path(__file__).name,
                        "--work-dir",
                        str(work),
                        "--run-here",
                        json.dumps(dataclasses.asdict(job)),
                    ],
                    timeout_seconds=options.timeout,
                    peak="peak_pss",
                )
                for job in jobs
            )
            pair = (small, large)
            results.setdefault((case, way), []).append(pair)
            rate = slope(pair, "rows")
            said = f"{rate:,.0f} a second" if rate else small.error or large.error or "noise"
            print(f"{turn + 1}/{options.rounds} {case} {way}: {said}", file=sys.stderr, flush=True)
    named = ("rows", "stock_rows", "images", "pixels", "resize", "processes", "workers", "rounds")
    return {
        "about": ABOUT,
        "machine": describe_machine(work, None, (*VERSIONS_OF, "pillow")),
        "settings": {"factor": FACTOR, **{name: getattr(options, name) for name in named}},
        "cases": {case: summary_of_case(case, results) for case in options.cases},
    }


def as_markdown(found: dict[str, Any]) -> str:
    """Return the table of all cases and ways."""
    lines = [
        "| case | way | per second (range) | per CPU second | cores | peak MB | large | ratio |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case, of in found["cases"].items():
        for way, figures in of["ways"].items():
            cells = [
                _cell(figures["rows_per_second"], ",.0f"),
                _cell(figures["rows_per_cpu_second"], ",.0f"),
                _cell(figures["cores"], ".2f"),
            ]
            cells += [f"{peak / MEGA:,.0f}" for peak in figures["peak_pss"]]
            cells.append(_cell(of.get(f"ours_to_{way}", {"median": None}), ".2f"))
            why = figures["error"].replace("|", "/")[:100]
            lines.append(f"| {case} | {way} {why} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(middle: dict[str, Any], form: str) -> str:
    if middle["median"] is None:
        return "-"
    low, high = middle["range"]
    return f"{middle['median']:{form}} ({low:{form}}-{high:{form}})"


def _words(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    """Measure, print and save; or run one job in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="of the smaller size")
    parser.add_argument("--stock-rows", type=int, default=20_000, help="the same for stock Beam")
    parser.add_argument("--images", type=int, default=250, help="files of the smaller size")
    parser.add_argument("--pixels", default="500x375", help="width and height of the images")
    parser.add_argument("--resize", default="224x224", help="option of ReadFromImages")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cases", type=_words, default=list(CASES), metavar="A,B")
    parser.add_argument("--ways", type=_words, default=list(WAYS), metavar="A,B")
    parser.add_argument("--workers", type=int, help="of our pipelines; default: theirs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of the limit")
    parser.add_argument("--work-dir", type=Path, help="keeps the input; default: a temporary one")
    parser.add_argument("--results-dir", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--run-here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_here:
        job = Job(**json.loads(options.run_here))
        print(json.dumps(measure_here(lambda out, _: prepare(job, out), options.work_dir)))
        return
    for chosen, known in ((options.cases, CASES), (options.ways, WAYS)):
        if unknown := [name for name in chosen if name not in known]:
            raise SystemExit(f"user_functions: no {unknown[0]}: there are {', '.join(known)}")
    if options.work_dir:
        options.work_dir.mkdir(parents=True, exist_ok=True)
        found = measure(options, options.work_dir)
    else:
        with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as work:
            found = measure(options, Path(work))
    print(as_markdown(found))
    saved = save("user-functions", found, directory=options.results_dir)
    print(f"saved as {saved.name}: bar_chart.py draws it", file=sys.stderr)


if __name__ == "__main__":
    main()
