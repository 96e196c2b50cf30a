"""DuckDB through its own package, which gives Arrow by itself.

An open reader keeps other processes from writing, so one moment holds as long as the connection
that planned is open; whoever reads elsewhere compares the file's size and time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.sources.parquet.types import can_cast
from beam_tfrecord.sources.sql.database import (
    Connection,
    Dialect,
    Engine,
    Key,
    Relation,
    SnapshotLost,
    SqlColumn,
    SqlRows,
    Table,
)
from beam_tfrecord.sources.sql.plan import ranges
from beam_tfrecord.sources.sql.values import Infinities, rows_taken

# Arrow has no exact type for these, or another one than other databases get.
_AS_TEXT = (
    *("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT", "TIME WITH TIME ZONE", "TIMETZ", "INTERVAL"),
    *("UUID", "ENUM", "JSON", "BIT", "UNION", "GEOMETRY", "VARIANT"),
)
_NESTED = ("STRUCT", "MAP", "UNION", "VARIANT")
# What values, and the ends of ranges, rest on.
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
INFINITIES = Infinities(days=(2**31 - 1, 1 - 2**31), ticks=(2**63 - 1, 1 - 2**63))


@dataclasses.dataclass(frozen=True)
class DuckDb(Engine):
    """A DuckDB file: ``duckdb:///relative``, ``duckdb:////absolute``, or its path."""

    guarantee = "one snapshot"

    @property
    def path(self) -> str:
        """The database's file."""
        if not self.url.lower().startswith("duckdb:"):
            return self.url
        path = unquote(self.url[len("duckdb:") :].partition("?")[0])
        return path.removeprefix("///") if path.startswith("///") else path.removeprefix("//")

    @property
    def place(self) -> str:
        """The file's name."""
        return os.path.basename(self.path)

    def connect(self, *, snapshot: str = "") -> DuckDbConnection:
        """Open the file for reading."""
        if self.options.statement_timeout_s is not None:
            raise UsageError(
                "DuckDB has no time limit of statements: leave out --statement-timeout"
            )
        if not os.path.isfile(self.path):
            raise UsageError(f"cannot read {self.path!r}: no such file: check the path")
        try:
            import duckdb
        except ImportError as error:
            raise UsageError(
                f"cannot read DuckDB files ({error}): pip install 'beam-tfrecord[duckdb]'"
            ) from None
        # A query reads this file and no other, and loads nothing, unless the user says otherwise.
        config = {"enable_external_access": "false", **dict(self.options.properties)}
        with told(self):
            opened = duckdb.connect(self.path, read_only=True, config=config)
            try:
                connection = DuckDbConnection(self, opened)
            except BaseException:
                opened.close()
                raise
        if snapshot not in ("", connection.export_snapshot()):
            connection.close()
            raise SnapshotLost(f"{self.place} was changed while it was read: run the job again")
        return connection


@contextlib.contextmanager
def told(engine: DuckDb) -> Iterator[None]:
    """Raise what DuckDB raises as errors of ours, in one line."""
    import duckdb

    try:
        yield
    except BeamTFRecordError:
        raise
    except (duckdb.Error, pa.ArrowException) as error:
        message = str(error).strip().splitlines()[0]
        if "different configuration" in message:
            message = "it is open in this process: close that connection first"
        elif "disabled by configuration" in message or "through configuration" in message:
            message += ": pass --properties enable_external_access=true to allow it"
        raise UsageError(f"cannot read {engine.place}: {message}") from None


class DuckDbConnection(Connection):
    """A connection that only reads."""

    dialect = Dialect("duckdb")

    def __init__(self, engine: DuckDb, connection: Any) -> None:
        self._engine = engine
        self._connection = connection
        # Ours come last, so that no statement of the user undoes them.
        settings = [f"SET {name} = '{value}'" for name, value in _SETTINGS.items()]
        for statement in (*engine.options.session_init, *settings):
            connection.execute(statement)

    def _one(self, sql: str) -> str:
        """Return a statement that is one SELECT by DuckDB's own parser, which would run several."""
        import duckdb

        found = self._connection.extract_statements(sql)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise UsageError(f"cannot read {self._engine.place}: the query has to be one SELECT")
        return sql

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""
        with told(self._engine):
            rows: list[tuple[Any, ...]] = self._connection.execute(self._one(sql)).fetchall()
            return rows

    def find_table(self, table: str) -> Table:
        """Look a table or view up by its name, with or without its schema, in any case."""
        found = {
            f"{schema}.{name}": (schema, name, rows) for schema, name, rows in self.fetch(_ALL)
        }
        plain = table.replace('"', "").lower()
        for full, (schema, name, rows) in found.items():
            is_plain = plain in (full.lower(), name.lower() if schema == "main" else None)
            # Or letter for letter: a name may hold points and quotes itself.
            if is_plain or (schema == "main" and table == name):
                quoted = [self.dialect.name(part) for part in (schema, name)]
                of = [self.dialect.text(part) for part in (schema, name)]
                keys = [key for (key,) in self.fetch(_KEY.format(*of))]
                shown = name if schema == "main" else full
                return Table(".".join(quoted), shown, tuple(keys), rows)
        near = difflib.get_close_matches(table, [full.removeprefix("main.") for full in found], n=1)
        known = f"did you mean {near[0]!r}?" if near else "correct --table"
        raise UsageError(f"table {table!r} is not in {self._engine.place}: {known}")

    def describe(
        self, relation: Relation, *, types: Mapping[str, pa.DataType] | None = None
    ) -> tuple[SqlColumn, ...]:
        """Return the columns of what is read."""
        described = self.fetch(f"DESCRIBE {relation.select('*')}")
        sure: set[str] = set()
        if relation.table is not None:
            of_table = self.fetch(f"DESCRIBE {relation.table.sql}")
            sure = {str(name) for name, _, null, *_ in of_table if null == "NO"}
        with told(self._engine):
            empty = self._connection.sql(self._one(f"{relation.select('*')} LIMIT 0"))
            schema = empty.to_arrow_table().schema
        return tuple(
            self._column(name, declared, arrow, name not in sure, (types or {}).get(name))
            for (name, declared, *_), arrow in zip(described, schema.types, strict=True)
        )

    def _column(
        self,
        name: str,
        declared: str,
        arrow: pa.DataType,
        nullable: bool,
        wanted: pa.DataType | None,
    ) -> SqlColumn:
        quoted = self.dialect.name(name)
        as_text = SqlColumn(name, declared, pa.string(), nullable, f"CAST({quoted} AS VARCHAR)")
        native: SqlColumn = dataclasses.replace(as_text, arrow=arrow, select=quoted)
        if wanted is not None and not wanted.equals(arrow):
            if pa.types.is_string(wanted):
                return as_text
            if not can_cast(arrow, wanted):
                why = f"it cannot be read as {wanted}: pass --types {name}=text"
                return dataclasses.replace(native, arrow=None, refusal=why)
            return dataclasses.replace(native, arrow=wanted)
        if declared.endswith("]"):
            return self._array(native, as_text)
        if declared.upper().startswith(_AS_TEXT):
            return as_text
        if not _is_exact(arrow):
            why = f"it holds values without an exact type: pass --types {name}=text"
            return dataclasses.replace(native, arrow=None, refusal=why)
        return native

    def _array(self, native: SqlColumn, as_text: SqlColumn) -> SqlColumn:
        arrays = self._engine.options.arrays
        if arrays == "text":
            return as_text
        is_exact = _is_exact(native.arrow)
        if arrays == "list" and is_exact:
            return native
        cure = "--arrays list or --arrays text" if is_exact else "--arrays text"
        return dataclasses.replace(native, arrow=None, refusal=f"an array is read with {cure}")

    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result."""
        with told(self._engine):
            for data in self._connection.sql(self._one(sql)).to_arrow_reader(batch_rows):
                yield rows_taken(data, columns, INFINITIES)

    def key_of(self, relation: Relation, column: SqlColumn) -> Key | None:
        """Cut by anything but nested values, whose text is ambiguous."""
        declared = column.declared
        if declared.endswith("]") or declared.upper().startswith(_NESTED):
            return None
        # A literal without a type would be compared with the text of an ENUM.
        return Key(
            self.dialect.name(column.name),
            "CAST({} AS VARCHAR)",
            lambda value: f"CAST({self.dialect.text(str(value))} AS {declared})",
        )

    def row_ranges(self, relation: Relation, partitions: int) -> list[str] | None:
        """Cut a table by the numbers of its rows; a view has none."""
        columns = {str(name).lower() for name, *_ in self.fetch(f"DESCRIBE {relation.sql}")}
        if "rowid" in columns:
            return None
        try:
            ((last,),) = self.fetch(f"SELECT MAX(rowid) FROM {relation.sql}")
        except UsageError:
            return None
        rows = 0 if last is None else int(last) + 1
        cuts = sorted({rows * index // partitions for index in range(1, partitions)} - {0})
        return ranges("rowid", [str(cut) for cut in cuts], nullable=False)

    def export_snapshot(self) -> str:
        """Return what changes with the file, also where another one takes its place."""
        state = os.stat(self._engine.path)
        times = f"{state.st_mtime_ns}:{state.st_ctime_ns}"
        return f"{self._engine.path}:{state.st_size}:{times}:{state.st_ino}"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _is_exact(arrow: pa.DataType) -> bool:
    """Tell whether Example and Arrow hold such values exactly, items and fields included."""
    types = pa.types
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return _is_exact(arrow.value_type)
    if types.is_struct(arrow):
        return all(_is_exact(field.type) for field in arrow)
    if types.is_map(arrow):
        return _is_exact(arrow.key_type) and _is_exact(arrow.item_type)
    is_odd = types.is_interval(arrow) or types.is_union(arrow) or types.is_dictionary(arrow)
    return not (is_odd or isinstance(arrow, pa.BaseExtensionType))


_ALL = """
SELECT schema_name, table_name, estimated_size FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT schema_name, view_name, NULL FROM duckdb_views() WHERE NOT internal
ORDER BY 1, 2
"""
_KEY = """
SELECT unnest(constraint_column_names) FROM duckdb_constraints()
WHERE constraint_type = 'PRIMARY KEY' AND schema_name = {} AND table_name = {}
"""
