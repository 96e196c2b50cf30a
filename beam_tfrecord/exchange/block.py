"""`Block`: encoded records in one buffer, each with its split and its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.duplicate_count import count_duplicates
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.write_summary import Discovered, Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.layout import LOST_SPLITS, SPLIT_TWICE, Layout, Splits, is_split_name
from beam_tfrecord.places import (
    ONE_INPUT,
    Inputs,
    places_behind,
    places_by_bytes,
    places_by_origin,
    places_in_source_order,
    purpose_seed,
)
from beam_tfrecord.records.encoding import RUN_ROOM_BYTES, Arena, Encoder, RowReject

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

# Bytes that are encoded at once: bounds memory if rows are large, such as images.
PIECE_BYTES = 16 * 2**20


class Block:
    """Accumulates encoded batches; the buffers are used again.

    Args:
        layout: Where records go.
        schema: The schema to enforce; None for that of the batches.
        inputs: Where rows come from.
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
        self._place_seed = purpose_seed(layout.seed, "place")
        self._split_seed = purpose_seed(layout.seed, "split")
        self._is_single = layout.splits.is_single
        self._names = SplitNames(layout.splits)
        self._places: list[UInt64Array] = []
        self._splits: list[npt.NDArray[np.uint16]] = []
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
    def places(self) -> UInt64Array:
        """Place of each record, shape `[records]`."""
        return np.concatenate(self._places) if self._places else np.zeros(0, np.uint64)

    @property
    def splits(self) -> npt.NDArray[np.uint16] | None:
        """Number of each record's split, shape `[records]`; None if there is one split."""
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
        self._places.clear()
        self._splits.clear()

    def clear(self) -> None:
        """Drop the records, the tally and the rejects; keep the memory."""
        self.clear_records()
        self.tally = Tally()
        self.rejects = []

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """Cut a batch so that each piece is of bounded size."""
        return pieces_of(batch, PIECE_BYTES)

    def add(self, batch: Batch) -> Int64Array:
        """Encode the rows of a batch, and place each record.

        Returns:
            The index within the batch of every row that became a record, shape `[n]`.

        Raises:
            DataError: The batch has another schema than those before, or a split and those before
                have none.
            UsageError: A column that a setting names does not exist.
        """
        job_batch = as_job_batch(batch)
        self.rejects += batch.rejects
        counted = Tally(
            rows=job_batch.rows_counted,
            rejects=len(batch.rejects),
            refused=batch.refused,
            input_hash=job_batch.input_hash,
        )
        if not batch.data.num_columns:
            # Only rejects are left of such a batch: it shows no schema.
            self.tally = self.tally.merge(counted)
            return np.zeros(0, np.int64)
        if batch.num_rows:
            self._check_split(batch)
        batch, kept, rejects = self._names.known(batch)
        first = self.arena.records
        if batch.encoded:
            tally, written = self._add_examples(batch), np.arange(batch.num_rows)
        else:
            tally, written, refused = self._add_rows(batch)
            rejects += refused
        starts = self.arena.used_starts()[first:]
        self._places.append(self._place(batch, written, starts))
        if batch.split is not None:
            # Splits were assigned upstream: no row comes without.
            self._is_single = False
        if not self._is_single:
            self._splits.append(self._split(batch, written, starts))
        self.rejects += rejects
        counted = dataclasses.replace(
            counted,
            records=len(written),
            rejects=counted.rejects + len(rejects),
            places_by_bytes=(
                batch.exact_origin is None and not self._layout.key and batch.num_rows > 0
            ),
            splits_assigned=batch.split is not None if batch.num_rows else None,
            copies=count_duplicates(batch.data),
        )
        self.tally = self.tally.merge(tally).merge(counted)
        return kept[written]

    def _check_split(self, batch: Batch) -> None:
        if self._inputs.have_splits:
            if batch.split is None:
                raise DataError(LOST_SPLITS)
        elif batch.split is not None and self._layout.splits.are_given:
            raise DataError(SPLIT_TWICE)

    def _add_examples(self, batch: Batch) -> Tally:
        column = batch.data.column(0)
        arena = self.arena
        first, begin = arena.records, arena.size
        arena.reserve(native.frame_bound(column), len(column))
        starts = arena.starts[first : first + len(column)]
        arena.size += native.frame(column, arena.data, begin, starts)
        arena.records += len(column)
        try:
            facts = native.discover(arena.data[: arena.size], starts)
        except ValueError as error:
            # Two kinds of one feature are an error here as they are between two blocks.
            if all(native.canonicalize(value.as_py()) is not None for value in column):
                raise DataError(f"cannot write serialized examples: {error}") from error
            # Beam's own sink takes any bytes; such a dataset has no schema.
            return Tally(opaque=True)
        discovered = {name.decode(): Discovered(*found) for name, found in facts.items()}
        return Tally(discovered=discovered)

    def _add_rows(self, batch: Batch) -> tuple[Tally, Int64Array, list[Reject]]:
        encoder = self._encoder_of(batch)
        encoded = encoder.encode(batch, self.arena)
        left_out = frozenset(batch.data.schema.names) - set(encoder.schema.names)
        tally = Tally(schema=encoder.schema, observed=encoded.observed, left_out=left_out)
        return tally, encoded.rows, _rejects_of(batch, encoded.rejects)

    def _encoder_of(self, batch: Batch) -> Encoder:
        arrow, layout = batch.data.schema, self._layout
        if self._encoder is None or (
            self._encoded_for is not arrow and self._encoded_for != arrow and self._given is None
        ):
            read = Schema.from_arrow(arrow)
            schema = read if self._given is None else self._given.with_labels_of(read)
            check_columns(layout.columns if batch.split is None else layout.key, arrow.names)
            self._encoder = Encoder(schema)
        self._encoded_for = arrow
        return self._encoder

    def _place(self, batch: Batch, written: Int64Array, starts: Int64Array) -> UInt64Array:
        layout = self._layout
        if layout.key:
            return self._columns.hashes(batch, layout.key, written, self._place_seed)
        number, bits = self._inputs.number(as_job_batch(batch).way), self._inputs.bits
        if not layout.shuffle and batch.origin is not None:
            return places_in_source_order(batch.origin, written, batch.num_rows, number, bits)
        if (origin := batch.exact_origin) is not None:
            return places_by_origin(origin, written, batch.num_rows, self._place_seed, number)
        places = places_by_bytes(self.arena.data, starts, self._place_seed)
        return places if layout.shuffle else places_behind(places, number, bits)

    def _split(
        self, batch: Batch, written: Int64Array, starts: Int64Array
    ) -> npt.NDArray[np.uint16]:
        splits = self._layout.splits
        if batch.split is not None:
            return np.full(len(written), self._names.number_of(batch.split), np.uint16)
        if splits.column is not None:
            return self._names.numbers_of(batch)[written]
        if group := self._layout.group:
            return splits.assign(self._columns.hashes(batch, group, written, self._split_seed))
        if batch.encoded:
            hashes = native.canonical_hashes(self.arena.data, starts, self._split_seed)
        else:
            hashes = native.hash_records(self.arena.data, starts, self._split_seed)
        return splits.assign(hashes)


def _rejects_of(batch: Batch, rejected: Iterable[RowReject]) -> list[Reject]:
    """Return rejects of a batch with the origin of their rows."""
    origin = batch.exact_origin
    if origin is None:
        return [Reject("", -1, *reject[1:]) for reject in rejected]
    numbers = origin.row_numbers(batch.num_rows)
    return [Reject(origin.unit, int(numbers[row]), *rest) for row, *rest in rejected]


def pieces_of(batch: Batch, piece_bytes: int) -> Iterator[Batch]:
    """Cut a batch into pieces of about a number of bytes, or of one larger row."""
    rows = max(1, batch.num_rows)
    step = max(1, rows * piece_bytes // max(batch.data.nbytes, piece_bytes))
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, min(start + step, rows))


def check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    """Check that the columns that settings name exist.

    Raises:
        UsageError: One does not exist.
    """
    for column in columns:
        if column not in names:
            raise UsageError(
                f"column {column!r} does not exist: the columns are {', '.join(names)}"
            )


class ColumnHashes:
    """Hashes of the canonical feature values of some columns: equal in every kind of source.

    Numbers that are equal have equal hashes, both zeros too, and so has every NaN.
    """

    def __init__(self, given: Schema | None) -> None:
        self._given = given
        self._encoders: dict[tuple[str, ...], tuple[pa.Schema, Encoder]] = {}
        self._arena = Arena()

    def hashes(
        self, batch: Batch, columns: tuple[str, ...], rows: Int64Array, seed: int
    ) -> UInt64Array:
        """Return a hash of `columns` for each of `rows`, shape `[len(rows)]`."""
        if batch.encoded:
            raise UsageError(
                f"column {columns[0]!r} does not exist: the elements are examples, not rows"
            )
        data = batch.data.select(list(columns))
        known = self._encoders.get(columns)
        if known is None or known[0] != data.schema:
            # Hash values as the dataset stores them, so that the kind of source leaves no trace.
            given = self._given
            if given is not None and all(name in given for name in columns):
                schema = given.select(columns)
            else:
                schema = Schema.from_arrow(data.schema)
            known = (data.schema, Encoder(schema, one_zero=True))
            self._encoders[columns] = known
        self._arena.reset()
        encoded = known[1].encode(Batch(data, numbers=batch.numbers), self._arena)
        hashes = native.hash_records(self._arena.data, self._arena.used_starts(), seed)
        if len(encoded.rows) == batch.num_rows:
            return hashes[rows]
        # A row that is rejected here is rejected with all its columns, too.
        by_row = np.zeros(batch.num_rows, np.uint64)
        by_row[encoded.rows] = hashes
        return by_row[rows]


MAX_SPLITS = 1_000


class SplitNames:
    """Numbers the names of splits in order of appearance, behind those of the layout.

    Args:
        splits: How rows are split.
    """

    def __init__(self, splits: Splits) -> None:
        self._column = splits.column
        self._numbers = {name: i for i, name in enumerate(splits.names)}

    @property
    def all(self) -> tuple[str, ...]:
        """The name of every number."""
        return tuple(self._numbers)

    def known(self, batch: Batch) -> tuple[Batch, npt.NDArray[np.int64], list[Reject]]:
        """Leave out rows whose split column has no value.

        Returns:
            The rest, the index of each of its rows within the batch, and the rejects.
        """
        everything = np.arange(batch.num_rows)
        if self._column is None or batch.num_rows == 0 or batch.split is not None:
            return batch, everything, []
        missing = self._names_in(batch).is_null().to_numpy(zero_copy_only=False)
        if not missing.any():
            return batch, everything, []
        message = f"split column {self._column!r} has no value"
        rejects = _rejects_of(
            batch,
            [
                RowReject(int(row), self._column, "no-split", message, "")
                for row in np.flatnonzero(missing)
            ],
        )
        kept = np.flatnonzero(~missing)
        return batch.take(kept), kept, rejects

    def numbers_of(self, batch: Batch) -> npt.NDArray[np.uint16]:
        """Return the number of each row's split, by the column that names them.

        Raises:
            DataError: A value cannot be a name, or there are too many.
            UsageError: The column does not exist.
        """
        encoded = pc.dictionary_encode(self._names_in(batch))
        numbers = [self.number_of(name) for name in encoded.dictionary.to_pylist()]
        of_rows: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
        return np.array(numbers, np.uint16).take(of_rows)

    def number_of(self, name: str) -> int:
        """Return the number of a name; a name that is not known gets the next number.

        Raises:
            DataError: It cannot be a name of files, or there are too many.
        """
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
        """Return the name of each row's split as text."""
        name = self._column
        if batch.encoded:
            raise UsageError(f"column {name!r} does not exist: the elements are examples, not rows")
        check_columns((name,) if name else (), batch.data.schema.names)
        column = batch.data.column(name)
        try:
            return column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise DataError(
                f"column {name!r} is {column.type} and cannot name splits: choose a column of text"
            ) from error
