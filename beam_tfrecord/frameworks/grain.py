"""Wraps a dataset as a Grain ``IterDataset``; importing this module imports Grain."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grain

from beam_tfrecord.errors import UsageError
from beam_tfrecord.loading.batches import BatchColumns, Batches


class GrainDataset(grain.IterDataset):
    """An iterable of batches as dicts of NumPy arrays by column.

    See `beam_tfrecord.dataset.load.Dataset.grain` for the arguments.
    """

    def __init__(self, columns: BatchColumns, batches: Batches, repeat: int | None) -> None:
        super().__init__()
        if repeat is not None and repeat < 0:
            raise UsageError(f"repeat must be at least 0, not {repeat}")
        columns.mask_missing()
        self.columns, self.batches = columns, batches
        self._repeat = repeat
        self._slice = slice(0, None, 1)

    def set_slice(self, part: slice, sequential_slice: bool = False) -> None:
        """Read only the steps of a worker process: every ``step``-th; Grain calls this."""
        del sequential_slice
        first, stride = self._slice.start, self._slice.step
        self._slice = slice(first + stride * part.start, None, stride * part.step)

    def __iter__(self) -> GrainIterator:
        return GrainIterator(self)

    def __str__(self) -> str:
        return f"GrainDataset({self.columns.rows!r}, {self.batches.division})"

    def steps(self, begin: int) -> Iterator[int]:
        """Return the steps of this process from a step on, of all epochs."""
        begin += (self._slice.start - begin) % self._slice.step
        steps = len(self.batches.division)
        if self._repeat is None and steps:
            return itertools.count(begin, self._slice.step)
        return iter(range(begin, (self._repeat or 0) * steps, self._slice.step))


class GrainIterator(grain.DatasetIterator):
    """An iterator of a `GrainDataset`, whose state Grain saves and loads."""

    def __init__(self, dataset: GrainDataset) -> None:
        super().__init__()
        self._dataset = dataset
        self._begin_at(0)

    def _begin_at(self, step: int) -> None:
        self._step = step
        self._batches = self._read(step)

    def _read(self, begin: int) -> Iterator[Any]:
        steps, ahead = itertools.tee(self._dataset.steps(begin))
        columns = self._dataset.columns
        for rows, bounds in self._dataset.batches.read(ahead):
            rows = columns.encoded(rows)
            for (first, last), step in zip(bounds, steps, strict=False):
                self._step = step + 1
                yield columns.arranged(columns.arrays(rows.slice(first, last - first)))

    def __next__(self) -> Any:
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """Return the state as JSON; it does not count batches that others have read ahead."""
        return self._dataset.batches.state(self._step)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue after the batches of a state."""
        self._begin_at(self._dataset.batches.step_at(state))
