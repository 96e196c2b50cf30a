"""Hashes of columns, which decide places by key and splits by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]


def check_columns(columns: Sequence[str], names: Sequence[str]) -> None:
    """Check that columns that settings name are among those there are.

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
            schema = self._schema_of(columns, data.schema)
            known = (data.schema, Encoder(schema, one_zero=True))
            self._encoders[columns] = known
        self._arena.reset()
        encoded = known[1].encode(Batch(data, numbers=batch.numbers), self._arena)
        hashes = native.hash_records(self._arena.data, self._arena.starts[: encoded.records], seed)
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
