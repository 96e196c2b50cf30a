"""Small Parquet files for tests, and short ways to read them."""

import pyarrow as pa
import pyarrow.parquet as pq


def write_parquet(path, columns, **options):
    """Write a table, or a dict of columns, with `options` of pyarrow; return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def units_of(source):
    """Return the units of the whole input."""
    return source.all_units(source.all_scans())


def read_all(source, **options):
    """Return the whole input."""
    batches = [batch.data for batch in source.batches(**options)]
    return pa.Table.from_batches(batches, source.schema())
