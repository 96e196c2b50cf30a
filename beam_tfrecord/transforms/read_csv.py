"""The public transform `ReadFromCsv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.selection.select import SelectOptions
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.transforms.read_source import Paths, ReadFromSource


class ReadFromCsv(ReadFromSource):
    """Read CSV files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``), as `Batch`es.

    Args:
        paths: Files, globs or directories.
        delimiter: Character between two fields, in ASCII; None means a tab in files whose names end
            in ``.tsv``, and a comma in others.
        quote: Character around a field; None or "none" means that quotes have no meaning.
        escape: Character that makes the next one literal; None means that there is none.
        double_quote: Whether two quotes inside quotes mean one.
        header: Whether the first row of each file holds the names of the columns.
        names: Names of the columns, to replace the header or if there is none.
        null_words: Words that mean null in every column, also in columns of text.
        encoding: Encoding of the files, by its name in Python.
        types: Types of columns by name, as Arrow types or their names; others are inferred.
        columns: Names of the columns to read, in order; None means all.
        union: Accept files that lack columns; these are null there.
        skip_lines: Number of lines at the start of each file that are not rows.
        comment: Character that begins a line that is not a row; None means that there are none.
        date_formats: Formats of dates and times, such as ``%d.%m.%Y``, in place of ISO 8601; or
            ``column=format`` for one column.
        null_in: Words that mean null in one column, as ``column=word``.
        thousands: Character between groups of three digits; None means that there is none.
        decimal: Character before the fraction of a number.
        chunk_bytes: Approximate size in bytes of the units, the parts of a file that are read as
            one.
        batch_rows: Maximum number of rows per batch; does not affect the dataset.
        **select: Which rows to read: `filter`, `sample` and `sample_seed`; see `SelectOptions`.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        delimiter: str | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        double_quote: bool = True,
        header: bool = True,
        names: Sequence[str] | None = None,
        null_words: Sequence[str] = (),
        encoding: str = "utf-8",
        types: Mapping[str, str | pa.DataType] | None = None,
        columns: Sequence[str] | None = None,
        union: bool = False,
        skip_lines: int = 0,
        comment: str | None = None,
        date_formats: Sequence[str] = (),
        null_in: Sequence[str] = (),
        thousands: str | None = None,
        decimal: str = ".",
        chunk_bytes: int = 64 * 2**20,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **select: Unpack[SelectOptions],
    ) -> None:
        source = Csv(
            paths,
            delimiter=delimiter,
            quote=quote,
            escape=escape,
            double_quote=double_quote,
            header=header,
            names=names,
            null_words=null_words,
            encoding=encoding,
            types=types or {},
            columns=columns,
            union=union,
            skip_lines=skip_lines,
            comment=comment,
            date_formats=date_formats,
            null_in=null_in,
            thousands=thousands,
            decimal=decimal,
            chunk_bytes=chunk_bytes,
        )
        super().__init__(source, batch_rows=batch_rows, **select)
