"""`ReadFromTFRecord`, the public transform that reads TFRecord files as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.tfrecord.source import Tfrecord
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource


class ReadFromTFRecord(ReadFromSource):
    """Read datasets, or TFRecord files of other programs, as `Batch`es.

    The columns of a dataset have the types of its manifest. Those of other files are found in all
    records: a feature with one value in each record is a scalar, one with the same number of values
    in each a list of fixed size, and others are lists. Bytes are text if all are valid UTF-8. A
    feature that a record lacks is null there. Rows of a dataset lose their splits.

    Args:
        paths: Datasets, files (``.tfrecord``, ``.tfrecords``, also with ``.gz``), directories and
            globs.
        columns: Names of the columns to read, in order; None means all.
        union: Accept datasets that lack columns of others; these are null there.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        union: bool = False,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = Tfrecord(paths, columns=columns, union=union)
        super().__init__(source, batch_rows=batch_rows, **select)
