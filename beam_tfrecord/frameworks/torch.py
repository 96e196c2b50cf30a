"""A dataset as a map-style dataset of PyTorch; importing this module imports PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import distributed
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.frameworks.torch_tensors import ImageTensors, Tensors, use_pipe_for_small_tensors
from beam_tfrecord.images import ImageError
from beam_tfrecord.loading.batches import IMAGE, BatchColumns, Batches


class TorchDataset(Dataset):
    """The batches, or the single rows, of one rank.

    See `beam_tfrecord.dataset.load.Dataset.torch` for the arguments and for what a batch has.
    Iterate it in this process, use `loader`, or pass it to a ``DataLoader`` with
    ``batch_size=None, sampler=data.sampler``. Each iteration reads the next epoch. `len` is the
    number of batches (or rows) of this rank in an epoch.

    Attributes:
        sampler: Sampler of the steps of an epoch, which all loaders of this dataset share.
    """

    def __init__(
        self,
        batches: Batches,
        columns: BatchColumns,
        tensors: Tensors,
        images: ImageTensors | None,
        *,
        only_images: bool,
        is_batch: bool,
        has_own_ranks: bool,
    ) -> None:
        self._batches, self._columns, self._images = batches, columns, images
        columns.decodes_images = images is not None
        self._only = IMAGE if only_images else None
        self._is_batch = is_batch
        self._convert = tensors.batches if is_batch else tensors.rows
        self.sampler = StepSampler(batches, has_own_ranks=has_own_ranks)
        # The step after those that `_under_way` has yielded.
        self._next = -1
        self._under_way: Iterator[Any] = iter(())

    def __getstate__(self) -> dict[str, Any]:
        # An iterator stays in its process.
        return {**vars(self), "_next": -1, "_under_way": None}

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        first, stop = self.sampler.begin()
        yield from self.sampler.counted(first, self._read(range(first, stop)))

    def __getitem__(self, step: int) -> Any:
        return self.__getitems__([step])[0]

    def __getitems__(self, steps: Sequence[int]) -> list[Any]:
        """Return the batches of steps of `sampler` that follow each other."""
        if not all(isinstance(step, Step) for step in steps):
            raise UsageError(
                "batches are not chosen by number: pass sampler=data.sampler to the DataLoader, or "
                "use data.loader(num_workers=…)"
            )
        first, count = int(steps[0]), len(steps)
        workers = 1
        if info := get_worker_info():
            workers = info.num_workers
            use_pipe_for_small_tensors()
        if first != self._next:
            # The workers take turns, so those that this one reads later are known.
            turns = itertools.count(first, count * workers)
            own = itertools.chain.from_iterable(range(turn, turn + count) for turn in turns)
            self._under_way = self._read(own)
        self._next = -1
        found = list(itertools.islice(self._under_way, count))
        self._next = first + count * workers
        return found

    def _read(self, steps: Iterable[int]) -> Iterator[Any]:
        """Yield the batches of steps that increase."""
        steps, ahead = itertools.tee(steps)
        for rows, bounds in self._batches.read(ahead):
            for values in self._convert(rows, bounds):
                step = next(steps)
                if self._images is not None:
                    values[IMAGE] = self._decoded(self._images, values[IMAGE], step)
                yield self._columns.arranged(values, self._only)

    def _decoded(self, decoder: ImageTensors, images: Any, step: int) -> Any:
        tensors = []
        for number, data in enumerate(images if self._is_batch else [images]):
            try:
                tensors.append(decoder.decode(data))
            except ImageError as fault:
                option = "--format png" if fault.code == "unsupported" else "--check decode"
                raise DataError(
                    f"the image of {self._batches.row_text(step, number)} {fault.reason}: write "
                    f"the dataset again without it, with {option}"
                ) from fault
        return decoder.stacked(tensors) if self._is_batch else decoder.single(tensors[0])

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch, as that of ``DistributedSampler`` does."""
        self.sampler.set_epoch(epoch)

    def loader(self, num_workers: int = 0, **options: Any) -> TorchLoader:
        """Return a ``DataLoader`` that can stop and resume at any batch.

        It counts the batches that the training loop got, not those that workers read in advance.
        Its state fits another number of workers, and another number of ranks if ``batch_size`` x
        ranks stays equal: the sequence of the examples is as without the stop.

        Its position is that of this dataset, which all its loaders share.
        """
        return TorchLoader(self, num_workers, **options)


class Step(int):
    """The number of a step, counted over all epochs: an index of a `TorchDataset`."""


class StepSampler(Sampler):
    """The steps of one epoch, for a ``DataLoader``. Each iteration takes the next epoch."""

    def __init__(self, batches: Batches, *, has_own_ranks: bool) -> None:
        self.batches, self._has_own_ranks = batches, has_own_ranks
        # Where the next iteration begins, and how far the last one has come.
        self.step = self.delivered = 0

    def __len__(self) -> int:
        return len(self.batches.division)

    def __iter__(self) -> StepIterator:
        return StepIterator(self)

    def begin(self) -> tuple[int, int]:
        """Begin an iteration: return its first step, and the one after its last."""
        division = self.batches.division
        if not self._has_own_ranks and ranks_of_torch() not in (
            (0, 1),
            (division.rank, division.world),
        ):
            raise UsageError(
                "torch.distributed was initialized after torch() was called: call torch() later, "
                "or pass rank= and world="
            )
        first, self.step = self.step, self.batches.end_of_epoch(self.step)
        return first, self.step

    def counted(self, first: int, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield batches from the step `first` on, and count them."""
        self.delivered = first
        for self.delivered, batch in enumerate(batches, first + 1):
            yield batch

    def begin_at(self, step: int) -> None:
        """Let the next iteration begin at a step."""
        self.step = self.delivered = step

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch, from the step of a state of this epoch on."""
        first = self.batches.step_of_epoch(epoch)
        if not first <= self.step < self.batches.end_of_epoch(first):
            self.begin_at(first)


class StepIterator:
    """An iteration over the steps of one epoch, which ``StatefulDataLoader`` saves and loads.

    It takes its epoch at the first step: a ``DataLoader`` makes iterators that it does not use.
    """

    def __init__(self, sampler: StepSampler) -> None:
        self._sampler = sampler
        self._steps: tuple[int, int] | None = None

    def __iter__(self) -> StepIterator:
        return self

    def __next__(self) -> Step:
        step, stop = self._steps or self._sampler.begin()
        self._steps = step, stop
        if step == stop:
            raise StopIteration
        self._steps = step + 1, stop
        return Step(step)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is."""
        step, stop = self._steps or (self._sampler.step, None)
        return {**self._sampler.batches.state(step), "is_end": step == stop}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another iteration was."""
        self._sampler.begin_at(self._sampler.batches.step_at(state))
        # The iteration of a finished epoch has no more steps; the next one reads the next epoch.
        self._steps = (0, 0) if state["is_end"] else self._sampler.begin()


class TorchLoader(DataLoader):
    """A ``DataLoader`` that can stop and resume at any batch; made by `TorchDataset.loader`.

    Each iteration reads the next epoch. `len` is the number of batches of a full epoch. The
    position is that of the dataset, which all its loaders share.
    """

    def __init__(self, dataset: TorchDataset, num_workers: int, **options: Any) -> None:
        if not options.get("in_order", True):
            raise UsageError("a loader that can resume reads in order: leave in_order out")
        options.setdefault("collate_fn", _unchanged)
        super().__init__(
            dataset, batch_size=None, sampler=dataset.sampler, num_workers=num_workers, **options
        )

    def __iter__(self) -> Iterator[Any]:
        yield from self.sampler.counted(self.sampler.step, super().__iter__())

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch; see `TorchDataset.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return how many examples all ranks have got, as JSON, for `load_state_dict`."""
        state: dict[str, Any] = self.sampler.batches.state(self.sampler.delivered)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin after the examples that had been delivered."""
        self.sampler.begin_at(self.sampler.batches.step_at(state))


def _unchanged(batch: Any) -> Any:
    return batch


def ranks_of_torch() -> tuple[int, int]:
    """Return the rank and the number of ranks of ``torch.distributed``; (0, 1) if it is not up."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
