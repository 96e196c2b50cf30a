"""A block: encoded records in one buffer, each with its split and its place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.arena import Arena
from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.encoding import Encoder
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.tally import Discovered, Tally
from beam_tfrecord.layout import Layout
from beam_tfrecord.places import (
    places_by_bytes,
    places_by_origin,
    places_in_source_order,
    purpose_seed,
)
from beam_tfrecord.schema import Schema
from beam_tfrecord.splits import is_split_name

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

# Encoded at once: bounds memory where rows are large, such as images.
PIECE_BYTES = 16 * 2**20
MAX_SPLITS = 1_000


class Block:
    """Accumulates encoded batches; the buffers are kept from one filling to the next.

    Args:
        layout: Where records go.
        schema: Given schema; None: that of the batches.
    """

    def __init__(self, layout: Layout, schema: Schema | None = None) -> None:
        self._layout = layout
        self._given = schema
        self._encoder: Encoder | None = None
        self._encoded_for: pa.Schema | None = None
        self._columns = _ColumnHashes(schema)
        self._place_seed = purpose_seed(layout.seed, "place")
        self._split_seed = purpose_seed(layout.seed, "split")
        self._split_numbers = {name: i for i, name in enumerate(layout.splits.names)}
        self._places: list[UInt64Array] = []
        self._splits: list[npt.NDArray[np.uint16]] = []
        self.arena = Arena()
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
    def starts(self) -> Int64Array:
        """Where each record begins in the arena, shape `[records]`."""
        return self.arena.starts[: self.arena.records]

    @property
    def places(self) -> UInt64Array:
        """Place of each record, shape `[records]`."""
        return np.concatenate(self._places) if self._places else np.zeros(0, np.uint64)

    @property
    def splits(self) -> npt.NDArray[np.uint16] | None:
        """Number of each record's split, shape `[records]`; None where there is one split."""
        if self._layout.splits.is_single:
            return None
        return np.concatenate(self._splits) if self._splits else np.zeros(0, np.uint16)

    @property
    def split_names(self) -> tuple[str, ...]:
        """Name of every split number."""
        return tuple(self._split_numbers)

    def sizes(self) -> Int64Array:
        """Return the bytes of each framed record, shape `[records]`."""
        return np.diff(self.starts, append=self.arena.size)

    def clear_records(self) -> None:
        """Forget the records; keep the memory."""
        self.arena.reset()
        self._places.clear()
        self._splits.clear()

    def clear(self) -> None:
        """Forget the records, the tally and the rejects; keep the memory."""
        self.clear_records()
        self.tally = Tally()
        self.rejects = []

    def pieces(self, batch: Batch) -> Iterator[Batch]:
        """Cut a batch so that each piece is of bounded size."""
        rows = max(1, batch.num_rows)
        step = max(1, rows * PIECE_BYTES // max(batch.data.nbytes, PIECE_BYTES))
        if step >= rows:
            yield batch
            return
        for start in range(0, rows, step):
            yield batch.slice(start, min(start + step, rows))

    def add(self, batch: Batch) -> Int64Array:
        """Encode the rows of a batch, and place each record.

        Returns:
            The index within the batch of every row that became a record, shape `[n]`.

        Raises:
            DataError: The batch has another schema than those before.
            UsageError: A column that a setting names does not exist.
        """
        rejects = list(batch.rejects)
        rows = batch.num_rows + len(batch.rejects)
        batch, kept, unsplit = self._known_splits(batch)
        rejects += unsplit
        first = self.arena.records
        if batch.encoded:
            tally, written = self._add_examples(batch), np.arange(batch.num_rows)
        else:
            tally, written, refused = self._add_rows(batch)
            rejects += refused
        starts = self.arena.starts[first : self.arena.records]
        self._places.append(self._place(batch, written, starts))
        if not self._layout.splits.is_single:
            self._splits.append(self._split(batch, written, starts))
        self.rejects += rejects
        counted = Tally(
            rows=rows,
            records=len(written),
            rejects=len(rejects),
            places_by_bytes=batch.origin is None and not self._layout.key and batch.num_rows > 0,
        )
        self.tally = self.tally.merge(tally).merge(counted)
        return kept[written]

    def _add_examples(self, batch: Batch) -> Tally:
        column = batch.data.column(0)
        arena = self.arena
        first, begin = arena.records, arena.size
        arena.reserve(native.frame_bound(column), len(column))
        starts = arena.starts[first : first + len(column)]
        arena.size += native.frame(column, arena.data, begin, starts)
        arena.records += len(column)
        found = {
            name.decode(): Discovered(*facts)
            for name, facts in native.discover(arena.data[: arena.size], starts).items()
        }
        return Tally(discovered=found)

    def _add_rows(self, batch: Batch) -> tuple[Tally, Int64Array, list[Reject]]:
        encoder = self._encoder_of(batch.data.schema)
        encoded = encoder.encode(batch, self.arena)
        written = encoded.rows
        numbers = None if batch.origin is None else batch.origin.row_numbers(batch.num_rows)
        unit = "" if batch.origin is None else batch.origin.unit
        refused = [
            Reject(unit, -1 if numbers is None else int(numbers[row]), column, code, message, value)
            for row, column, code, message, value in encoded.rejects
        ]
        return Tally(schema=encoder.schema, observed=encoded.observed), written, refused

    def _encoder_of(self, arrow: pa.Schema) -> Encoder:
        if self._encoder is None or (
            self._encoded_for is not arrow and self._encoded_for != arrow and self._given is None
        ):
            schema = self._given or Schema.from_arrow(arrow)
            if missing := [name for name in self._layout.columns if name not in arrow.names]:
                raise UsageError(
                    f"column {missing[0]!r} does not exist: the columns are "
                    + ", ".join(arrow.names)
                )
            self._encoder = Encoder(schema)
        self._encoded_for = arrow
        return self._encoder

    def _place(self, batch: Batch, written: Int64Array, starts: Int64Array) -> UInt64Array:
        layout = self._layout
        if layout.key:
            return self._columns.hashes(batch, layout.key, written, self._place_seed)
        if batch.origin is None:
            return places_by_bytes(self.arena.data, starts, self._place_seed)
        if not layout.shuffle:
            return places_in_source_order(batch.origin, written, batch.num_rows)
        return places_by_origin(batch.origin, written, batch.num_rows, self._place_seed)

    def _split(
        self, batch: Batch, written: Int64Array, starts: Int64Array
    ) -> npt.NDArray[np.uint16]:
        splits = self._layout.splits
        if batch.split is not None:
            return np.full(len(written), self._number_of(batch.split), np.uint16)
        if splits.column is not None:
            return self._numbers_of(batch.data.column(splits.column))[written]
        if group := self._layout.group:
            return splits.assign(self._columns.hashes(batch, group, written, self._split_seed))
        if batch.encoded:
            hashes = native.canonical_hashes(self.arena.data, starts, self._split_seed)
        else:
            hashes = native.hash_records(self.arena.data, starts, self._split_seed)
        return splits.assign(hashes)

    def _known_splits(self, batch: Batch) -> tuple[Batch, Int64Array, list[Reject]]:
        """Leave out rows whose split column has no value."""
        everything = np.arange(batch.num_rows)
        name = self._layout.splits.column
        if name is None or batch.num_rows == 0 or name not in batch.data.schema.names:
            return batch, everything, []
        missing = pc.is_null(batch.data.column(name)).to_numpy(zero_copy_only=False)
        if not missing.any():
            return batch, everything, []
        origin = batch.origin
        numbers = None if origin is None else origin.row_numbers(batch.num_rows)
        rejects = [
            Reject(
                unit=origin.unit if origin else "",
                row=-1 if numbers is None else int(numbers[row]),
                column=name,
                code="no-split",
                message=f"split column {name!r} has no value",
            )
            for row in np.flatnonzero(missing)
        ]
        kept = np.flatnonzero(~missing)
        return batch.take(kept), kept, rejects

    def _numbers_of(self, column: pa.Array) -> npt.NDArray[np.uint16]:
        encoded = pc.dictionary_encode(column.cast(pa.string()))
        numbers = [self._number_of(name) for name in encoded.dictionary.to_pylist()]
        return np.array(numbers, np.uint16)[encoded.indices.to_numpy(zero_copy_only=False)]

    def _number_of(self, name: str) -> int:
        if name in self._split_numbers:
            return self._split_numbers[name]
        if not is_split_name(name):
            raise DataError(f"split {name!r} cannot be part of a file name: rename it in the data")
        if len(self._split_numbers) >= MAX_SPLITS:
            raise DataError(
                f"column {self._layout.splits.column!r} names more than {MAX_SPLITS} splits: "
                "choose one with few values"
            )
        return self._split_numbers.setdefault(name, len(self._split_numbers))


class _ColumnHashes:
    """Hashes of the canonical feature values of some columns: equal in every kind of source."""

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
            known = (data.schema, Encoder(self._schema_of(columns, data.schema)))
            self._encoders[columns] = known
        self._arena.reset()
        encoded = known[1].encode(Batch(data), self._arena)
        hashes = native.hash_records(
            self._arena.data, self._arena.starts[: encoded.records], seed
        )
        if encoded.records == batch.num_rows:
            return hashes[rows]
        # A row is rejected here only where it is rejected as a whole, too.
        by_row = np.zeros(batch.num_rows, np.uint64)
        by_row[encoded.rows] = hashes
        return by_row[rows]

    def _schema_of(self, columns: tuple[str, ...], arrow: pa.Schema) -> Schema:
        """Hash values as the dataset stores them, so that the kind of source leaves no trace."""
        if self._given is not None and all(name in self._given for name in columns):
            return self._given.select(columns)
        return Schema.from_arrow(arrow)
