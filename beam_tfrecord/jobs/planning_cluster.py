"""`plan --workers`: how a job goes on many machines, from its size alone.

Sizes of runs, windows and rounds are those that the exchange itself would choose; time and money
follow from the table in `planning_rates`. Every figure is an estimate.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from beam_tfrecord.exchange.merge import READERS
from beam_tfrecord.exchange.plan import (
    LAST_TASK_BYTES,
    LOCAL_REQUEST_BYTES,
    MOST_WINDOW_BYTES,
    PART_BYTES,
    REMOTE_REQUEST_BYTES,
    TASK_BYTES,
    most_fan_in,
    run_bytes_for,
    window_bytes_for,
    windows_held,
)
from beam_tfrecord.jobs.planning_rates import Machine, Rates
from beam_tfrecord.sources.groups import grown_bytes

MOST_LIST = 10**6
MOST_MEMORY_BYTES = 2 * 10**9
UPLOAD_BYTES = 16 * 2**20
# The footer of a run of all places is read in two requests, a short one first.
_LARGE_INDEX = 2


@dataclasses.dataclass(frozen=True)
class Work:
    """What is to be done, whoever does it.

    Attributes:
        input_bytes: Size of the input.
        record_bytes: Size of all records.
        units: Number of units of the input.
        is_shuffled: Records go through the exchange; else each group straight to its shards.
        scans: Passes over the input before it is encoded.
        is_remote: Temporary files are on a store, not on a disk.
    """

    input_bytes: int
    record_bytes: int
    units: int
    is_shuffled: bool
    scans: int
    is_remote: bool

    @property
    def request_bytes(self) -> int:
        """Least bytes of a read of a run."""
        return REMOTE_REQUEST_BYTES if self.is_remote else LOCAL_REQUEST_BYTES


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of which all tasks may go on at the same time.

    Attributes:
        name: What is done.
        tasks: Number of tasks.
        bytes: Bytes that all tasks handle; of text in a scan, of records elsewhere.
        core_bytes_s: Of these, what one core does in a second.
        moved_bytes: Read from and written to the store.
        read_bytes: Of these, those that are read from runs.
        reads: Requests for them.
        index_reads: Requests for the footers of runs, which are smaller.
        files: Files written.
        memory_bytes: Of a task.
        request_s: Wait for each read.
    """

    name: str
    tasks: int
    bytes: int
    core_bytes_s: float
    moved_bytes: int
    read_bytes: int = 0
    reads: int = 0
    files: int = 0
    memory_bytes: int = 0
    request_s: float = 0.0
    index_reads: int = 0

    @property
    def request_bytes(self) -> int | None:
        """Mean size of a read of a run; None where none are read."""
        return self.read_bytes // self.reads if self.reads else None

    def seconds(self, machine: Machine, workers: int, rates: Rates) -> float:
        """Return how long it takes: by cores or by the network, whichever is the slower."""
        slots = machine.cores * workers
        rounds = math.ceil(self.tasks / slots) if self.tasks < 4 * slots else self.tasks / slots
        each_s = self.bytes / max(1, self.tasks) / self.core_bytes_s
        waiting_s = (self.reads + self.index_reads) / max(1, self.tasks) * self.request_s / READERS
        moving_s = self.moved_bytes / (machine.network_bytes_s * workers)
        return rates.barrier_s + max(rounds * (each_s + waiting_s), moving_s)


def steps_of(work: Work, rates: Rates) -> list[Step]:
    """Return the steps of a job, in order."""
    scans = [
        Step(f"scan {number + 1}", work.units, work.input_bytes, rates.scan_bytes_s,
             work.input_bytes, memory_bytes=rates.process_bytes + rates.task_bytes)
        for number in range(work.scans)
    ]  # fmt: skip
    total = work.record_bytes
    if not work.is_shuffled:
        moved = work.input_bytes + total
        memory = rates.process_bytes + rates.task_bytes
        write = Step("read, encode and write", work.units, total, rates.encode_bytes_s, moved,
                     files=work.units, memory_bytes=memory)  # fmt: skip
        return [*scans, write]
    return [*scans, *_exchange_steps(work, rates)]


def _exchange_steps(work: Work, rates: Rates) -> list[Step]:
    total, request = work.record_bytes, work.request_bytes
    run_bytes = grown_bytes(total, run_bytes_for(total, request))
    runs = max(1, math.ceil(total / run_bytes))
    spill_memory = rates.process_bytes + rates.task_bytes + int(rates.spill_factor * run_bytes)
    wait_s = rates.request_s if work.is_remote else rates.seek_s
    steps = [
        Step("read, encode and spill", runs, total, rates.spill_bytes_s, work.input_bytes + total,
             files=runs, memory_bytes=spill_memory)
    ]  # fmt: skip

    def merging(name: str, tasks: int, window: int, fan_in: int, indexes: int) -> Step:
        held = min(windows_held(window) * window, total)
        memory = rates.process_bytes + int(rates.merge_factor * held)
        reads = max(1, math.ceil(total / window)) * fan_in
        return Step(name, tasks, total, rates.merge_bytes_s, 2 * total, total, reads, tasks,
                    memory, wait_s, tasks * fan_in * indexes)  # fmt: skip

    if runs > most_fan_in(request):
        batches = math.ceil(runs / most_fan_in(request))
        parts = batches * math.ceil(total / (batches * PART_BYTES))
        fan_in = math.ceil(runs / batches)
        steps.append(merging("merge runs", parts, MOST_WINDOW_BYTES, fan_in, _LARGE_INDEX))
        tasks = math.ceil(total / LAST_TASK_BYTES)
        return [*steps, merging("merge shards", tasks, MOST_WINDOW_BYTES, batches, 1)]
    window = window_bytes_for(runs, request)
    tasks = math.ceil(total / max(TASK_BYTES, window))
    return [*steps, merging("merge shards", tasks, window, runs, _LARGE_INDEX)]


def on_cluster(
    work: Work, machine: Machine, workers: int, rates: Rates, *, shards: int
) -> dict[str, Any]:
    """Return how a job goes on some machines, as JSON values.

    Args:
        work: The job.
        machine: Of each worker.
        workers: How many.
        rates: Speeds and prices.
        shards: Number of shards.
    """
    steps = steps_of(work, rates)
    seconds = rates.start_s + sum(step.seconds(machine, workers, rates) for step in steps)
    exchanged = [step for step in steps if step.name.startswith("merge")]
    written = sum(step.moved_bytes for step in steps) - sum(step.read_bytes for step in steps)
    memory = max(step.memory_bytes for step in steps)
    reads = sum(step.reads + step.index_reads for step in steps) + math.ceil(
        work.input_bytes / UPLOAD_BYTES
    )
    writes = sum(step.files for step in steps) + math.ceil(written / UPLOAD_BYTES)
    lists = {"units": work.units, "shards": shards} | {
        f"files of {step.name!r}": step.files for step in steps[:-1]
    }
    return {
        "machine": machine.name,
        "workers": workers,
        "cores": machine.cores * workers,
        "steps": {step.name: _told(step, machine, workers, rates) for step in steps},
        "rounds": len(exchanged),
        "shuffle_bytes": sum(step.read_bytes for step in exchanged),
        "temporary_bytes": work.record_bytes * (len(exchanged) + 1 if exchanged else 1),
        "read_requests": reads,
        "write_requests": writes,
        "memory_bytes": memory * machine.cores,
        "memory_of_a_core_bytes": memory,
        "hours": round(seconds / 3600, 3),
        "usd": round(
            seconds / 3600 * workers * machine.usd_hour
            + reads * rates.read_usd
            + writes * rates.write_usd,
            2,
        ),
        "limits": _beyond(lists, steps, machine, memory, work.request_bytes) or ["all kept"],
        "rates": {
            "usd_hour": machine.usd_hour,
            "read_usd_per_million": round(rates.read_usd * 1e6, 6),
            "write_usd_per_million": round(rates.write_usd * 1e6, 6),
            "source": "prices from memory, not looked up, and measured speeds: planning_rates.py",
        },
    }


def _told(step: Step, machine: Machine, workers: int, rates: Rates) -> dict[str, Any]:
    told: dict[str, Any] = {"tasks": step.tasks, "files": step.files}
    if step.reads:
        told |= {
            "read_requests": step.reads,
            "requests_per_task": math.ceil(step.reads / step.tasks),
            "request_bytes": step.request_bytes,
            "index_requests": step.index_reads,
        }
    return told | {"minutes": round(step.seconds(machine, workers, rates) / 60, 2)}


def _beyond(
    lists: dict[str, int], steps: list[Step], machine: Machine, memory: int, request: int
) -> list[str]:
    """Return a line for everything that a job of this size should not need."""
    lines = [
        f"one worker lists {count:,} {name}" for name, count in lists.items() if count > MOST_LIST
    ]
    lines += [
        f"{step.name}: reads of {step.request_bytes:,} bytes"
        for step in steps
        # A total is seldom a multiple of a window, nor runs one of batches: MB will do for MiB.
        if step.reads > step.tasks and (step.request_bytes or request) < request * 10**6 >> 20
    ]
    if memory > MOST_MEMORY_BYTES:
        lines.append(f"a task takes {memory / 1e9:.1f} GB of memory")
    if memory * machine.cores > machine.memory_bytes:
        lines.append(f"{machine.name} has too little memory for tasks on all of its cores")
    return lines
