"""A dataset as a PyTorch ``IterableDataset``; importing this module imports PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import distributed
from torch.multiprocessing.reductions import reduce_tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from beam_tfrecord.dataset.epochs import Division, Epochs
from beam_tfrecord.dataset.rows import Rows
from beam_tfrecord.dataset.tf_decoding import IMAGE
from beam_tfrecord.dataset.torch_images import ImageTensors, image_tensors
from beam_tfrecord.dataset.torch_progress import Progress
from beam_tfrecord.dataset.torch_values import Columns
from beam_tfrecord.dataset.values import checked_categories
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.images import Fault
from beam_tfrecord.type_checks import as_words

# A tensor of up to this size costs less in the pipe from a worker than in shared memory.
_PIPE_BYTES = 2**17


class TorchDataset(IterableDataset):
    """An iterable of batches, or of single rows, of one rank.

    See `beam_tfrecord.dataset.load.Dataset.torch` for the arguments and for what a batch has. Pass
    it to a ``DataLoader`` with ``batch_size=None``, use `loader`, or iterate it in this process.

    Each iteration reads the next epoch, also that of a ``DataLoader`` with workers. `len` is the
    number of batches (or rows) of this rank in an epoch.
    """

    def __init__(
        self,
        dataset: Rows,
        batch_size: int | None,
        columns: Columns,
        images: ImageTensors | None,
        *,
        label: str | Sequence[str] | None,
        only_images: bool,
        shuffle: bool | int,
        seed: int | None,
        drop_remainder: bool,
        ranks: tuple[int, int] | None,
    ) -> None:
        super().__init__()
        self._columns, self._images, self._only_images = columns, images, only_images
        self._label = label
        self._is_batch = batch_size is not None
        self._has_own_ranks = ranks is not None
        self._epochs = Epochs(dataset, shuffle=shuffle, seed=seed)
        size = 1 if batch_size is None else batch_size
        ranks = ranks or _ranks_of_torch()
        self.division = Division(len(dataset), size, *ranks, drop_remainder)
        self.progress = Progress(len(self.division))
        # Iterations that this worker process has begun; and where its next one begins, if a state
        # says so.
        self._begun = 0
        self._resumed: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.division)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        return self._counted(0, 1) if info is None else self._of_worker(info)

    def _of_worker(self, info: Any) -> Iterator[Any]:
        """Return the batches of a worker: those of every step that is its turn."""
        use_pipe_for_small_tensors()
        if self._resumed is None:
            # The workers of an iteration have one seed, which differs in the next iteration unless
            # the workers stay.
            epoch, first = self.progress.begin((info.seed - info.id, self._begun))
            first += info.id
        else:
            epoch, first = self._resumed
        self._begun, self._resumed = self._begun + 1, None
        self.progress.position = (epoch, first)
        return self._counted(first, info.num_workers, epoch)

    def _counted(self, first: int, stride: int, epoch: int | None = None) -> Iterator[Any]:
        """Yield the batches of every `stride`-th step; without an epoch, begin the next one."""
        if epoch is None:
            epoch, first = self.progress.begin()
        for step, batch in zip(itertools.count(first, stride), self.read(epoch, first, stride)):
            self.progress.position = (epoch, step + stride)
            yield batch

    def read(self, epoch: int, first: int = 0, stride: int = 1) -> Iterator[Any]:
        """Yield the batches of this rank at every `stride`-th step of an epoch from `first` on."""
        own = self.division.rank, self.division.world
        if not self._has_own_ranks and _ranks_of_torch() not in ((0, 1), own):
            raise UsageError(
                "torch.distributed was initialized after torch() was called: call torch() later, "
                "or pass rank= and world="
            )
        steps = range(first, len(self.division), stride)
        ranges = map(self.division.positions, steps)
        convert = self._columns.batches if self._is_batch else self._columns.rows
        groups = self._epochs.groups(epoch, ranges)
        converted = itertools.chain.from_iterable(convert(*group) for group in groups)
        for step, columns in zip(steps, converted, strict=True):
            yield self._arranged(columns, epoch, step)

    def _arranged(self, columns: dict[str, Any], epoch: int, step: int) -> Any:
        """Return the features, or features and labels, of a batch or row."""
        if self._images is not None:
            columns[IMAGE] = self._decoded(columns[IMAGE], epoch, step)
        label = self._label
        labels = () if label is None else (label,) if isinstance(label, str) else label
        targets = {name: columns.pop(name) for name in labels}
        features = columns[IMAGE] if self._only_images else columns
        if not labels:
            return features
        return features, targets[label] if isinstance(label, str) else targets

    def _decoded(self, images: Any, epoch: int, step: int) -> Any:
        assert self._images is not None
        start, _ = self.division.positions(step)
        tensors = []
        for position, data in enumerate(images if self._is_batch else [images], start):
            try:
                tensors.append(self._images.decode(data))
            except Fault as fault:
                row = self._epochs.row(epoch, position)
                at = f"position {position:,} of epoch {epoch:,}" if row is None else f"row {row:,}"
                raise DataError(
                    f"the image of {at} {fault.reason}: write the dataset again without it, with "
                    "--check decode"
                ) from fault
        return self._images.stacked(tensors) if self._is_batch else self._images.single(tensors[0])

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch, as that of ``DistributedSampler`` does."""
        self.progress.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return how many examples have been delivered, as JSON, for `load_state_dict`.

        In this process these are the batches of `loader`, or of an iteration without workers. In a
        worker process, ``StatefulDataLoader`` calls this method.
        """
        info = get_worker_info()
        epoch, step = self.progress.position
        if info is None:
            if self.progress.is_of_workers:
                raise UsageError(
                    "worker processes read the epoch, so only their loader knows its state: use "
                    ".torch(...).loader(num_workers=...), or StatefulDataLoader"
                )
            # After the last step, the next epoch begins.
            is_whole = step >= len(self.division)
            return self._state(epoch + 1, 0) if is_whole else self._state(epoch, step)
        state = self._state(epoch, step)
        return {**state, "worker": info.id, "workers": info.num_workers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin after the examples that had been delivered."""
        epoch, step = self._position_of(state)
        info = get_worker_info()
        seen = (None, None) if info is None else (info.id, info.num_workers)
        worker, workers = state.get("worker"), state.get("workers")
        if (worker, workers) != seen:
            if workers is None:
                raise UsageError("the state is not that of a worker: load it in the main process")
            raise UsageError(
                f"the state is that of worker {worker} of {workers}: load it with a "
                f"StatefulDataLoader of num_workers={workers}"
            )
        if info is None:
            self.progress.reset(epoch, step)
        else:
            # Other workers begin this epoch by states of their own; the next one is the same for
            # all.
            self.progress.reset(epoch + 1, 0)
            self._resumed = (epoch, step)

    def _state(self, epoch: int, step: int) -> dict[str, Any]:
        return {
            **self._epochs.identity,
            "epoch": epoch,
            "delivered": self.division.delivered(step),
        }

    def _position_of(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Return the epoch and step at which a state lets the next iteration begin."""
        own = self._epochs.identity
        if missing := [name for name in (*own, "epoch", "delivered") if name not in state]:
            raise UsageError(f"this is no state of a dataset: it has no {missing[0]!r}")
        if state["dataset"] != own["dataset"]:
            raise UsageError("the state is of another dataset: load the one that it was made with")
        if {name: state[name] for name in own} != own:
            raise UsageError(
                "the state is of another order: pass the shuffle= and seed= that it was made with"
                f" (seed {state['seed']})"
            )
        return state["epoch"], self.division.step_after(state["delivered"])

    def loader(self, num_workers: int = 0, **options: Any) -> TorchLoader:
        """Return a ``DataLoader`` that can stop and resume at any batch.

        It counts the batches that the training loop got, not those that workers read in advance.
        Its state fits another number of workers, and another number of ranks if ``batch_size`` x
        ranks stays equal: the sequence of the examples is as without the stop.

        Its position is that of this dataset, which all its loaders share: `set_epoch` and
        `load_state_dict` have the same effect on this object as on a loader.
        """
        return TorchLoader(self, num_workers, **options)


class _Steps:
    """The batches of all epochs by epoch and step: the map-style dataset of `TorchLoader`.

    Batches that a worker reads follow each other, so it goes on with an iterator.
    """

    def __init__(self, dataset: TorchDataset) -> None:
        self._dataset = dataset
        self._next: tuple[int, int] | None = None
        self._batches: Iterator[Any] = iter(())

    def __getitem__(self, index: tuple[int, int]) -> Any:
        epoch, step = index
        info = get_worker_info()
        stride = 1 if info is None else info.num_workers
        if info is not None:
            use_pipe_for_small_tensors()
        if index != self._next:
            self._batches = self._dataset.read(epoch, step, stride)
        self._next = None
        batch = next(self._batches)
        self._next = (epoch, step + stride)
        return batch


class _StepSampler:
    """Yields the epoch and the steps that an iteration of `TorchLoader` reads."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.epoch = self.first = 0

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(itertools.repeat(self.epoch), range(self.first, self._steps))


class TorchLoader(DataLoader):
    """A ``DataLoader`` that can stop and resume at any batch; made by `TorchDataset.loader`.

    Each iteration reads the next epoch. `len` is the number of batches of a full epoch. The
    position is that of the dataset, which all its loaders share.
    """

    def __init__(self, dataset: TorchDataset, num_workers: int, **options: Any) -> None:
        if not options.get("in_order", True):
            raise UsageError("a loader that can resume reads in order: leave in_order out")
        self._whole = dataset
        options.setdefault("collate_fn", _unchanged)
        super().__init__(
            _Steps(dataset),
            batch_size=None,
            sampler=_StepSampler(len(dataset)),
            num_workers=num_workers,
            **options,
        )

    def __iter__(self) -> Iterator[Any]:
        progress = self._whole.progress
        epoch, first = progress.begin()
        self.sampler.epoch, self.sampler.first = epoch, first
        for step, batch in enumerate(super().__iter__(), first + 1):
            progress.position = (epoch, step)
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch; see `TorchDataset.set_epoch`."""
        self._whole.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return how many examples all ranks have got, as JSON, for `load_state_dict`."""
        return self._whole.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin after the examples that had been delivered."""
        self._whole.load_state_dict(state)


def _unchanged(batch: Any) -> Any:
    return batch


def use_pipe_for_small_tensors() -> None:
    """Send small tensors of this worker process by value: see `_PIPE_BYTES`."""
    ForkingPickler.register(torch.Tensor, _reduce_tensor)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    is_plain = tensor.device.type == "cpu" and not tensor.requires_grad
    if tensor.nbytes > _PIPE_BYTES or not is_plain or tensor.dtype == torch.bfloat16:
        return reduce_tensor(tensor)
    return torch.from_numpy, (tensor.numpy(),)


def _ranks_of_torch() -> tuple[int, int]:
    """Return the rank and the number of ranks of ``torch.distributed``; (0, 1) if it is not up."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _float_type(dtype: Any) -> torch.dtype | None:
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found is None and dtype is None:
        return None
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(
            f"dtype {dtype!r} is no floating-point type: pass one such as 'float32', or None to "
            "keep that of each column"
        )
    return found


def torch_dataset(
    dataset: Rows,
    batch_size: int | None,
    *,
    label: str | Sequence[str] | None,
    columns: Sequence[str] | None,
    categories: Mapping[str, Sequence[str]] | None,
    defaults: Mapping[str, Any] | None,
    nulls: float | str | None,
    dtype: Any,
    rank: int | None,
    world: int | None,
    image_size: tuple[int, int] | None,
    transform: Callable[[Any], Any] | None,
    decode: bool,
    **order: Any,
) -> TorchDataset:
    """Return the rows for PyTorch: see `beam_tfrecord.dataset.load.Dataset.torch`."""
    columns = None if columns is None else as_words("columns", columns)
    if (rank is None) != (world is None):
        raise UsageError("rank and world belong together: pass both, or none")
    floats = _float_type(dtype)
    images = image_tensors(dataset, columns, image_size, transform, floats, decode=decode)
    only_images = columns is None and images is not None
    features = (IMAGE,) if only_images else dataset.schema.names if columns is None else columns
    labels = (label,) if isinstance(label, str) else label or ()
    schema = dataset.manifest.schema.select(dict.fromkeys((*features, *labels)))
    if not schema.features:
        raise UsageError("there is no column to read: choose at least one")
    defaults = {} if defaults is None else defaults
    for name in labels:
        # No number that replaces missing features is a right label.
        if schema[name].nullable and defaults.get(name, schema[name].default) is None:
            raise UsageError(
                f"label {name!r} has missing values: pass defaults={{{name!r}: …}}, or write the "
                "dataset without these rows"
            )
    converted = Columns(
        schema,
        dataset.files.arrow_schema(schema.names),
        dtype=floats,
        class_ids=(label,) if isinstance(label, str) else (),
        categories=checked_categories(categories),
        defaults=defaults,
        nulls=nulls,
    )
    return TorchDataset(
        dataclasses.replace(dataset, schema=schema),
        batch_size,
        converted,
        images,
        label=label,
        only_images=only_images,
        ranks=None if rank is None or world is None else (rank, world),
        **order,
    )
