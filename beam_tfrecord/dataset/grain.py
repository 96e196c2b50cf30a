"""Wraps a dataset as a Grain ``IterDataset``; importing this module imports Grain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import grain
import numpy.typing as npt

from beam_tfrecord.dataset.epochs import Division, Epochs
from beam_tfrecord.dataset.values import arrays_of, list_columns
from beam_tfrecord.errors import UsageError

Batch = dict[str, npt.NDArray[Any]]


class GrainDataset(grain.IterDataset):
    """An iterable of batches as dicts of NumPy arrays by column.

    See `beam_tfrecord.dataset.load.Dataset.grain` for the arguments.
    """

    def __init__(
        self, epochs: Epochs, division: Division, repeat: int | None, defaults: Mapping[str, Any]
    ) -> None:
        super().__init__()
        # Raises at once if a column cannot be an array, not at the first batch that lacks a value.
        list_columns(epochs.rows.schema, defaults)
        if repeat is not None and repeat < 0:
            raise UsageError(f"repeat must be at least 0, not {repeat}")
        self._epochs = epochs
        self._division = division
        self._repeat = repeat
        self._defaults = dict(defaults)
        self._slice = slice(0, None, 1)

    def set_slice(self, part: slice, sequential_slice: bool = False) -> None:
        """Read only the steps of a worker process: every ``step``-th; Grain calls this."""
        del sequential_slice
        first, stride = self._slice.start, self._slice.step
        self._slice = slice(first + stride * part.start, None, stride * part.step)

    def __iter__(self) -> GrainIterator:
        return GrainIterator(self)

    def __str__(self) -> str:
        return f"GrainDataset({self._epochs.rows!r}, {self._division})"

    def batches(self, begin: int) -> Iterator[tuple[int, Batch]]:
        """Yield the batches from a step on, counted over all epochs, each after the next step."""
        steps, stride = len(self._division), self._slice.step
        begin += (self._slice.start - begin) % stride
        while steps and (self._repeat is None or begin < self._repeat * steps):
            epoch, first = divmod(begin, steps)
            ranges = map(self._division.positions, range(first, steps, stride))
            for rows in self._epochs.batches(epoch, ranges):
                yield begin + 1, arrays_of(rows, self._epochs.rows.schema, self._defaults)
                begin += stride

    def state(self, step: int) -> dict[str, Any]:
        """Return the state before a step, as JSON: the examples that all processes have got."""
        epoch, steps = divmod(step, max(1, len(self._division)))
        delivered = self._division.delivered(steps)
        return {**self._epochs.identity, "epoch": epoch, "delivered": delivered}

    def step(self, state: Mapping[str, Any]) -> int:
        """Return the step at a state."""
        for name, value in self._epochs.identity.items():
            if state.get(name) != value:
                raise UsageError(
                    f"the state is not that of this dataset and order: its {name} is "
                    f"{state.get(name)}, not {value}"
                )
        step = self._division.step_after(state["delivered"])
        return int(state["epoch"]) * len(self._division) + step


class GrainIterator(grain.DatasetIterator):
    """An iterator of a `GrainDataset`, whose state Grain saves and loads."""

    def __init__(self, dataset: GrainDataset) -> None:
        super().__init__()
        self._dataset = dataset
        self._begin_at(0)

    def _begin_at(self, step: int) -> None:
        self._step = step
        self._batches = self._dataset.batches(step)

    def __next__(self) -> Batch:
        self._step, batch = next(self._batches)
        return batch

    def get_state(self) -> dict[str, Any]:
        """Return the state as JSON; it does not count batches that others have read ahead."""
        return self._dataset.state(self._step)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue after the batches of a state."""
        self._begin_at(self._dataset.step(state))
