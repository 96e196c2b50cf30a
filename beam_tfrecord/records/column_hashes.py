"""`ColumnHashes`: hashes of the values of some columns of rows, such as those of a group or key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.native.values import Int64Array, UInt64Array
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch


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
