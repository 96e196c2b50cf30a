"""The numbers that stand for the names of splits, and what a column that names them says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.column_hashes import check_columns
from beam_tfrecord.layout import Splits, is_split_name

MAX_SPLITS = 1_000


class SplitNames:
    """Numbers names in the order in which they are met, behind those that are known before.

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
        origin = batch.exact_origin
        numbers = None if origin is None else origin.row_numbers(batch.num_rows)
        rejects = [
            Reject(
                unit=origin.unit if origin else "",
                row=-1 if numbers is None else int(numbers[row]),
                column=self._column,
                code="no-split",
                message=f"split column {self._column!r} has no value",
            )
            for row in np.flatnonzero(missing)
        ]
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
        """Return the number of a name, a new one where it was not met before.

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
