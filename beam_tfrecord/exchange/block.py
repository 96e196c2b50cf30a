"""`Block`: a buffer of encoded records, with the sort key and the split of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.assignment import Assigner, Records, SplitNumbers, check_column
from beam_tfrecord.features.limits import refuse_limits
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout
from beam_tfrecord.format.sort_keys import ONE_INPUT, Lineage
from beam_tfrecord.format.tally import Tally, count_duplicates
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array
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
from beam_tfrecord.rows.batch import Batch, Reject, count_rejects

# Batches are encoded in pieces of this size: it bounds memory if rows are large, such as images.
PIECE_BYTES = 16 * 2**20


class Block:
    """Encodes batches into records, and collects them until the caller clears the block.

    Clearing keeps the buffers for the next records.
    """

    def __init__(
        self, layout: Layout, schema: Schema | None = None, inputs: Lineage = ONE_INPUT
    ) -> None:
        self._layout = layout
        self._inputs = inputs
        self._given = schema
        self._encoder: Encoder | None = None
        self._encoded_for: pa.Schema | None = None
        self._assigner = Assigner(layout, schema, inputs)
        self._sort_keys: list[UInt64Array] = []
        self._splits: list[SplitNumbers] = []
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
    def splits(self) -> SplitNumbers | None:
        """Number of each record's split, shape `[records]`; None if there is only one split."""
        return np.concatenate(self._splits) if self._splits else None

    @property
    def split_names(self) -> tuple[str, ...]:
        """Name of every split number."""
        return self._assigner.split_names

    @property
    def classes(self) -> tuple[str | None, ...]:
        """Value of every class number, if rows are counted by class."""
        return self._assigner.classes

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
        """Add the records of a batch, with their sort keys and splits; count its rejects.

        Return the rows of the batch that the records were made of.
        """
        self.rejects += batch.rejects
        counted = Tally(
            rows=batch.rows_counted, rejects=count_rejects(batch.rejects), refused=batch.refused
        )
        if not batch.data.num_columns:
            # Such a batch carries only counts and rejects: it shows no schema.
            self.tally = self.tally.merge(counted)
            return np.zeros(0, np.int64)
        batch, kept, rejects = self._assigner.admit(batch)
        tally, records, rejected = (
            self._add_examples(batch) if batch.encoded else self._add_rows(batch)
        )
        self.rejects += rejects + rejected
        named = self._with_features(batch, records, tally)
        assigned = self._assigner.assign(named, records)
        self._sort_keys.append(assigned.sort_keys)
        if assigned.splits is not None:
            self._splits.append(assigned.splits)
        has_rows = batch.num_rows > 0
        counted = dataclasses.replace(
            counted,
            records=len(records.rows),
            rejects=counted.rejects + len(rejects) + len(rejected),
            sort_keys_by_bytes=(
                has_rows and not self._layout.key and self._assigner.origin(batch) is None
            ),
            splits_assigned=batch.split is not None if has_rows else None,
            group=self._assigner.group(batch) if has_rows else None,
            copies=count_duplicates(batch.data),
            torn=assigned.torn,
        )
        self.tally = self.tally.merge(tally).merge(counted)
        return kept[records.rows]

    def _with_features(self, batch: Batch, records: Records, tally: Tally) -> Batch:
        """Decode those features of serialized examples that the layout names, if it names any."""
        names = self._assigner.columns(batch)
        if not (batch.encoded and batch.num_rows and names):
            return batch
        found = tally.discovered or self._discovered(batch, records)
        for name in names:
            flag = self._layout.flag_of(name)
            check_column(name, list(found), of=flag, where="the examples")
            if found[name].present < batch.num_rows:
                raise UsageError(
                    f"feature {name!r} of {flag} is not in all examples: give it to all"
                )
        decoder = Decoder(schema_of_discovered({name: found[name] for name in names}))
        return batch.replace(data=decoder.decode(records.data, records.starts), encoded=False)

    def _discovered(self, batch: Batch, records: Records) -> dict[str, Discovered]:
        """Return the features of serialized examples."""
        seed = self._assigner.split_seed
        try:
            return discovered_in(records.data, records.starts, records.hashes, seed)
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

    def _records(self, first: int, rows: Int64Array) -> Records:
        return Records(self.arena.used_data(), self.arena.used_starts()[first:], rows)

    def _add_examples(self, batch: Batch) -> tuple[Tally, Records, list[Reject]]:
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
        records = self._records(first, np.arange(batch.num_rows))
        if self._inputs.examples == "known" or not batch.num_rows:
            return Tally(), records, []
        hashes = np.empty(batch.num_rows, np.uint64) if self._assigner.group(batch) == () else None
        hashed = dataclasses.replace(records, hashes=hashes)
        if self._inputs.examples == "found":
            return Tally(discovered=self._types(batch, hashed)), hashed, []
        try:
            return Tally(discovered=self._discovered(batch, hashed)), hashed, []
        except UsageError:
            if self._inputs.examples != "any":
                raise
            # Such a dataset has no schema.
            return Tally(opaque=True), records, []

    def _types(self, batch: Batch, records: Records) -> dict[str, Discovered]:
        origin = batch.origin
        assert origin is not None
        file = (origin.address or (origin.unit, 0))[0].removesuffix(" record ")
        seed = self._assigner.split_seed
        try:
            return types_in(records.data, records.starts, file, records.hashes, seed)
        except ForeignRecord as error:
            number = int(origin.row_numbers(batch.num_rows)[error.index])
            raise DataError(f"{origin.address_of(number)}: {error.reason}") from error

    def _add_rows(self, batch: Batch) -> tuple[Tally, Records, list[Reject]]:
        encoder, first = self._encoder_of(batch), self.arena.records
        encoded = encoder.encode(batch, self.arena)
        left_out = frozenset(batch.data.schema.names) - set(encoder.schema.names)
        tally = Tally(schema=encoder.schema, observed=encoded.observed, left_out=left_out)
        return tally, self._records(first, encoded.rows), encoded.rejects

    def _encoder_of(self, batch: Batch) -> Encoder:
        arrow = batch.data.schema
        if self._encoder is None or (
            self._encoded_for is not arrow and self._encoded_for != arrow and self._given is None
        ):
            read = Schema.from_arrow(arrow)
            schema = read if self._given is None else self._given.with_labels_of(read)
            self._encoder = Encoder(schema)
        self._encoded_for = arrow
        # If the user's function failed for all rows, the columns are those of its input.
        for column in self._assigner.columns(batch) if batch.num_rows else ():
            check_column(column, arrow.names, of=self._layout.flag_of(column))
        return self._encoder


def pieces_of(batch: Batch, piece_bytes: int) -> Iterator[Batch]:
    """Yield a batch in pieces of about `piece_bytes` at most; a larger row is its own piece."""
    rows = max(1, batch.num_rows)
    step = max(1, rows * piece_bytes // max(batch.data.nbytes, piece_bytes))
    if step >= rows:
        yield batch
        return
    for start in range(0, rows, step):
        yield batch.slice(start, min(start + step, rows))
