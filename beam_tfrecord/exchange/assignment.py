"""`Assigner`: gives each record its sort key and its split.

The *sort key* of a record is its position in the order of the dataset, a 64-bit number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import NO_SPLIT, SPLIT_TWICE, Layout, Splits, is_split_name
from beam_tfrecord.format.sort_keys import (
    Lineage,
    purpose_seed,
    sort_keys_after_input,
    sort_keys_by_origin,
    sort_keys_in_source_order,
)
from beam_tfrecord.format.tally import content_columns
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.records.encoding import ColumnHashes
from beam_tfrecord.rows.batch import Batch, Origin, Reject
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.parse import naming
from beam_tfrecord.selection.select import exact_data

SplitNumbers = npt.NDArray[np.uint16]


@dataclasses.dataclass(frozen=True, eq=False)
class Records:
    """The records that were made of a batch.

    Attributes:
        data: Framed records.
        starts: Where each of them begins, shape `[records]`.
        rows: The row of the batch that each was made of, shape `[records]`.
        hashes: Hash of each by which it is split, shape `[records]`, if it is known.
    """

    data: UInt8Array
    starts: Int64Array
    rows: Int64Array
    hashes: UInt64Array | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Assigned:
    """What records were assigned.

    Attributes:
        sort_keys: Sort key of each record, shape `[records]`.
        splits: Number of the split of each, shape `[records]`; None if there is only one split.
        torn: Number of source rows that became several rows, which are in different splits.
    """

    sort_keys: UInt64Array
    splits: SplitNumbers | None
    torn: int


class Assigner:
    """Assigns sort keys and splits to the records of one batch after the other."""

    def __init__(self, layout: Layout, schema: Schema | None, inputs: Lineage) -> None:
        self._layout = layout
        self._inputs = inputs
        self._columns = ColumnHashes(schema)
        self._names = SplitNames(layout.splits)
        self._classes: dict[str | None, int] = {}
        self._sort_seed = purpose_seed(layout.seed, "place")
        self.split_seed = purpose_seed(layout.seed, "split")

    @property
    def split_names(self) -> tuple[str, ...]:
        """Name of every split number."""
        return self._names.all

    @property
    def classes(self) -> tuple[str | None, ...]:
        """Value of every class number."""
        return tuple(self._classes)

    def admit(self, batch: Batch) -> tuple[Batch, Int64Array, list[Reject]]:
        """Return the rows that have a split or get one, their numbers, and rejects for the others.

        Raises:
            DataError: Rows have a split that they must not have, or lack one.
        """
        if batch.num_rows and self._inputs.have_splits and batch.split is None:
            raise DataError(NO_SPLIT)
        is_twice = batch.split is not None and self._layout.splits.are_given
        if batch.num_rows and is_twice and not self._inputs.have_splits:
            raise DataError(SPLIT_TWICE)
        return self._names.reject_missing(batch)

    def columns(self, batch: Batch) -> tuple[str, ...]:
        """Return the columns of a batch that decide sort keys and splits."""
        return self._layout.columns if batch.split is None else self._layout.key

    def group(self, batch: Batch) -> tuple[str, ...] | None:
        """Return the columns whose hash decides the split: none for all bytes, None for no hash."""
        if self._layout.splits.is_single or batch.split or self._layout.splits.by_values:
            return None
        content = () if batch.encoded else content_columns(batch.data.schema)
        return self._layout.splits.group or content or self._layout.group

    def origin(self, batch: Batch) -> Origin | None:
        """Return the origin that gives rows their sort keys; None if their bytes do."""
        return None if self._layout.dedup else batch.exact_origin

    def assign(self, batch: Batch, records: Records) -> Assigned:
        """Assign sort keys and splits to the records of a batch.

        If rows have to be counted before, their hashes stand in for the sort keys, and the numbers
        of their classes for the splits.
        """
        if not len(records.rows):
            return Assigned(np.zeros(0, np.uint64), None, 0)
        if self._layout.splits.needs_counts:
            return Assigned(self._hashes(batch, records), self._class_numbers(batch, records), 0)
        splits = self._split(batch, records)
        return Assigned(self._sort_keys(batch, records), splits, self._torn(batch, records, splits))

    def _sort_keys(self, batch: Batch, records: Records) -> UInt64Array:
        layout, rows = self._layout, records.rows
        if layout.key:
            return self._columns.hashes(batch, layout.key, rows, self._sort_seed)
        number, bits = self._inputs.number(batch.step_path), self._inputs.bits
        if not layout.shuffle and batch.origin is not None:
            return sort_keys_in_source_order(batch.origin, rows, batch.num_rows, number, bits)
        if (origin := self.origin(batch)) is not None:
            return sort_keys_by_origin(origin, rows, batch.num_rows, self._sort_seed, number)
        sort_keys = native.hash_records(records.data, records.starts, self._sort_seed)
        return sort_keys if layout.shuffle else sort_keys_after_input(sort_keys, number, bits)

    def _split(self, batch: Batch, records: Records) -> SplitNumbers | None:
        splits = self._layout.splits
        if batch.split is not None:
            # An earlier step assigns splits: every row has one.
            return np.full(len(records.rows), self._names.number_of(batch.split), np.uint16)
        if splits.is_single:
            return None
        if splits.by_values:
            return self._names.numbers_of(batch)[records.rows]
        values = None if splits.strata is None else self._class_values(batch, records)
        return splits.assign(self._hashes(batch, records), values)

    def _hashes(self, batch: Batch, records: Records) -> UInt64Array:
        """Return the hash by which each record is split."""
        if group := self.group(batch):
            return self._columns.hashes(batch, group, records.rows, self.split_seed)
        if records.hashes is not None:
            return records.hashes
        hash_records = native.canonical_hashes if batch.encoded else native.hash_records
        return hash_records(records.data, records.starts, self.split_seed)

    def _class_values(self, batch: Batch, records: Records) -> pa.StringArray:
        """Return the value of the class of each record; null if all rows are one class."""
        if (name := self._layout.splits.stratify) is None:
            return pa.nulls(len(records.rows), pa.string())
        return column_text(batch, name, "--stratify").take(pa.array(records.rows))

    def _class_numbers(self, batch: Batch, records: Records) -> SplitNumbers:
        values = pc.dictionary_encode(self._class_values(batch, records), null_encoding="encode")
        numbers = self._classes
        found = [numbers.setdefault(one, len(numbers)) for one in values.dictionary.to_pylist()]
        check_classes(self._layout.splits, len(numbers))
        of_rows: npt.NDArray[np.int32] = values.indices.to_numpy()
        return np.array(found, np.uint16).take(of_rows)

    def _torn(self, batch: Batch, records: Records, splits: SplitNumbers | None) -> int:
        origin = batch.exact_origin
        if splits is None or self.group(batch) != () or origin is None or origin.sub is None:
            return 0
        rows = origin.row_numbers(batch.num_rows)[records.rows]
        is_torn = (rows[1:] == rows[:-1]) & (splits[1:] != splits[:-1])
        return len(np.unique(rows[1:][is_torn]))


def check_column(column: str, names: Sequence[str], *, of: str, where: str = "the rows") -> None:
    """Check that the columns `names` include the one that a flag, `of`, names."""
    if column not in names:
        raise UsageError(not_found(column, names, of=of, where=where))


def column_text(batch: Batch, name: str, flag: str) -> pa.StringArray:
    """Return the values of a column, which a flag names, as text."""
    check_column(name, batch.data.schema.names, of=flag)
    column = batch.data.column(name)
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise DataError(
            f"column {name!r} is {column.type} and cannot name splits or classes: choose a column "
            "of text"
        ) from error


MAX_CLASSES = 10_000


def check_classes(splits: Splits, number: int) -> None:
    """Check that there are not too many classes: the manifest has the limits of each."""
    if number > MAX_CLASSES:
        raise DataError(
            f"column {splits.stratify!r} of --stratify has more than {MAX_CLASSES:,} values: "
            "choose one with few"
        )


MAX_SPLITS = 1_000
NO_CONDITION = "no condition of --split holds: end it with a split for the rest, as in test=rest"


class SplitNames:
    """Numbers the names of splits: those of the layout first, then others as they appear."""

    def __init__(self, splits: Splits) -> None:
        self._splits = splits
        self._numbers = {name: i for i, name in enumerate(splits.names)}

    @property
    def all(self) -> tuple[str, ...]:
        """The name of every split number."""
        return tuple(self._numbers)

    def reject_missing(self, batch: Batch) -> tuple[Batch, Int64Array, list[Reject]]:
        """Reject the rows whose split column has no value, or for which no condition holds."""
        everything = np.arange(batch.num_rows)
        # Examples that lack a feature are refused.
        if not self._splits.by_values or not batch.num_rows or batch.split or batch.encoded:
            return batch, everything, []
        missing = self._found(batch) < 0
        if not missing.any():
            return batch, everything, []
        column = self._splits.column or ""
        message = f"split column {column!r} has no value" if column else NO_CONDITION
        rejects = [
            batch.reject(row, "no-split", message, column=column)
            for row in np.flatnonzero(missing).tolist()
        ]
        kept = np.flatnonzero(~missing)
        return batch.take(kept), kept, rejects

    def numbers_of(self, batch: Batch) -> npt.NDArray[np.uint16]:
        """Return the number of each row's split, by its values; shape `[rows]`."""
        numbers = self._found(batch)
        if (numbers < 0).any():
            raise DataError(NO_CONDITION)
        return numbers.astype(np.uint16)

    def _found(self, batch: Batch) -> Int64Array:
        """Return the number of each row's split; -1 if no value and no condition says it."""
        if (column := self._splits.column) is not None:
            encoded = pc.dictionary_encode(column_text(batch, column, "--split-column"))
            named = [self.number_of(name) for name in encoded.dictionary.to_pylist()]
            of_rows: npt.NDArray[np.int32] = encoded.indices.fill_null(-1).to_numpy()
            return np.array([*named, -1]).take(of_rows)
        numbers, data = np.full(batch.num_rows, -1), exact_data(batch)
        for number, (_, condition) in reversed(list(enumerate(self._splits.conditions))):
            with naming("--split"):
                holds = condition is None or pc.fill_null(rows_that_match(condition, data), False)
            numbers[np.asarray(holds)] = number
        return numbers

    def number_of(self, name: str) -> int:
        """Return the number of a split by its name; a new name gets the next number."""
        if name in self._numbers:
            return self._numbers[name]
        if not is_split_name(name):
            raise DataError(f"split {name!r} cannot be part of a file name: rename it in the data")
        if len(self._numbers) >= MAX_SPLITS:
            raise DataError(
                f"column {self._splits.column!r} names more than {MAX_SPLITS} splits: "
                "choose one with few values"
            )
        return self._numbers.setdefault(name, len(self._numbers))
