"""A block: encoded records in one buffer, each with its split and its place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.duplicate_count import count_duplicates
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.column_hashes import ColumnHashes, check_columns
from beam_tfrecord.exchange.split_names import SplitNames
from beam_tfrecord.exchange.stubs import stubs_of
from beam_tfrecord.exchange.tally import Discovered, Tally
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import FileColumn, as_job_batch
from beam_tfrecord.layout import LOST_SPLITS, SPLIT_TWICE, Layout
from beam_tfrecord.places import (
    ONE_INPUT,
    Inputs,
    places_behind,
    places_by_bytes,
    places_by_origin,
    places_in_source_order,
    purpose_seed,
)
from beam_tfrecord.records.encoding import RUN_ROOM_BYTES, Arena, Encoder

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

# Encoded at once: bounds memory where rows are large, such as images.
PIECE_BYTES = 16 * 2**20


class Block:
    """Accumulates encoded batches; the buffers are kept from one filling to the next.

    Args:
        layout: Where records go.
        schema: Given schema; None: that of the batches.
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
        self._whole_sizes: list[Int64Array] = []
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
        if self._is_single:
            return None
        return np.concatenate(self._splits) if self._splits else np.zeros(0, np.uint16)

    @property
    def split_names(self) -> tuple[str, ...]:
        """Name of every split number."""
        return self._names.all

    def sizes(self) -> Int64Array:
        """Return the bytes of each framed record, shape `[records]`."""
        return np.diff(self.starts, append=self.arena.size)

    def whole_sizes(self) -> Int64Array | None:
        """Return the bytes of the record that each stub stands for, shape `[records]`.

        None where the records were never made stubs.
        """
        return np.concatenate(self._whole_sizes) if self._whole_sizes else None

    def make_stubs(self, first: int, files: FileColumn | None) -> None:
        """Take the files out of the last records.

        Args:
            first: Number of the first of them.
            files: Which of their values are files, a row for each of them; None: none.
        """
        starts = self.starts[first:]
        if not len(starts):
            return
        self._whole_sizes.append(np.diff(starts, append=self.size))
        self.arena.replace(first, *stubs_of(self.arena.used_data(), starts, files))

    def clear_records(self) -> None:
        """Forget the records; keep the memory."""
        self.arena.reset()
        self._whole_sizes.clear()
        self._places.clear()
        self._splits.clear()

    def clear(self) -> None:
        """Forget the records, the tally and the rejects; keep the memory."""
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
        counts = as_job_batch(batch)
        rejects, rows = list(batch.rejects), counts.rows_counted
        if not batch.data.num_columns:
            # Only rejects are left of such a batch: it tells no schema.
            self.rejects += rejects
            counted = Tally(
                rows=rows,
                rejects=len(rejects),
                refused=batch.refused,
                input_hash=counts.input_hash,
            )
            self.tally = self.tally.merge(counted)
            return np.zeros(0, np.int64)
        if batch.num_rows:
            self._check_split(batch)
        batch, kept, unsplit = self._names.known(batch)
        rejects += unsplit
        first = self.arena.records
        if batch.encoded:
            tally, written = self._add_examples(batch), np.arange(batch.num_rows)
        else:
            tally, written, refused = self._add_rows(batch)
            rejects += refused
        starts = self.arena.starts[first : self.arena.records]
        self._places.append(self._place(batch, written, starts))
        if batch.split is not None:
            # Splits were assigned upstream: no row comes without.
            self._is_single = False
        if not self._is_single:
            self._splits.append(self._split(batch, written, starts))
        self.rejects += rejects
        counted = Tally(
            rows=rows,
            records=len(written),
            rejects=len(rejects),
            places_by_bytes=(
                batch.exact_origin is None and not self._layout.key and batch.num_rows > 0
            ),
            splits_assigned=batch.split is not None if batch.num_rows else None,
            copies=count_duplicates(batch.data),
            refused=batch.refused,
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
        written = encoded.rows
        origin = batch.exact_origin
        numbers = None if origin is None else origin.row_numbers(batch.num_rows)
        unit = "" if origin is None else origin.unit
        refused = [
            Reject(unit, -1 if numbers is None else int(numbers[row]), column, code, message, value)
            for row, column, code, message, value in encoded.rejects
        ]
        left_out = frozenset(batch.data.schema.names) - set(encoder.schema.names)
        tally = Tally(schema=encoder.schema, observed=encoded.observed, left_out=left_out)
        return tally, written, refused

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


def pieces_of(batch: Batch, piece_bytes: int) -> Iterator[Batch]:
    """Cut a batch into pieces of about a number of bytes, or of one larger row."""
    rows = max(1, batch.num_rows)
    step = max(1, rows * piece_bytes // max(batch.data.nbytes, piece_bytes))
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, min(start + step, rows))
