"""Reads DuckDB files through DuckDB's own package, which returns Arrow data.

An open reader prevents other processes from writing, so the snapshot lasts as long as the
connection that planned the job. Readers in other processes refuse a file whose size, times or
inode have changed since.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.sql import database as db
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows, convert_batch

# Types that are read as text: they have no exact Arrow type, or another one than the same type has
# in other databases.
_AS_TEXT = (
    *("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT", "TIME WITH TIME ZONE", "TIMETZ", "INTERVAL"),
    *("UUID", "ENUM", "JSON", "BIT", "UNION", "GEOMETRY", "VARIANT"),
)
# Settings on which values and the bounds of ranges depend.
_SETTINGS = {
    "TimeZone": "UTC",
    "Calendar": "gregorian",
    "default_order": "ASC",
    "default_null_order": "NULLS LAST",
    "arrow_large_buffer_size": "false",
    "arrow_lossless_conversion": "false",
    "arrow_output_list_view": "false",
    "arrow_output_version": "1.0",
}
_INFINITIES = {
    32: {2**31 - 1: "infinity", 1 - 2**31: "-infinity"},
    64: {2**63 - 1: "infinity", 1 - 2**63: "-infinity"},
}


@dataclasses.dataclass(frozen=True)
class DuckDb(db.FileEngine):
    """A DuckDB file: ``duckdb:///relative``, ``duckdb:////absolute``, or its path."""

    scheme = "duckdb"

    def connect(self, *, snapshot: str = "") -> DuckDbConnection:
        """Open the file for reading."""
        if self.options.statement_timeout_s is not None:
            raise UsageError(
                "DuckDB has no time limit of statements: leave out --statement-timeout"
            )
        self.check_file()
        require("duckdb", "reading DuckDB files")
        import duckdb

        # By default a query reads this file only, and loads no extension.
        config = {"enable_external_access": "false", **dict(self.options.properties or {})}
        with self.errors():
            opened = duckdb.connect(self.path, read_only=True, config=config)
            with db.closed_on_error(opened):
                connection = DuckDbConnection(self, opened)
                if snapshot not in ("", connection.export_snapshot()):
                    raise DataError(
                        f"{self.address} was changed while it was read: run the job again"
                    )
        return connection

    def translate(self, error: Exception, hide: Callable[[str], str]) -> Exception | None:
        """Return the error of this package for an error of DuckDB."""
        import duckdb

        if not isinstance(error, duckdb.Error | pa.ArrowException):
            return None
        message = str(error).strip().splitlines()[0]
        if "different configuration" in message:
            message = "it is open in this process: close that connection first"
        elif "disabled by configuration" in message or "through configuration" in message:
            message += ": pass --properties enable_external_access=true to allow it"
        return UsageError(f"cannot read {self.address}: {message}")


class DuckDbConnection(db.Connection):
    """A read-only connection to a DuckDB file."""

    dialect = db.Dialect("VARCHAR")

    def __init__(self, engine: DuckDb, connection: Any) -> None:
        self._engine = engine
        self._connection = connection
        # Our settings come last, so that no statement of the user changes them.
        settings = [f"SET {name} = '{value}'" for name, value in _SETTINGS.items()]
        for statement in (*engine.options.session_init, *settings):
            connection.execute(statement)

    def _one(self, sql: str) -> str:
        """Return a statement after checking with DuckDB's parser that it is a single SELECT."""
        import duckdb

        found = self._connection.extract_statements(sql)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise UsageError(f"cannot read {self._engine.address}: it is not one SELECT")
        return sql

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        with self._engine.errors():
            return list(self._connection.execute(self._one(sql)).fetchall())

    def find_table(self, table: str) -> db.Table:
        found = {(schema, name): rows for schema, name, rows in self.fetch(_ALL)}
        schema, name = db.find_named(table, found, ["main"], self._engine.address)
        keys = self.fetch(_KEY.format(self.dialect.text(schema), self.dialect.text(name)))
        return db.Table(
            sql=f"{self.dialect.name(schema)}.{self.dialect.name(name)}",
            name=name if schema == "main" else f"{schema}.{name}",
            key=tuple(key for (key,) in keys),
            rows=found[schema, name],
        )

    def describe(self, relation: db.Relation) -> tuple[SqlColumn, ...]:
        table = relation.table
        described = self.fetch(f"DESCRIBE {relation.select('*') if table is None else table.sql}")
        with self._engine.errors():
            empty = self._connection.sql(self._one(f"{relation.select('*')} LIMIT 0"))
            types = empty.to_arrow_table().schema.types
        # An outer join in a query may return nulls for a column that is NOT NULL.
        return tuple(
            self._column(name, declared, arrow, table is None or null == "YES")
            for (name, declared, null, *_), arrow in zip(described, types, strict=True)
        )

    def _column(self, name: str, declared: str, arrow: pa.DataType, nullable: bool) -> SqlColumn:
        quoted, options = self.dialect.name(name), self._engine.options
        text = self.dialect.as_text(quoted)
        native = SqlColumn(name, declared, arrow, nullable, quoted)
        if (wanted := options.typed.get(name)) is not None:
            return native.read_as(wanted, text)
        if not _is_exact(arrow):
            native = native.refused(f"no type holds its values: pass --types {name}=text")
        if declared.endswith("]"):
            return native.as_array(options.arrays, text)
        as_text = pa.string() if declared.upper().startswith(_AS_TEXT) else None
        return native.read_as(as_text, text)

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        with self._engine.errors():
            for data in self._connection.sql(self._one(sql)).to_arrow_reader(batch_rows):
                yield convert_batch(data.columns, columns, _INFINITIES)

    def row_cuts(self, relation: db.Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Split a table by its row numbers; None for a view, or if a column is named ``rowid``."""
        described = self.fetch(f"DESCRIBE {relation.sql}")
        is_view = relation.table is None or relation.table.rows is None
        if is_view or any(name.lower() == "rowid" for name, *_ in described):
            return None
        ((rows,),) = self.fetch(f"SELECT COALESCE(MAX(rowid) + 1, 0) FROM {relation.sql}")
        return "rowid", [str(cut) for cut in db.even_cuts(rows, partitions)]

    def export_snapshot(self) -> str:
        """Return a token that changes if the file is changed or replaced."""
        state = os.stat(self._engine.path)
        times = state.st_mtime_ns, state.st_ctime_ns
        return ":".join(map(str, (self._engine.path, state.st_size, *times, state.st_ino)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _is_exact(arrow: pa.DataType) -> bool:
    """Return whether Arrow and Example hold values of a type, items and fields too, exactly."""
    types = pa.types
    is_odd = types.is_interval(arrow) or types.is_union(arrow) or types.is_dictionary(arrow)
    if is_odd or isinstance(arrow, pa.BaseExtensionType):
        return False
    return all(_is_exact(arrow.field(index).type) for index in range(arrow.num_fields))


_ALL = """
SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT schema_name, view_name, NULL FROM duckdb_views() WHERE NOT internal
ORDER BY 1, 2
"""
_KEY = """
SELECT unnest(constraint_column_names) FROM duckdb_constraints()
WHERE constraint_type = 'PRIMARY KEY' AND schema_name = {} AND table_name = {}
"""
