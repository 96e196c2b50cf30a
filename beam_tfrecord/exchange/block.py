"""`Block`: a buffer of encoded records, with the split and the sort position of each.

The sort position of a record is called its *sort key*: a 64-bit number by which the dataset is
sorted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.limits import refuse_limits
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import NO_SPLIT, SPLIT_TWICE, Layout, Splits, is_split_name
from beam_tfrecord.format.sort_keys import (
    ONE_INPUT,
    Inputs,
    purpose_seed,
    sort_keys_after_input,
    sort_keys_by_origin,
    sort_keys_in_source_order,
)
from beam_tfrecord.format.tally import Tally, content_columns, count_duplicates
from beam_tfrecord.native.values import Int64Array, UInt64Array
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import RUN_ROOM_BYTES, Arena, Encoder
from beam_tfrecord.records.examples import (
    Discovered,
    ForeignRecord,
    discovered_in,
    schema_of_discovered,
    types_in,
)
from beam_tfrecord.records.tfrecord import framed_records
from beam_tfrecord.rows.batch import Batch, Origin, Reject, count_rejects

# Batches are encoded in pieces of this size: it bounds memory if rows are large, such as images.
PIECE_BYTES = 16 * 2**20


class Block:
    """Encodes batches into records, and collects them until the caller clears the block.

    Clearing keeps the buffers for the next records.
    """

    def __init__(
        self, layout: Layout, schema: Schema | None = None, inputs: Inputs = ONE_INPUT
    ) -> None:
        self._layout = layout
        self._inputs = inputs
        self._given = schema
        self._encoder: Encoder | None = None
        self._encoded_for: pa.Schema | None = None
        self._columns = ColumnHashes(schema)
        self._sort_seed = purpose_seed(layout.seed, "place")
        self._split_seed = purpose_seed(layout.seed, "split")
        self._is_single = layout.splits.is_single
        self._names = SplitNames(layout.splits)
        self._sort_keys: list[UInt64Array] = []
        self._splits: list[npt.NDArray[np.uint16]] = []
        # By these hashes the last batch is split, if its examples were read for them.
        self._hashes: UInt64Array | None = None
        self.arena = Arena(capacity_bytes=RUN_ROOM_BYTES)
        self.tally = Tally()
        self.rejects: list[Reject] = []

    @property
    def size(self) -> int:
        """Bytes of framed records."""
        return self.arena.size

    @property
    def records(self) -> int:
        """Number of records."""
        return self.arena.records

    @property
    def sort_keys(self) -> UInt64Array:
        """Sort key of each record, shape `[records]`."""
        return np.concatenate(self._sort_keys) if self._sort_keys else np.zeros(0, np.uint64)

    @property
    def splits(self) -> npt.NDArray[np.uint16] | None:
        """Number of each record's split, shape `[records]`; None if there is only one split."""
        if self._is_single:
            return None
        return np.concatenate(self._splits) if self._splits else np.zeros(0, np.uint16)

    @property
    def split_names(self) -> tuple[str, ...]:
        """Name of every split number."""
        return self._names.all

    def clear_records(self) -> None:
        """Drop the records; keep the memory."""
        self.arena.reset()
        self._sort_keys.clear()
        self._splits.clear()

    def clear(self) -> None:
        """Drop the records, the tally and the rejects; keep the memory."""
        self.clear_records()
        self.tally = Tally()
        self.rejects = []

    def add(self, batch: Batch) -> Int64Array:
        """Add the records of a batch, with their sort keys and splits; count its rejects."""
        self.rejects += batch.rejects
        counted = Tally(
            rows=batch.rows_counted,
            rejects=count_rejects(batch.rejects),
            refused=batch.refused,
        )
        if not batch.data.num_columns:
            # Such a batch carries only counts and rejects: it shows no schema.
            self.tally = self.tally.merge(counted)
            return np.zeros(0, np.int64)
        if batch.num_rows:
            self._check_split(batch)
        batch, kept, rejects = self._names.reject_missing(batch)
        first = self.arena.records
        self._hashes = None
        if batch.encoded:
            tally, written = self._add_examples(batch), np.arange(batch.num_rows)
        else:
            tally, written, rejected = self._add_rows(batch)
            rejects += rejected
        starts = self.arena.used_starts()[first:]
        named = self._with_features(batch, starts, tally)
        self._sort_keys.append(self._sort_key(named, written, starts))
        if batch.split is not None:
            # An earlier step assigns splits: every row has one.
            self._is_single = False
        if not self._is_single:
            self._splits.append(self._split(named, written, starts))
        self.rejects += rejects
        counted = dataclasses.replace(
            counted,
            records=len(written),
            rejects=counted.rejects + len(rejects),
            sort_keys_by_bytes=(
                self._origin_of(batch) is None and not self._layout.key and batch.num_rows > 0
            ),
            splits_assigned=batch.split is not None if batch.num_rows else None,
            group=self._group(batch) if batch.num_rows else None,
            copies=count_duplicates(batch.data),
            torn=self._torn(batch, written),
        )
        self.tally = self.tally.merge(tally).merge(counted)
        return kept[written]

    def _check_split(self, batch: Batch) -> None:
        if self._inputs.have_splits:
            if batch.split is None:
                raise DataError(NO_SPLIT)
        elif batch.split is not None and self._layout.splits.are_given:
            raise DataError(SPLIT_TWICE)

    def _columns_for(self, batch: Batch) -> tuple[str, ...]:
        return self._layout.columns if batch.split is None else self._layout.key

    def _with_features(self, batch: Batch, starts: Int64Array, tally: Tally) -> Batch:
        """Decode those features of serialized examples that the layout names, if it names any."""
        names = self._columns_for(batch)
        if not (batch.encoded and batch.num_rows and names):
            return batch
        found = tally.discovered or self._discovered(batch, starts)
        for name in names:
            flag = self._layout.flag_of(name)
            check_column(name, list(found), of=flag, where="the examples")
            if found[name].present < batch.num_rows:
                raise UsageError(
                    f"feature {name!r} of {flag} is not in all examples: give it to all"
                )
        decoder = Decoder(schema_of_discovered({name: found[name] for name in names}))
        return batch.replace(data=decoder.decode(self.arena.data, starts), encoded=False)

    def _discovered(self, batch: Batch, starts: Int64Array) -> dict[str, Discovered]:
        """Return the features of serialized examples."""
        try:
            return discovered_in(self.arena.used_data(), starts, self._hashes, self._split_seed)
        except ValueError as error:
            *_, are_examples = native.canonicalize(batch.data.column(0))
            if are_examples.all():
                # A feature has values of two kinds.
                raise DataError(f"cannot write serialized examples: {error}") from error
            other = batch.data.column(0)[int(are_examples.argmin())].as_py()
            raise UsageError(
                f"cannot write {other!r:.60}: it is not a serialized tf.train.Example: to write "
                "any bytes, give WriteToTFRecord coder=beam.coders.BytesCoder()"
            ) from error

    def _add_examples(self, batch: Batch) -> Tally:
        refuse_limits(self._given, "serialized examples")
        column = batch.data.column(0)
        arena = self.arena
        first = arena.records
        if batch.framed:
            arena.add(*framed_records(column))
        else:
            arena.reserve(native.frame_bound(column), len(column))
            arena.size += native.frame(column, arena.data, arena.size, arena.starts[first:])
            arena.records += len(column)
        starts = arena.used_starts()[first:]
        if self._inputs.examples == "known" or not batch.num_rows:
            return Tally()
        self._hashes = np.empty(len(starts), np.uint64) if self._group(batch) == () else None
        if self._inputs.examples == "found":
            return Tally(discovered=self._types(batch, starts))
        try:
            return Tally(discovered=self._discovered(batch, starts))
        except UsageError:
            if self._inputs.examples != "any":
                raise
            # Such a dataset has no schema.
            self._hashes = None
            return Tally(opaque=True)

    def _types(self, batch: Batch, starts: Int64Array) -> dict[str, Discovered]:
        origin = batch.origin
        assert origin is not None
        file = (origin.address or (origin.unit, 0))[0].removesuffix(" record ")
        try:
            return types_in(self.arena.used_data(), starts, file, self._hashes, self._split_seed)
        except ForeignRecord as error:
            number = int(origin.row_numbers(batch.num_rows)[error.index])
            raise DataError(f"{origin.address_of(number)}: {error.reason}") from error

    def _add_rows(self, batch: Batch) -> tuple[Tally, Int64Array, list[Reject]]:
        encoder = self._encoder_of(batch)
        encoded = encoder.encode(batch, self.arena)
        left_out = frozenset(batch.data.schema.names) - set(encoder.schema.names)
        tally = Tally(schema=encoder.schema, observed=encoded.observed, left_out=left_out)
        return tally, encoded.rows, encoded.rejects

    def _encoder_of(self, batch: Batch) -> Encoder:
        arrow, layout = batch.data.schema, self._layout
        if self._encoder is None or (
            self._encoded_for is not arrow and self._encoded_for != arrow and self._given is None
        ):
            read = Schema.from_arrow(arrow)
            schema = read if self._given is None else self._given.with_labels_of(read)
            for column in self._columns_for(batch):
                check_column(column, arrow.names, of=layout.flag_of(column))
            self._encoder = Encoder(schema)
        self._encoded_for = arrow
        return self._encoder

    def _sort_key(self, batch: Batch, written: Int64Array, starts: Int64Array) -> UInt64Array:
        layout = self._layout
        if layout.key:
            return self._columns.hashes(batch, layout.key, written, self._sort_seed)
        number, bits = self._inputs.number(batch.step_path), self._inputs.bits
        if not layout.shuffle and batch.origin is not None:
            return sort_keys_in_source_order(batch.origin, written, batch.num_rows, number, bits)
        if (origin := self._origin_of(batch)) is not None:
            return sort_keys_by_origin(origin, written, batch.num_rows, self._sort_seed, number)
        sort_keys = native.hash_records(self.arena.data, starts, self._sort_seed)
        return sort_keys if layout.shuffle else sort_keys_after_input(sort_keys, number, bits)

    def _origin_of(self, batch: Batch) -> Origin | None:
        """Return the origin that gives rows their sort keys; None if their bytes do."""
        return None if self._layout.dedup else batch.exact_origin

    def _group(self, batch: Batch) -> tuple[str, ...] | None:
        """Return the columns whose hash decides the split: none for all bytes, None for no hash."""
        if self._is_single or batch.split or self._layout.splits.column:
            return None
        content = () if batch.encoded else content_columns(batch.data.schema)
        return self._layout.splits.group or content or self._layout.group

    def _torn(self, batch: Batch, written: Int64Array) -> int:
        """Return how many source rows became several rows that are in different splits."""
        origin = batch.exact_origin
        if self._group(batch) != () or origin is None or origin.sub is None:
            return 0
        rows, splits = origin.row_numbers(batch.num_rows)[written], self._splits[-1]
        is_torn = (rows[1:] == rows[:-1]) & (splits[1:] != splits[:-1])
        return len(np.unique(rows[1:][is_torn]))

    def _split(
        self, batch: Batch, written: Int64Array, starts: Int64Array
    ) -> npt.NDArray[np.uint16]:
        splits = self._layout.splits
        if batch.split is not None:
            return np.full(len(written), self._names.number_of(batch.split), np.uint16)
        if splits.column is not None:
            return self._names.numbers_of(batch)[written]
        if group := self._group(batch):
            return splits.assign(self._columns.hashes(batch, group, written, self._split_seed))
        if self._hashes is None:
            hash_records = native.canonical_hashes if batch.encoded else native.hash_records
            self._hashes = hash_records(self.arena.data, starts, self._split_seed)
        return splits.assign(self._hashes)


def pieces_of(batch: Batch, piece_bytes: int) -> Iterator[Batch]:
    """Yield a batch in pieces of about `piece_bytes` at most; a larger row is its own piece."""
    rows = max(1, batch.num_rows)
    step = max(1, rows * piece_bytes // max(batch.data.nbytes, piece_bytes))
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, min(start + step, rows))


def check_column(column: str, names: Sequence[str], *, of: str, where: str = "the rows") -> None:
    """Check that the columns `names` include the one that a flag, `of`, names."""
    if column not in names:
        raise UsageError(not_found(column, names, of=of, where=where))


class ColumnHashes:
    """Hashes columns by their canonical encoding, so that equal values of any source agree.

    Equal numbers have equal hashes: 0.0 and -0.0 share one, and all NaNs share one.
    """

    def __init__(self, given: Schema | None) -> None:
        self._given = given
        self._encoders: dict[tuple[str, ...], tuple[pa.Schema, Encoder]] = {}
        self._arena = Arena()

    def hashes(
        self, batch: Batch, columns: tuple[str, ...], rows: Int64Array, seed: int
    ) -> UInt64Array:
        """Return a hash of `columns` for each of `rows`, shape `[len(rows)]`."""
        data = batch.data.select(list(columns))
        known = self._encoders.get(columns)
        if known is None or known[0] != data.schema:
            # Hash the values as the dataset stores them, so that they do not depend on the source.
            given = self._given
            if given is not None and all(name in given for name in columns):
                schema = given.select(columns)
            else:
                schema = Schema.from_arrow(data.schema)
            known = (data.schema, Encoder(schema, merge_equal_floats=True))
            self._encoders[columns] = known
        self._arena.reset()
        encoded = known[1].encode(Batch(data, numbers=batch.numbers), self._arena)
        hashes = native.hash_records(self._arena.data, self._arena.used_starts(), seed)
        if len(encoded.rows) == batch.num_rows:
            return hashes[rows]
        # A row that these columns alone reject was also rejected as a whole: it needs no hash.
        by_row = np.zeros(batch.num_rows, np.uint64)
        by_row[encoded.rows] = hashes
        return by_row[rows]


MAX_SPLITS = 1_000


class SplitNames:
    """Numbers the names of splits: those of the layout first, then others as they appear."""

    def __init__(self, splits: Splits) -> None:
        self._column = splits.column
        self._numbers = {name: i for i, name in enumerate(splits.names)}

    @property
    def all(self) -> tuple[str, ...]:
        """The name of every split number."""
        return tuple(self._numbers)

    def reject_missing(self, batch: Batch) -> tuple[Batch, Int64Array, list[Reject]]:
        """Reject the rows whose split column has no value."""
        everything = np.arange(batch.num_rows)
        # Examples that lack a feature are refused.
        if self._column is None or not batch.num_rows or batch.split is not None or batch.encoded:
            return batch, everything, []
        missing = self._names_in(batch).is_null().to_numpy(zero_copy_only=False)
        if not missing.any():
            return batch, everything, []
        message = f"split column {self._column!r} has no value"
        rejects = [
            batch.reject(row, "no-split", message, column=self._column)
            for row in np.flatnonzero(missing).tolist()
        ]
        kept = np.flatnonzero(~missing)
        return batch.take(kept), kept, rejects

    def numbers_of(self, batch: Batch) -> npt.NDArray[np.uint16]:
        """Return the number of each row's split, from the split column; shape `[rows]`."""
        encoded = pc.dictionary_encode(self._names_in(batch))
        numbers = [self.number_of(name) for name in encoded.dictionary.to_pylist()]
        of_rows: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        return np.array(numbers, np.uint16).take(of_rows)

    def number_of(self, name: str) -> int:
        """Return the number of a split by its name; a new name gets the next number."""
        if name in self._numbers:
            return self._numbers[name]
        if not is_split_name(name):
            raise DataError(f"split {name!r} cannot be part of a file name: rename it in the data")
        if len(self._numbers) >= MAX_SPLITS:
            raise DataError(
                f"column {self._column!r} names more than {MAX_SPLITS} splits: "
                "choose one with few values"
            )
        return self._numbers.setdefault(name, len(self._numbers))

    def _names_in(self, batch: Batch) -> pa.Array:
        """Return the split column as text."""
        name = self._column
        if name:
            check_column(name, batch.data.schema.names, of="--split-column")
        column = batch.data.column(name)
        try:
            return column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise DataError(
                f"column {name!r} is {column.type} and cannot name splits: choose a column of text"
            ) from error
