"""Small Parquet files for tests."""

import pyarrow as pa
import pyarrow.parquet as pq


def write_parquet(path, columns, **options):
    """Write a table, or a dict of columns, with `options` of pyarrow; return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path
