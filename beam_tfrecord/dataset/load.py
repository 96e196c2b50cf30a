"""Opens a dataset or Parquet files with `load`, and converts the rows for ML frameworks.

The manifest decides which files are read, never their names. Importing this module imports neither
Beam nor TensorFlow nor PyTorch: the methods that need TensorFlow or PyTorch import them.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.extras import require
from beam_tfrecord.base.text import cell, html_table, listed
from beam_tfrecord.dataset.parts import counts_of, joined, mixed
from beam_tfrecord.dataset.record_files import OpenedManifest, RecordFiles
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.format.manifest import Manifest, directory_of, manifest_path, near_datasets
from beam_tfrecord.format.stage import is_stage
from beam_tfrecord.frameworks.keras import keras_dataset
from beam_tfrecord.frameworks.tf import tf_dataset
from beam_tfrecord.loading.batches import IMAGE, BatchColumns, Batches, class_weight
from beam_tfrecord.loading.epochs import Division, order_of
from beam_tfrecord.loading.order import Order
from beam_tfrecord.loading.rows import Rows, ShardFiles
from beam_tfrecord.loading.value_text import short_text
from beam_tfrecord.loading.values import arrays_of, with_defaults
from beam_tfrecord.sources.base import wanted_columns
from beam_tfrecord.sources.files import suffix_of
from beam_tfrecord.storage import absolute_path, exists, is_remote, is_web, public_path

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import dtype as TorchType  # noqa: N812

    from beam_tfrecord.frameworks.grain import GrainDataset
    from beam_tfrecord.frameworks.torch import TorchDataset
    from beam_tfrecord.stats.statistics import Statistics

# A notebook shows charts of datasets up to this size, which it reads.
_SMALL_ROWS, _SMALL_BYTES, _THUMBNAILS, _HEAD = 100_000, 64 * 10**6, 8, 5


class Dataset(Rows):
    """The rows of a dataset, with conversions to NumPy, TensorFlow and PyTorch; made by `load`.

    Example:
        >>> bt.load("penguins/", split="test", columns=["species", "year"])[0]
        {...}
    """

    tf = tf_dataset
    keras = keras_dataset
    class_weight = class_weight
    # Errors of calls, and help, name a function by these.
    tf.__name__, tf.__qualname__ = "tf", "Dataset.tf"
    keras.__name__, keras.__qualname__ = "keras", "Dataset.keras"

    def _repr_html_(self) -> str:
        html = super()._repr_html_()
        nbytes = sum(shard.bytes for shard in self.shards)
        if len(self) > _SMALL_ROWS or nbytes > _SMALL_BYTES or is_remote(self.directory):
            return html
        from beam_tfrecord.stats.thumbnails import picture_html, pictures

        try:
            stats = self.stats()
            thumbnails = pictures(self, stats.total_json(), most=_THUMBNAILS)
            head = [list(map(short_text, row.values())) for row in itertools.islice(self, _HEAD)]
        except (BeamTFRecordError, OSError):
            return html  # whoever reads the rows gets the error
        first = html_table(list(map(cell, self.schema.names)), head)
        return f"{html}{stats._repr_html_()}{first}{''.join(map(picture_html, thumbnails))}"

    def order(self, seed: int | None = 0, epoch: int = 0, *, window: int | None = None) -> Order:
        """Return a random order of the rows, the same one in every program and on every machine.

        ``ds.take(ds.order(seed=1).indices(0, 256))`` returns the first 256 rows of an epoch.
        `tf` and `torch` read rows in this order. It needs no memory.

        Args:
            seed: Seed of all epochs, 0 to 2^64 - 1; None means 0, here and in all methods.
            epoch: Number of the epoch, 0 to 2^64 - 1; each has another order.
            window: Number of rows to mix at a time, about. Neighbouring rows then stay near each
                other, so that a window is read in few large ranges, as object stores need it. None
                makes a uniform permutation of all rows.

        Raises:
            UsageError: The seed or the epoch is out of range.
        """
        return order_of(self, check_seed(seed), epoch, window)

    def stats(self, split: str | None = None) -> Statistics:
        """Read all rows once, and return their statistics: counts, ranges, distributions.

        Means and deviations are exact, also of large data; the rest is exact for columns of at most
        2,048 different values, and an estimate beyond: see ``docs/statistics.md``.

        Args:
            split: Name of a split; None means each of the splits that are read.

        Raises:
            UsageError: There is no such split.
            DataError: A shard is damaged, or the dataset was replaced.
        """
        if split is not None and split not in self.split_names:
            raise UsageError(f"split {split!r} does not exist: choose {listed(self.split_names)}")
        from beam_tfrecord.stats.statistics import statistics_of

        names = self.split_names if split is None else (split,)
        return statistics_of(dataclasses.replace(self, split_names=names))

    def numpy(self, *, defaults: Mapping[str, Any] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one array per column, shape `[rows, …]`.

        Numbers and booleans keep their type. Times become datetime64 or timedelta64, and missing
        times NaT. Fixed-size lists and tensors of numbers become arrays of their shape. All other
        values (text, bytes, decimals, lists of varying length, nested values) become object arrays,
        with None for a missing value. If the schema has a NumPy dtype for a column, the array has
        this dtype, provided that it can hold all values.

        Args:
            defaults: Replacements of missing values, by column. Other columns use the default in
                the schema.

        Raises:
            UsageError: Numbers or booleans are missing and have no default. NumPy has no value for
                a missing number, and NaN could not be distinguished from a NaN in the data.
            DataError: A shard is damaged, or the dataset was replaced.
        """
        schema = with_defaults(self.schema, {} if defaults is None else defaults)
        return arrays_of(self.arrow(), schema)

    def torch(
        self,
        batch_size: int | None = None,
        *,
        label: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        shuffle: bool | int = False,
        seed: int | None = 0,
        categories: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
        nulls: float | Literal["mask"] | None = None,
        dtype: TorchType | str | None = "float32",
        image_size: tuple[int, int] | None = None,
        transform: Callable[[Image], Any] | None = None,
        decode: bool = True,
        drop_remainder: bool = False,
        rank: int | None = None,
        world: int | None = None,
    ) -> TorchDataset:
        """Return a PyTorch ``Dataset`` of batches as dicts by column, in the order of `Epochs`.

        Numbers and booleans are writable tensors: floats of `dtype`, all others of their own type.
        Times are int64 in the unit of the column. Fixed-size lists and tensors have the shape
        ``[rows, …]``. All else is a Python list in every batch: text, bytes, decimals, nested
        values, and lists of varying length, each of which is a tensor if it has numbers.

        Each iteration reads the next epoch; the seed decides the order of all of them. Any number
        of ``DataLoader`` workers and of ranks reads each example once in an epoch, also of a single
        shard. Iterate the result in this process, or ``loader(num_workers=…)``: a ``DataLoader``
        with ``set_epoch``, ``state_dict`` and ``load_state_dict``, which can resume at any batch.
        Another ``DataLoader`` needs ``sampler=`` the attribute ``sampler`` of the result.

        Images (the column ``image`` of `ReadFromImages`) are decoded to RGB of shape
        ``[3, height, width]``, from 0 to 1, by `images.decode.rgb_pixels`. If `columns` is None the
        result has only the images and the label.

        Args:
            batch_size: Number of rows per batch, in which case a ``DataLoader`` needs
                ``batch_size=None``; None means single rows.
            label: Column, or columns, to return as the second part of ``(features, label)``. A
                single label of integers is int64.
            columns: Columns to return besides the label; None means all columns of the dataset.
            shuffle: True reads each epoch in another random order: see `Epochs`. A number is the
                number of rows to mix at a time. False keeps the order of the dataset.
            seed: Seed of all orders.
            categories: Categories of text columns, by column; text becomes the position of its
                category, int64, from 0. Other text fails when its batch is read.
            defaults: Replacements of missing values, by column.
            nulls: Replacement of all missing numbers of features without a default; or ``"mask"``
                for zeros and a boolean tensor ``<column>_mask`` among the features, True for a
                value that is present. Without it, a missing time is the smallest int64. A number of
                a category does not replace missing text.
            dtype: Type of all floats; None keeps those of the schema, and uint8 for images.
            image_size: Height and width in pixels to resize images to, bilinear and with
                antialiasing; None if all images have the same size.
            transform: Function that makes a tensor of each image, an RGB ``PIL.Image.Image``.
            decode: False returns images as the bytes of their files.
            drop_remainder: Leave out the examples after the last full batch of all ranks. Otherwise
                the first examples of the epoch fill up the last batch so that all ranks have
                equally many, as ``DistributedSampler`` does.
            rank: Number of this rank; None takes both from ``torch.distributed`` if that is
                initialized before this call, else there is a single rank.
            world: Number of ranks.

        Raises:
            UsageError: There are several splits, an option names no column, a column of numbers may
                have missing values by its schema and no replacement, images have several sizes, or
                PyTorch is not installed.
        """
        require("torch", "load(...).torch()")
        self.check_single_split()
        from beam_tfrecord.frameworks.torch import TorchDataset, ranks_of_torch
        from beam_tfrecord.frameworks.torch_tensors import Tensors, float_type, image_tensors

        if (rank is None) != (world is None):
            raise UsageError("rank and world belong together: pass both, or none")
        floats = float_type(dtype)
        images = image_tensors(self, columns, image_size, transform, floats, decode=decode)
        only_images = columns is None and images is not None
        if only_images:
            columns = [IMAGE]
        found = BatchColumns(
            self, columns, label, categories=categories, defaults=defaults, nulls=nulls
        )
        tensors = Tensors(found, floats, label if isinstance(label, str) else None)
        ranks = ranks_of_torch() if rank is None or world is None else (rank, world)
        rows = 1 if batch_size is None else batch_size
        division = Division(len(self), rows, *ranks, drop_remainder)
        return TorchDataset(
            Batches(found.rows, division, shuffle=shuffle, seed=seed),
            found,
            tensors,
            images,
            only_images=only_images,
            is_batch=batch_size is not None,
            has_own_ranks=rank is not None,
        )

    def grain(
        self,
        batch_size: int,
        *,
        label: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        shuffle: bool | int = False,
        seed: int | None = 0,
        repeat: int | None = 1,
        shard: tuple[int, int] = (0, 1),
        drop_remainder: bool = False,
        categories: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
        nulls: float | Literal["mask"] | None = None,
    ) -> GrainDataset:
        """Return a Grain ``IterDataset`` of batches, for JAX.

        A batch is a dict of NumPy arrays by column, with the types of `numpy` and shape
        `[rows, …]`. An epoch has each example once, in the same order for any number of processes
        and workers, as long as ``batch_size * count`` is constant. The state of an iterator can be
        loaded by an iterator of another `count` then.

        Args:
            batch_size: Number of examples in a batch.
            label: Column, or columns, to return as the second part of ``(features, label)``.
            columns: Columns to return besides the label; None means all columns of the dataset.
            shuffle: True reads every epoch in another order; a number is the number of examples to
                mix at a time. See ``docs/reading.md``.
            seed: Seed of the orders, 0 to 2^64 - 1.
            repeat: Number of epochs; None repeats without end. A new iterator begins with the first
                epoch again.
            shard: ``(index, count)``: the part of one of several processes, such as
                ``(jax.process_index(), jax.process_count())``.
            drop_remainder: Leave out the examples that do not fill a batch of each process.
            categories: Categories of text columns, by column: see `torch`.
            defaults: Replacements of missing values, by column.
            nulls: Replacement of all missing numbers, or ``"mask"``: see `torch`.

        Raises:
            UsageError: There are several splits, a column of numbers may have missing values by
                its schema and has no replacement, an argument is out of range, or Grain is not
                installed.
        """
        require("grain", "load(...).grain()")
        self.check_single_split()
        from beam_tfrecord.frameworks.grain import GrainDataset

        found = BatchColumns(
            self, columns, label, categories=categories, defaults=defaults, nulls=nulls
        )
        division = Division(len(self), batch_size, *shard, drop_remainder)
        batches = Batches(found.rows, division, shuffle=shuffle, seed=seed)
        return GrainDataset(found, batches, repeat)


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
    generation: int | None = None,
) -> Dataset:
    """Open a dataset, or several as one; only manifests are read, or the footers of Parquet files.

    TFRecord files of other programs are read once, to find the types of their columns.

    Sizes and times of local shards are recorded, so that a change while they are read is detected.

    Args:
        path: Path of the dataset's directory, its manifest, or its file prefix; or of Parquet
            files or TFRecord files of other programs, which have a single split named ``data``. A
            list of paths is read as one dataset, whose splits have the rows of all.
        split: Name of the split to read, part of it such as ``train[:10%]``, ``train[100:200]`` or
            ``train[-1000:]``, or several of these as ``train+test``; of each path. Percents are
            rounded down to whole rows. None means all splits, in the order of the manifest.
        columns: Names of the columns to read, in this order; None means all columns.
        generation: Read the dataset as of this generation: 1 is what `write` wrote, and each
            `append` makes one more. None means the last one.

    Returns:
        The dataset, whose methods read and convert its rows.

    Raises:
        UsageError: There is no dataset, or no such split, column or generation, `columns` is empty,
            or the columns of several datasets differ.
        DataError: The manifest or a file is damaged.

    Example:
        >>> train = bt.load("penguins/", split="train")
        >>> len(train), train[7]["species"]
        (278, 'Adelie')
    """
    names = wanted_columns(columns)
    if isinstance(path, str | os.PathLike):
        opened = _open(path, generation)
    elif generation is not None:
        raise UsageError("generation is that of one dataset: load each one, or leave it out")
    elif isinstance(path, Sequence) and path:
        opened = joined([load(one, columns=names) for one in path], split)
    else:
        raise UsageError(f"load needs a path, or a list of some, not {path!r:.80}")
    if split is not None and split not in tuple(opened.manifest.splits):
        opened = joined([opened], split)
    schema = opened.schema if names is None else opened.schema.select(names)
    split_names = tuple(opened.manifest.splits) if split is None else (split,)
    return dataclasses.replace(opened, split_names=split_names, schema=schema)


def mix(
    weights: Mapping[str | os.PathLike[str], Any],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
    seed: int | None = 0,
    steps: int | None = None,
    batch_size: int | None = None,
    until: Literal["first", "all"] | None = None,
    since: tuple[int, Dataset] | None = None,
) -> Dataset:
    """Open several datasets as one, in which each has a given share of the rows.

    Among the first rows, however many, each dataset has its share up to less than one row. Every
    row of a dataset comes once before any comes again, each time in another random order. Batches
    are read in this order: each step, a batch of every rank, has these shares, and its rows change
    places between ranks. The next epoch goes on where the one before ended.

    Args:
        weights: Share of each dataset by its path, as for `load`: numbers in any unit, or text such
            as ``"1/3"``. They are exact fractions, of which 65,536 rows are the largest
            denominator: others are rounded to it.
        split: Which rows of each dataset to read, as for `load`; may be left out if each has only
            one split.
        columns: Names of the columns to read; None means all columns.
        seed: Seed of all orders, 0 to 2^64 - 1.
        steps: Number of steps of an epoch, each of `batch_size` rows.
        batch_size: Number of rows of a step, of all ranks together, for `steps` and `since`.
        until: Where an epoch ends without `steps`: ``"first"``, which is the default, before the
            first row that comes again; ``"all"`` once every row has come.
        since: A number of steps, counted over all epochs, and the earlier mixture that delivered
            them: its datasets go on from there, with the new weights.

    Returns:
        A dataset with all methods, whose rows are in the order of the mixture.

    Raises:
        UsageError: A weight is not above 0, or below 1/65,536 of all; a dataset has no rows, no
            index or several splits; columns differ; or an argument is out of range.

    Example:
        >>> both = bt.mix({"penguins/": 3, "others/": 1}, split="train", steps=100, batch_size=32)
        >>> len(both)
        3200
    """
    counts = counts_of(weights)
    datasets = [load(path, split=split, columns=columns) for path in weights]
    return mixed(datasets, counts, check_seed(seed), steps, batch_size, until, since)


def is_loadable(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is one for `load`, not that of other files or of a database."""
    if os.path.exists(os.path.join(path, "manifest.json")):
        return True
    from beam_tfrecord.sources.choose import detect_kind

    return path != "-" and detect_kind(path) in ("parquet", "tfrecord")


def _open(path: str | os.PathLike[str], generation: int | None) -> Dataset:
    """Return all splits and columns of a dataset, or of Parquet files."""
    # Below the URL of a file there is nothing to ask for: some servers forbid it.
    is_file = is_web(path) and suffix_of(os.fspath(path)) not in ("", ".json")
    file = "" if is_file else absolute_path(manifest_path(path))
    # Recorded before the manifest is read, to detect that it is replaced meanwhile.
    opened = OpenedManifest.of(file)
    staged = is_stage(path)
    if staged or not exists(file):
        # Imported here, since it would add a tenth to the time of opening TFRecord datasets.
        from beam_tfrecord.dataset.parquet import is_parquet, open_parquet

        # The Parquet files in a directory of datasets may be their rejects.
        holds = os.path.isdir(path) and not all(map(is_stage, near_datasets(os.fspath(path))))
        if staged or (is_parquet(path) and not holds):
            manifest, rows = open_parquet(path, opened)
            return _whole(public_path(absolute_path(path)), manifest, rows)
        from beam_tfrecord.dataset.without_manifest import is_foreign, open_foreign

        if is_foreign(path):
            directory, manifest = open_foreign(path)
            return _whole(directory, manifest, RecordFiles(directory, manifest, opened))
    manifest = Manifest.load(path)
    manifest = manifest if generation is None else manifest.at(generation)
    directory = directory_of(file)
    return _whole(directory, manifest, RecordFiles(directory, manifest, opened))


def _whole(directory: str, manifest: Manifest, files: ShardFiles) -> Dataset:
    return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, files)
