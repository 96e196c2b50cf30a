"""Makes tables of Delta Lake and Iceberg: from Parquet files, or by hand."""

import base64
import json
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.lazy import Lazy

pyiceberg_sql = Lazy("pyiceberg.catalog.sql")

FEATURES = ["deletionVectors", "columnMapping"]
Row = dict[str, Any]


def files_in(directory):
    """Return the Parquet files in a directory in order."""
    return sorted(directory.glob("*.parquet"))


def delta_log(directory):
    """Write the log of a Delta Lake table with the files in a directory."""
    from deltalake import Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    files = files_in(directory)
    schema = Schema.from_arrow(pq.read_schema(files[0]))
    adds = [AddAction(f.name, f.stat().st_size, {}, 1, True, "{}") for f in files]
    create_table_with_add_actions(str(directory), schema, adds, "overwrite")


def hinted_catalog(name, **properties):
    """Return a catalogue in SQLite that writes the version-hint.text of its tables, too."""

    class Hinted(pyiceberg_sql.SqlCatalog):
        def create_table(self, *args, **options):
            table = super().create_table(*args, **options)
            hint_at(table)
            return table

        def commit_table(self, table, requirements, updates):
            done = super().commit_table(table, requirements, updates)
            hint_at(self.load_table(table.name()))
            return done

    return Hinted(name, **properties)


def hint_at(table):
    """Name the metadata file of an Iceberg table in its version-hint.text."""
    directory, _, name = table.metadata_location.rpartition("/")
    with table.io.new_output(f"{directory}/version-hint.text").create(overwrite=True) as file:
        file.write(name.encode())


def iceberg_metadata(directory):
    """Write the metadata of an Iceberg table with the files in a directory."""
    files = files_in(directory)
    catalog = hinted_catalog("made", uri="sqlite:///:memory:")
    catalog.create_namespace("ns")
    schema = pq.read_schema(files[0])
    table = catalog.create_table("ns.t", schema=schema, location=f"file://{directory}")
    table.add_files([str(path) for path in files])
    catalog.engine.dispose()


# Delta's base 85 is that of ZeroMQ, which orders its characters in another way than Python.
_PYTHON_85 = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_DELTA_85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(rows):
    """Return a deletion vector inside the log, as the protocol describes it."""
    pyroaring = pytest.importorskip("pyroaring")
    bitmap = pyroaring.BitMap(rows).serialize()
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded = data + b"\0" * (-len(data) % 4)
    text = base64.b85encode(padded).translate(bytes.maketrans(_PYTHON_85, _DELTA_85))
    return {
        "storageType": "i",
        "pathOrInlineDv": text.decode(),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def handmade_delta(directory, features, **add):
    """Make a table with mapped columns and one file of 10 rows."""
    (directory / "_delta_log").mkdir(parents=True)
    rows = pa.table({"col-1": range(10), "id": list("abcdefghij")})
    pq.write_table(rows, directory / "a b.parquet", row_group_size=4)

    def column(name, of, number, stored):
        mapping = {"columnMapping.id": number, "columnMapping.physicalName": stored}
        metadata = {f"delta.{key}": value for key, value in mapping.items()}
        return {"name": name, "type": of, "nullable": True, "metadata": metadata}

    # `id` was dropped, and its name belongs to another column now; `later` is in no file.
    columns = [
        column("id", "long", 1, "col-1"),
        column("day", "date", 3, "col-3"),
        column("later", "string", 4, "col-4"),
    ]
    log = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": "made",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": ["day"],
                "configuration": {"delta.columnMapping.mode": "name"},
                "createdTime": 1,
            }
        },
        {
            "add": {
                "path": "a%20b.parquet",
                "partitionValues": {"col-3": "2024-02-29"},
                "size": (directory / "a b.parquet").stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
                "stats": json.dumps({"numRecords": 10}),
                **add,
            }
        },
    ]
    path = directory / "_delta_log" / f"{0:020}.json"
    path.write_text("\n".join(map(json.dumps, log)))
    return str(directory)
