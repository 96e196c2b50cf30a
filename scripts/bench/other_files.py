"""Writes tables of Parquet again as Arrow, ORC or Avro: `other_files.py avro FOLDER a.parquet …`.

A process of its own, so that its memory does not count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_AVRO_TYPES = {"float": "float", "int64": "long", "string": "string"}


def make_files(kind: str, folder: Path, tables: tuple[str, ...]) -> tuple[str, ...]:
    """Write each table to a file in `folder`, unless that is done; return the paths."""
    made = tuple(str(folder / f"{Path(table).stem}.{kind}") for table in tables)
    if not all(Path(path).exists() for path in made):
        subprocess.run([sys.executable, __file__, kind, str(folder), *tables], check=True)
    return made


def write_batches(
    kind: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema, path: str
) -> None:
    """Write batches to one file of a kind: arrow, orc or avro."""
    if kind == "arrow":
        with pa.ipc.new_file(path, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    elif kind == "orc":
        from pyarrow.orc import ORCWriter

        with ORCWriter(path) as writer:
            for batch in batches:
                writer.write(pa.Table.from_batches([batch]))
    else:
        import fastavro

        fields = [{"name": f.name, "type": _AVRO_TYPES[str(f.type)]} for f in schema]
        rows = (row for batch in batches for row in batch.to_pylist())
        with open(path, "wb") as file:
            fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)


if __name__ == "__main__":
    _kind, _folder, *_tables = sys.argv[1:]
    for _table in _tables:
        _parquet = pq.ParquetFile(_table)
        _path = str(Path(_folder) / f"{Path(_table).stem}.{_kind}")
        write_batches(_kind, _parquet.iter_batches(65_536), _parquet.schema_arrow, _path)
