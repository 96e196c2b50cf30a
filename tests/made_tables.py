"""Makes tables of Delta Lake and Iceberg from the Parquet files in a directory."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def files_in(directory: Path) -> list[Path]:
    """Return the Parquet files in a directory in order."""
    return sorted(directory.glob("*.parquet"))


def delta_log(directory: Path) -> None:
    """Write the log of a Delta Lake table with the files in a directory."""
    from deltalake import CommitProperties, Field, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    files = files_in(directory)
    schema = Schema.from_arrow(pq.read_schema(files[0]))
    adds = [AddAction(f.name, f.stat().st_size, {}, 1, True, "{}") for f in files]
    create_table_with_add_actions(str(directory), schema, adds, "overwrite")


def iceberg_metadata(directory: Path) -> None:
    """Write the metadata of an Iceberg table with the files in a directory."""
    from pyiceberg.catalog.sql import SqlCatalog

    files = files_in(directory)
    catalog = SqlCatalog("made", uri="sqlite:///:memory:")
    catalog.create_namespace("ns")
    schema = pq.read_schema(files[0])
    table = catalog.create_table("ns.t", schema=schema, location=f"file://{directory}")
    table.add_files([str(path) for path in files])
    catalog.engine.dispose()
