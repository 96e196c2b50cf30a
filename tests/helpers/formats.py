"""The same rows as a file of each format.

Each function takes a table and returns the bytes of a file. `group_rows` are the rows of a row
group, record batch or stripe.
"""

import bz2
import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from tests.helpers.records import example, framed

_AVRO = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


def csv_file(table, *, delimiter=",", end="\n"):
    """Write text in quotes, so that a null differs from text without characters."""

    def field(value):
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if isinstance(value, str) else str(value)

    lines = [delimiter.join(map(field, row.values())) for row in table.to_pylist()]
    return "".join(line + end for line in (delimiter.join(table.column_names), *lines)).encode()


def json_lines(table, **options):
    """Write a row a line; `options` are those of `json.dumps`."""
    return _lines(table.to_pylist(), **options)


def _lines(rows, **options):
    return b"".join(json.dumps(row, **options).encode() + b"\n" for row in rows)


def json_array(table, **options):
    return json.dumps(table.to_pylist(), **options).encode()


def parquet_file(table, *, group_rows=None, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group_rows, **options)
    return sink.getvalue()


def _ipc(make, table, group_rows, options):
    sink = io.BytesIO()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=group_rows)
    return sink.getvalue()


def arrow_file(table, *, group_rows=None, **options):
    return _ipc(pa.ipc.new_file, table, group_rows, options)


def arrow_stream(table, *, group_rows=None, **options):
    return _ipc(pa.ipc.new_stream, table, group_rows, options)


def orc_file(table, *, group_rows=1024, **options):
    sink = io.BytesIO()
    pa.orc.write_table(table, sink, stripe_size=1, batch_size=group_rows, **options)
    return sink.getvalue()


def avro_file(table, **options):
    """Write unions for columns that may have nulls, of which every other one begins with null."""
    import fastavro

    fields = []
    for number, field in enumerate(table.schema):
        kind = _AVRO[field.type]
        union = ["null", kind] if number % 2 == 0 else [kind, "null"]
        fields.append({"name": field.name, "type": union if field.nullable else kind})
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": fields}
    fastavro.writer(sink, schema, table.to_pylist(), **options)
    return sink.getvalue()


def excel_file(table):
    return workbook([table.column_names, *(row.values() for row in table.to_pylist())])


def workbook(rows):
    """Return a workbook with rows of cells in its only sheet."""
    import openpyxl

    book, sink = openpyxl.Workbook(write_only=True), io.BytesIO()
    sheet = book.create_sheet()
    for row in rows:
        sheet.append(list(row))
    book.save(sink)
    return sink.getvalue()


def tar_samples(table, *, prefix="", format=tarfile.PAX_FORMAT):
    """Write each row as a sample, in which a null is a file that is missing."""
    return tar_file(
        [
            (f"{prefix}{number:05}.{name}", str(value).encode())
            for number, row in enumerate(table.to_pylist())
            for name, value in row.items()
            if value is not None
        ],
        format,
    )


def tar_file(members, format=tarfile.PAX_FORMAT):
    """Return a tar file of names with their data."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def npz_file(table, *, save=np.savez):
    sink = io.BytesIO()
    save(sink, **{name: table[name].to_numpy() for name in table.column_names})
    return sink.getvalue()


def npy_file(array):
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def tfrecord_file(table):
    """Write examples as another program does, without the features of nulls."""
    rows = ({k: v for k, v in row.items() if v is not None} for row in table.to_pylist())
    return b"".join(framed(example(**row)) for row in rows)


FORMATS = {
    ".csv": csv_file,
    ".jsonl": json_lines,
    ".json": json_array,
    ".parquet": parquet_file,
    ".arrow": arrow_file,
    ".arrows": arrow_stream,
    ".orc": orc_file,
    ".avro": avro_file,
    ".xlsx": excel_file,
    ".tar": tar_samples,
    ".npz": npz_file,
    ".tfrecord": tfrecord_file,
}
COMPRESSIONS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write_file(path, table, **options):
    """Write a table in the format, and the compression, that the name of a file tells."""
    path = Path(path)
    compress = COMPRESSIONS.get(path.suffix, bytes)
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(compress(FORMATS[suffix](table, **options)))
    return path


def write_rows(path, rows, **options):
    """Write dicts, of which only those of JSON Lines may have keys that the first one lacks."""
    if path.suffix != ".jsonl":
        assert all(row.keys() <= rows[0].keys() for row in rows)
        return write_file(path, pa.Table.from_pylist(rows), **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_lines(rows))
    return path
