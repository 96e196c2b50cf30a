"""`Rows`: the rows of a dataset, read from its TFRecord shards or from Parquet files."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.base.extras import require
from beam_tfrecord.base.text import counted, listed, paragraph
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.format.manifest import Manifest, splits_html
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.loading.values import arrays_of, printing_images, rebatch
from beam_tfrecord.native import Picked
from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.records.tfrecord import RecordBlock

if TYPE_CHECKING:
    from typing import Self


# Rows are converted to Python objects in small slices: those of a full block need much memory.
_ROWS_AT_ONCE = 1024
# Bytes of the rows that are mixed with each other by default.
MIXED_BYTES = 64 * 10**6


class ShardFiles(Protocol):
    """A reader of the shards of a dataset: TFRecord files, or row groups of Parquet files."""

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that the files of shards exist and have the right sizes."""

    def blocks(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records of shards as framed bytes."""

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of the columns `names`."""

    def is_indexed(self, shards: Sequence[Shard]) -> bool:
        """Return whether single records of the shards can be read."""

    def rows(
        self, shards: Sequence[Shard], numbers: Int64Array, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Return the rows with these numbers over all the shards, and their columns `names`."""

    def pick(self, shard: Shard, numbers: Int64Array) -> Picked:
        """Return single records of a shard, with ascending numbers."""

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """The rows of one split or of all splits of a dataset, with all or some of its columns.

    Attributes:
        directory: Absolute path or URL that the paths in the manifest are relative to.
        manifest: The manifest of the dataset.
        split_names: Names of the splits to read.
        schema: Schema of the columns to read.
        files: Reader of the shards.
    """

    directory: str
    manifest: Manifest
    split_names: tuple[str, ...]
    schema: Schema
    files: ShardFiles

    def __len__(self) -> int:
        return sum(self.splits.values())

    def __repr__(self) -> str:
        counts = [f"{name}={count:,}" for name, count in self.splits.items()]
        return f"<Dataset {self.directory!r}: {listed(counts)}; {listed(self.schema.names)}>"

    def _repr_html_(self) -> str:
        splits = {name: self.manifest.splits[name] for name in self.split_names}
        title = paragraph(f"Dataset {self.directory!r}")
        return title + splits_html(splits) + self.schema._repr_html_()

    @property
    def splits(self) -> dict[str, int]:
        """Number of rows of every split that is read."""
        return {name: self.manifest.splits[name].examples for name in self.split_names}

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards that are read, in order."""
        return tuple(
            shard for name in self.split_names for shard in self.manifest.splits[name].shards
        )

    @property
    def content(self) -> str:
        """Hash that differs if any row or shard that is read differs; 64 hex digits."""
        shards = [(shard.path, shard.examples, shard.bytes, shard.xxh64) for shard in self.shards]
        return hashlib.sha256(repr((self.manifest.content, shards)).encode()).hexdigest()

    def generation_of(self, content: str) -> int | None:
        """Return the earlier generation of the dataset that has this `content`; None if none."""
        for number in range(1, len(self.manifest.generations)):
            if dataclasses.replace(self, manifest=self.manifest.at(number)).content == content:
                return number
        return None

    def path(self, shard: Shard) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self.directory, shard.path)

    def check_files(self) -> None:
        """Check that every shard exists and, if it is not compressed, has the right size.

        Raises:
            DataError: A shard is missing or has another size, or the dataset was replaced.
        """
        self.files.check(self.shards)

    def check_single_split(self) -> None:
        """Raise `UsageError` if these are the rows of several splits, which are not to be mixed."""
        if len(self.split_names) > 1:
            raise UsageError(
                f"these are the rows of the splits {listed(self.split_names)}: choose one, as "
                f"load(path, split={self.split_names[0]!r}) does"
            )

    def blocks(self) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield each shard with blocks of its framed records; check every CRC, count and size.

        A framed record is an example with its length and checksums, as in a TFRecord file.

        Raises:
            DataError: A shard is missing, is damaged or does not fit the manifest, or the dataset
                was replaced.
        """
        self.check_files()
        yield from self.files.blocks(self.shards)

    def examples(self) -> Iterator[bytes]:
        """Yield every serialized example, always with all of its features.

        Raises:
            DataError: A shard is damaged, or the dataset was replaced.
        """
        for _, block in self.blocks():
            yield from block.payloads()

    def batches(self, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches; memory does not grow with the size of the dataset.

        Args:
            batch_rows: Number of rows of every batch except the last; None means the rows of about
                8 MB.

        Raises:
            UsageError: `batch_rows` is less than 1.
            DataError: A shard is damaged, or its examples do not fit the schema.
        """
        if batch_rows is None:
            return self._batches()
        if batch_rows < 1:
            raise UsageError(f"a batch must have at least 1 row, not {batch_rows}")
        return rebatch(self._batches(), batch_rows)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self.check_files()
        yield from self.files.batches(self.shards, self.schema.names)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row as a dict of Python values; a missing value is None."""
        for batch in self._batches():
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield from python_rows(batch.slice(start, _ROWS_AT_ONCE), shaped=True)

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> pa.RecordBatch:
        """Return single rows in a given order; only these are read.

        Args:
            indices: Numbers of rows, from 0 in the order of the dataset; negative ones count from
                the end. A number may appear several times.

        Returns:
            The rows, one for each index.

        Raises:
            IndexError: There is no such row.
            TypeError: The indices are no integers.
            UsageError: The dataset has no index, or its shards are compressed.
            DataError: A record is damaged, or the dataset was replaced.
        """
        found = np.asarray(indices)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            # NumPy would make numbers of a mask, and cut off fractions.
            raise TypeError("indices must be a list or an array of integers with one axis")
        if not found.size:
            return pa.RecordBatch.from_pylist([], self.files.arrow_schema(self.schema.names))
        count = len(self)
        # In their own type: int64 would make other numbers of those from 2^63 on.
        if not (-count <= found.min() and found.max() < count):
            outside = found[(found < -count) | (found >= count)]
            raise IndexError(
                f"row {outside[0]:,} does not exist: there are {counted(count, 'row')}"
            )
        numbers = found.astype(np.int64)
        numbers = np.where(numbers < 0, numbers + count, numbers)
        return self.files.rows(self.shards, numbers, self.schema.names)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    @overload
    def __getitem__(self, index: str) -> npt.NDArray[Any]: ...

    def __getitem__(
        self, index: int | slice | str
    ) -> dict[str, Any] | list[dict[str, Any]] | npt.NDArray[Any]:
        """Return a row, or the rows of a slice, as dicts of Python values; see `take`.

        The name of a column gives its values as ``numpy()[name]`` does.
        """
        if isinstance(index, str):
            column = dataclasses.replace(self, schema=self.schema.select([index]))
            return arrays_of(column.arrow(), column.schema)[index]
        if isinstance(index, slice):
            rows = self.__getitems__(range(*index.indices(len(self))))
            return [printing_images(row) for row in rows]
        return printing_images(self.__getitems__([operator.index(index)])[0])

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows as dicts; PyTorch's ``DataLoader`` reads batches by this method."""
        return python_rows(self.take(indices), shaped=True)

    # Grain reads batches by a method of this name.
    _getitems = __getitems__

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def arrow(self) -> pa.Table:
        """Return all rows as one table in memory."""
        schema = self.files.arrow_schema(self.schema.names)
        return pa.Table.from_batches(list(self._batches()), schema=schema)

    def to_pandas(self) -> Any:
        """Return all rows as a DataFrame of pandas; integers with missing values stay exact."""
        return self._frame("pandas").to_pandas(integer_object_nulls=True)

    def to_polars(self) -> Any:
        """Return all rows as a DataFrame of polars."""
        table = self._frame("polars")
        import polars

        return polars.from_arrow(table)

    def _frame(self, package: str) -> pa.Table:
        """Return all rows for a DataFrame of a package, which has no type for tensors."""
        require(package, f"load(...).to_{package}()")
        for feature in self.schema.features:
            if isinstance(feature.type, (pa.FixedShapeTensorType, TensorType)):
                raise UsageError(
                    f"column {feature.name!r} holds tensors, for which {package} has no type: "
                    "leave it out with load(columns=[…]), or use numpy()"
                )
        return self.arrow()

    def of_shards(self, index: int, count: int) -> Self:
        """Return the rows for one of `count` readers: every `count`-th shard from `index` on.

        Parts have about the same number of rows only if `count` divides the number of shards.

        Args:
            index: Number of the part, from 0.
            count: Number of parts.

        Raises:
            UsageError: `index` is not below `count`, or there are fewer shards than `count`, so
                that a part would have no rows.
        """
        if not 0 <= index < count:
            raise UsageError(f"shard {index} of {count} does not exist: count from 0")
        if 0 < len(self.shards) < count:
            raise UsageError(
                f"too few shards ({len(self.shards)}) for {count} readers: write the dataset with "
                f"shards={count} or more, or let each reader take one row in {count} of all"
            )
        return self.part(index, count)

    def part(self, index: int, count: int) -> Self:
        """Return the rows of every `count`-th shard from number `index` on, possibly of none."""
        part = frozenset(self.shards[index::count])
        splits = {
            name: Split(tuple(shard for shard in split.shards if shard in part))
            for name, split in self.manifest.splits.items()
        }
        return dataclasses.replace(self, manifest=dataclasses.replace(self.manifest, splits=splits))


def mixed_rows(rows: Rows, shuffle: bool | int) -> int:
    """Return the size of a shuffle buffer in rows: `shuffle`, or if True the rows of 64 MB."""
    if shuffle is not True:
        return max(1, int(shuffle))
    nbytes = sum(shard.bytes for shard in rows.shards)
    mean_bytes = max(1, nbytes // max(1, len(rows)))
    return max(1, min(len(rows), MIXED_BYTES // mean_bytes))
