"""Simulates jobs of any size: every task of every step, on workers that fail now and then.

Tasks, their sizes and their requests are those that the exchange itself would plan; speeds are
those of `planning_rates`. First the measured runs of this folder are simulated, to tell how near
the model is; then jobs that no single machine can hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saving import RESULTS, save

from beam_tfrecord.exchange.merge import READERS
from beam_tfrecord.exchange.plan import MOST_RUN_BYTES, REMOTE_REQUEST_BYTES, most_fan_in
from beam_tfrecord.jobs.planning_cluster import MOST_LIST, MOST_MEMORY_BYTES, Step, Work, steps_of
from beam_tfrecord.jobs.planning_rates import MACHINES, Machine, Rates, machine_of
from beam_tfrecord.sources.base import MOST_UNITS, UNIT_BYTES

# What the bench's own disk gives is part of the measured speeds.
HERE = dataclasses.replace(MACHINES[0], name="here", cores=2, network_bytes_s=1e12, usd_hour=0.0)
SHARD_BYTES = 128 * 10**6
MOST_SHARDS = 2**16
# Bytes a row of the bench's tables, by kind of the input.
ROW_BYTES = {"parquet": 67, "csv": 110}
# Of a read of a store.
LEAST_REQUEST_BYTES = 10**6
# The runs before this were measured of code that still wrote through the page cache.
SINCE = "2026-11-21-09"


@dataclasses.dataclass(frozen=True)
class Failures:
    """How often workers fail.

    Attributes:
        every_s: Mean time until a worker fails, and with it the tasks that it is at.
        away_s: Until it is replaced.
        seed: Of the times.
    """

    every_s: float
    away_s: float = 120.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Task:
    """A part of a step: bytes it handles, bytes it moves, and reads that it waits for."""

    bytes: float
    moved_bytes: float
    reads: float


@dataclasses.dataclass
class Ran:
    """What became of a step.

    Attributes:
        seconds: From its first task to its last.
        attempts: Of tasks.
        reads: Requests of all attempts.
    """

    seconds: float = 0.0
    attempts: int = 0
    reads: float = 0.0


def tasks_of(step: Step) -> Iterator[Task]:
    """Yield the tasks of a step; the last one has what is left."""
    each = step.bytes / max(1, step.tasks)
    share = each / step.bytes if step.bytes else 0.0
    for _ in range(step.tasks):
        yield Task(each, step.moved_bytes * share, (step.reads + step.index_reads) * share)


def run_step(
    step: Step, machine: Machine, workers: int, rates: Rates, failures: Failures | None
) -> Ran:
    """Run all tasks of a step: each goes to whoever is free first; one that fails comes again."""
    chance = random.Random(f"{step.name} {failures.seed if failures else 0}")
    ran = Ran()
    # When each core is free; cores of a worker fail together, but are drawn on their own: as many
    # attempts are lost.
    free = [0.0] * (machine.cores * workers)
    network = machine.network_bytes_s / machine.cores
    waiting = list(tasks_of(step))
    while waiting:
        task = waiting.pop()
        work_s = task.bytes / step.core_bytes_s
        seconds = max(work_s, task.moved_bytes / network)
        seconds += task.reads * step.request_s / READERS
        began = heapq.heappop(free)
        ran.attempts += 1
        fails_after = chance.expovariate(1 / failures.every_s) if failures else seconds + 1
        if failures and fails_after < seconds:
            ran.reads += task.reads * fails_after / seconds
            heapq.heappush(free, began + fails_after + failures.away_s)
            waiting.append(task)
            continue
        ran.reads += task.reads
        ran.seconds = max(ran.seconds, began + seconds)
        heapq.heappush(free, began + seconds)
    ran.seconds += rates.barrier_s
    return ran


def simulate(
    work: Work,
    machine: Machine,
    workers: int,
    *,
    rates: Rates | None = None,
    failures: Failures | None = None,
) -> dict[str, Any]:
    """Return how a job goes, and what its limits come to."""
    rates = rates or Rates()
    steps = steps_of(work, rates)
    runs = {step.name: run_step(step, machine, workers, rates, failures) for step in steps}
    merging = [step for step in steps if step.reads > step.tasks]
    shards = min(MOST_SHARDS, max(1, work.record_bytes // SHARD_BYTES))
    lists = {"units": work.units, "shards": shards} | {s.name: s.files for s in steps[:-1]}
    smallest = min((step.request_bytes or 0 for step in merging), default=None)
    memory = max(step.memory_bytes for step in steps)
    seconds = rates.start_s + sum(ran.seconds for ran in runs.values())
    return {
        "record_bytes": work.record_bytes,
        "machine": machine.name,
        "workers": workers,
        "seconds": round(seconds, 3),
        "usd_of_machines": round(seconds / 3600 * machine.usd_hour * workers, 2),
        "rounds": sum(step.name.startswith("merge") for step in steps),
        "steps": {
            step.name: {
                "tasks": step.tasks,
                "attempts": runs[step.name].attempts,
                "seconds": round(runs[step.name].seconds, 3),
                "files": step.files,
                "reads": round(runs[step.name].reads),
                "request_bytes": step.request_bytes,
                "index_reads": step.index_reads,
            }
            for step in steps
        },
        "smallest_request_bytes": smallest,
        "longest_list": max(lists.values()),
        "memory_of_a_core_bytes": memory,
        "kept": {
            "requests": smallest is None or smallest >= LEAST_REQUEST_BYTES,
            "memory": memory <= MOST_MEMORY_BYTES,
            "lists": max(lists.values()) <= MOST_LIST,
        },
    }


def large_work(record_bytes: int) -> Work:
    """Return the work of packed input of half the size of its records, on a store."""
    input_bytes = record_bytes // 2
    unit_bytes = UNIT_BYTES
    while input_bytes > MOST_UNITS * unit_bytes:
        unit_bytes *= 2
    units = -(-record_bytes // unit_bytes)
    return Work(input_bytes, record_bytes, units, True, 0, is_remote=True)


def measured_work(case: str, run: dict[str, Any]) -> Work:
    """Return the work of a case of the bench."""
    kind = "csv" if case.endswith("csv") else "parquet"
    input_bytes = run["rows"] * ROW_BYTES[kind]
    return Work(
        input_bytes,
        run["output_bytes"],
        max(1, run["output_bytes"] // UNIT_BYTES),
        case.startswith("shuffle"),
        1 if kind == "csv" else 0,
        is_remote=False,
    )


CASES = ("source_order", "source_order_few", "shuffle", "shuffle_few", "shuffle_csv")


def reproduced(results: Path = RESULTS) -> list[dict[str, Any]]:
    """Simulate the measured runs of this package on two cores."""
    told = []
    for path in sorted(results.glob("*x20.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if path.name < SINCE or found["settings"]["workers"] != HERE.cores:
            continue
        for case in CASES:
            if not (measured := found["cases"].get(case)) or not measured["medians"]:
                continue
            seconds = measured["medians"]["seconds"]
            simulated = simulate(measured_work(case, measured["runs"][0]), HERE, 1)["seconds"]
            told.append(
                {
                    "results": path.name,
                    "case": case,
                    "measured_s": round(seconds, 2),
                    "simulated_s": round(simulated, 2),
                    "ratio": round(simulated / seconds, 3),
                }
            )
    return told


# Bytes of records, machine, workers.
LARGE = (
    (10**12, "n2-standard-4", 100),
    (10**13, "n2-standard-8", 200),
    (10**14, "n2-standard-8", 1000),
)
# A worker fails about once in two days: what is sold at a discount goes away as often.
OFTEN = Failures(every_s=48 * 3600)


def main() -> None:
    """Simulate everything, print it, and keep it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results-dir", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()
    compared = reproduced()
    for row in compared:
        print(
            f"{row['case']:18} {row['measured_s']:8} s measured {row['simulated_s']:8} s simulated"
        )
    jobs = [
        {"failures": failures is not None}
        | simulate(large_work(size), machine_of(name), workers, failures=failures)
        for size, name, workers in LARGE
        for failures in (None, OFTEN)
    ]
    for job in jobs:
        print(
            f"{job['record_bytes'] / 1e12:g} TB on {job['workers']} {job['machine']}"
            f"{' that fail' if job['failures'] else ''}: {job['seconds'] / 60:.0f} min, "
            f"{job['rounds']} round(s), "
            f"requests of {job['smallest_request_bytes'] / 2**20:.2f} MiB, "
            f"{job['memory_of_a_core_bytes'] / 1e9:.2f} GB a core, lists of "
            f"{job['longest_list']:,}: {'kept' if all(job['kept'].values()) else job['kept']}"
        )
    told = {
        "rates": dataclasses.asdict(Rates()),
        "reproduced": compared,
        "most_bytes_of_one_round": MOST_RUN_BYTES * most_fan_in(REMOTE_REQUEST_BYTES),
        "jobs": jobs,
    }
    save("scale", told, directory=options.results_dir)


if __name__ == "__main__":
    main()
