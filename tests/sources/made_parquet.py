"""Small Parquet files for tests, and short ways to read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.parquet.source import Parquet


def write_parquet(path: Path, columns: Any, **options: Any) -> Path:
    """Write a table, or a dict of columns, with `options` of pyarrow; return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def units_of(source: Parquet) -> list[Unit]:
    """Return the units of the whole input."""
    return source.all_units(source.all_scans())


def read_all(source: Parquet, **options: Any) -> pa.Table:
    """Return the whole input."""
    batches = [batch.data for batch in source.batches(**options)]
    return pa.Table.from_batches(batches, source.schema())
