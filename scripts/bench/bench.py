"""Measures this package beside others and beside what the machine could do at best.

Cases run in turn (A B C A B C ...), each in a process of its own; the medians are compared with
the bars of `cases.BARS`. A case that cannot run is told as such and stops no other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cases import CASES
from measure import Outcome, run_case, run_here
from report import as_json, as_markdown
from saving import RESULTS, describe_machine, save
from tables import make_inputs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each table")
    parser.add_argument("--tables", type=int, default=20, help="tables, each one Parquet file")
    parser.add_argument("--stock-rows", type=int, default=200_000, help="rows for the slow cases")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case")
    parser.add_argument("--cases", help="names with commas between; default: all", metavar="A,B")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tables")
    parser.add_argument("--work-dir", type=Path, help="keeps the input; default: a temporary one")
    parser.add_argument("--fast-dir", type=Path, help="folder on a memory filesystem")
    parser.add_argument("--results-dir", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--run-here", nargs=3, help=argparse.SUPPRESS)
    return parser


def _names(chosen: str | None) -> list[str]:
    names = chosen.split(",") if chosen else list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"bench: no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    return names


def measure(options: argparse.Namespace, names: Sequence[str], work: Path) -> dict[str, object]:
    """Make the input, run the cases in turn, print what came of it, return all of it."""
    sizes = {key: getattr(options, key) for key in ("rows", "tables", "stock_rows", "seed")}
    told = make_inputs(work, **sizes)
    results: dict[str, list[Outcome]] = {name: [] for name in names}
    for turn in range(options.repeat):
        for name in names:
            place = options.fast_dir if CASES[name].fast else work
            if place is None:
                results[name] = [Outcome(error="not run: there is no --fast-dir")]
                continue
            outcome = run_case(
                name,
                told=told,
                place=place,
                workers=options.workers,
                timeout_seconds=options.timeout,
            )
            results[name].append(outcome)
            said = outcome.error or f"{outcome.seconds:.2f} s"
            print(f"{turn + 1}/{options.repeat} {name}: {said}", file=sys.stderr)
    print(as_markdown(results))
    machine = describe_machine(work, options.fast_dir)
    return as_json(results, machine=machine, settings={**sizes, "workers": options.workers})


def main() -> None:
    """Run the benchmark, or one case in this process when `measure` asks for it."""
    options = _parser().parse_args()
    if options.run_here:
        name, told, place = options.run_here
        print(json.dumps(run_here(name, Path(told), Path(place), options.workers)))
        return
    names = _names(options.cases)
    if options.work_dir:
        options.work_dir.mkdir(parents=True, exist_ok=True)
        found = measure(options, names, options.work_dir)
    else:
        # Not on a memory filesystem, which the usual place for temporary files may be.
        with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as work:
            found = measure(options, names, Path(work))
    save(f"{options.rows}x{options.tables}", found, directory=options.results_dir)


if __name__ == "__main__":
    main()
