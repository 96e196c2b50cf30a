"""Packs units into *tasks*: a task is the units that one worker reads together.

Tasks decide neither the records nor their order, but those of single-pass jobs decide the files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.sources.base import Source, Unit
from beam_tfrecord.storage import is_remote

READ_TASK_BYTES = 64 * 2**20
# Tasks have their minimum size up to this number of tasks; for more input they become larger.
_MANY_TASKS = 64
# For rows of 64 bytes.
_USUAL_BATCH_BYTES = 64 * DEFAULT_BATCH_ROWS


@dataclasses.dataclass(frozen=True)
class ReadTask:
    """Neighbouring units that one worker reads as one task, or a share of one large unit.

    The `share` (k, n) of a unit is every n-th of its batches, from batch k on.
    """

    number: int
    first_unit: int
    units: tuple[Unit, ...]
    share: tuple[int, int] = (0, 1)

    @property
    def encoded_bytes(self) -> int:
        """Estimate of the size of its records."""
        return sum(unit.encoded_bytes for unit in self.units) // self.share[1]


def tasks_for_workers(
    source: Source, units: Sequence[Unit], workers: int, most_bytes: int
) -> list[ReadTask]:
    """Join or share units so that each worker has two tasks or more, of similar sizes.

    The records do not depend on it. A unit is shared only if to read it takes little of the time of
    Python code for its rows: each share reads all of it.
    """
    total = sum(unit.encoded_bytes for unit in units)
    task_bytes = max(1, min(most_bytes, total // (2 * workers)))
    tasks: list[ReadTask] = []
    for task in pack_units(units, task_bytes):
        shares = 1
        if len(task.units) == 1 and _may_share(source, task.units[0]):
            shares = max(1, min(-(-task.encoded_bytes // task_bytes), _batches(task.units[0])))
        for share in range(shares):
            tasks.append(dataclasses.replace(task, number=len(tasks), share=(share, shares)))
    return tasks


def _may_share(source: Source, unit: Unit) -> bool:
    # A remote file would be copied for each share.
    return source.is_shared and not is_remote(unit.file.path)


def _batches(unit: Unit) -> int:
    """Return how many batches a unit has, by a guess if nobody has counted its rows."""
    if unit.rows is None:
        return unit.encoded_bytes // _USUAL_BATCH_BYTES
    return unit.rows // DEFAULT_BATCH_ROWS


def pack_units(units: Iterable[Unit], task_bytes: int = READ_TASK_BYTES) -> list[ReadTask]:
    """Join neighbouring units into tasks of about `task_bytes` of encoded records.

    A task ends if the next unit would make its size differ more from `task_bytes`.
    """
    tasks: list[ReadTask] = []
    pending: list[Unit] = []
    first, size = 0, 0
    for index, unit in enumerate(units):
        if pending and abs(size + unit.encoded_bytes - task_bytes) > abs(task_bytes - size):
            tasks.append(ReadTask(len(tasks), first, tuple(pending)))
            pending, first, size = [], index, 0
        pending.append(unit)
        size += unit.encoded_bytes
    if pending:
        tasks.append(ReadTask(len(tasks), first, tuple(pending)))
    return tasks


def grown_bytes(total_bytes: int, max_bytes: int, min_bytes: int = READ_TASK_BYTES) -> int:
    """Return the size of tasks: it grows with the input, but leaves tasks for many workers."""
    return max(min_bytes, min(max_bytes, total_bytes // _MANY_TASKS))


def one_task(units: Sequence[Unit]) -> list[ReadTask]:
    """Join all units into one task, so that one worker reads all rows in order."""
    return [ReadTask(0, 0, tuple(units))] if units else []
