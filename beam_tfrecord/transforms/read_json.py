"""The public transform `ReadFromJson`; `transforms.read` has the other readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.json.source import Json
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource


class ReadFromJson(ReadFromSource):
    """Read JSON Lines and JSON files as `Batch`es, plain or compressed.

    A file is JSON Lines, an array of objects, or one or several objects over several lines. It may
    be compressed: ``.gz .bz2 .zst .lz4 .xz``.

    Args:
        paths: Files, globs or directories.
        types: Types of columns by name, as Arrow types or their names; others are inferred.
        columns: Names of the columns to read, in order; None means all.
        chunk_bytes: Approximate size in bytes of the units, the parts of JSON Lines that are read
            as one.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        types: Mapping[str, str | pa.DataType] | None = None,
        columns: Sequence[str] | None = None,
        chunk_bytes: int = 64 * 2**20,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = Json(paths, types=types or {}, columns=columns, chunk_bytes=chunk_bytes)
        super().__init__(source, batch_rows=batch_rows, **select)
