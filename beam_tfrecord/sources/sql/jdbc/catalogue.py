"""What the catalogue of a database tells of a table, through its JDBC driver."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import re
from collections.abc import Iterator
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import Connection, Dialect, Table

_KINDS = (
    "TABLE", "BASE TABLE", "VIEW", "MATERIALIZED VIEW", "PARTITIONED TABLE", "FOREIGN TABLE",
)  # fmt: skip
_SYSTEM = frozenset(
    ("information_schema", "pg_catalog", "mysql", "performance_schema", "sys", "system_lobs")
)
_PART = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^."`]+)')

# Estimates of rows and bytes, by product; parameters are literals of schema and name.
_SIZES = {
    "h2": "SELECT row_count_estimate, CAST(NULL AS bigint) FROM information_schema.tables "
    "WHERE table_schema = {schema} AND table_name = {name}",
    **dict.fromkeys(
        ("mariadb", "mysql"),
        "SELECT CAST(table_rows AS signed), CAST(data_length AS signed) FROM "
        "information_schema.tables WHERE table_schema = {schema} AND table_name = {name}",
    ),
}


@dataclasses.dataclass(frozen=True)
class _Found:
    catalogue: str | None
    schema: str | None
    name: str

    def sql(self, dialect: Dialect, *, uses_catalogues: bool) -> str:
        outer = self.catalogue if uses_catalogues else self.schema
        parts = [outer, self.name] if outer else [self.name]
        return ".".join(dialect.name(part) for part in parts)


def find_table(connection: Connection, opened: Any, table: str, place: str) -> Table:
    """Look a table up as the user wrote it.

    Args:
        connection: For further questions.
        opened: The ``java.sql.Connection``.
        table: ``trips``, ``public.trips``, ``"A b"``: without quotes, case does not matter where
            one table alone has that name.
        place: The database, for the message.

    Raises:
        UsageError: There is no such table, or several.
    """
    *outer, (name, is_quoted) = _parts(table)
    wanted_schema = outer[-1][0] if outer else None
    # MariaDB and MySQL call their schemas catalogues.
    uses_catalogues = connection.dialect.product in ("mariadb", "mysql")
    here = _text(opened.getCatalog() if uses_catalogues else _schema_of(opened))
    every = list(_tables(opened, _text(opened.getCatalog())))
    found = [
        one
        for one in every
        if _is_in(one.catalogue if uses_catalogues else one.schema, wanted_schema)
    ]
    # Or letter for letter: a name may hold points and quotes itself.
    same = [one for one in found if one.name == name] or [one for one in every if one.name == table]
    if not same and not is_quoted:
        same = [one for one in found if one.name.lower() == name.lower()]
    if len(same) > 1:
        same = [one for one in same if here in (one.catalogue, one.schema)] or same
    if len(same) != 1:
        raise UsageError(_not_found(table, place, name, found, same))
    (one,) = same
    rows, size = _size(connection, one, uses_catalogues)
    return Table(
        sql=one.sql(connection.dialect, uses_catalogues=uses_catalogues),
        name=one.name if uses_catalogues or not one.schema else f"{one.schema}.{one.name}",
        schema=(one.catalogue if uses_catalogues else one.schema) or "",
        key=_key(opened, one),
        rows=rows,
        bytes=size,
    )


def _parts(table: str) -> list[tuple[str, bool]]:
    """Split a name at its points; each part with whether it was quoted."""
    parts = []
    for double, back, plain in _PART.findall(table):
        quoted = double.replace('""', '"') or back.replace("``", "`")
        parts.append((quoted or plain, bool(quoted)))
    return parts or [(table, False)]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _schema_of(opened: Any) -> Any:
    # Old drivers do not know the method.
    with contextlib.suppress(Exception):
        return opened.getSchema()
    return None


def _is_in(schema: str | None, wanted: str | None) -> bool:
    known = (schema or "").lower()
    return known not in _SYSTEM if wanted is None else known == wanted.lower()


def _tables(opened: Any, catalogue: str | None) -> Iterator[_Found]:
    """Yield all tables and views, of the system too."""
    rows = opened.getMetaData().getTables(catalogue, None, "%", list(_KINDS))
    while rows.next():
        yield _Found(_text(rows.getString(1)), _text(rows.getString(2)), str(rows.getString(3)))
    rows.close()


def _key(opened: Any, table: _Found) -> tuple[str, ...]:
    rows = opened.getMetaData().getPrimaryKeys(table.catalogue, table.schema, table.name)
    found = []
    while rows.next():
        found.append((int(rows.getShort(5)), str(rows.getString(4))))
    rows.close()
    return tuple(column for _, column in sorted(found))


def _size(
    connection: Connection, table: _Found, uses_catalogues: bool
) -> tuple[int | None, int | None]:
    sql = _SIZES.get(connection.dialect.product)
    if sql is None:
        return None, None
    schema = (table.catalogue if uses_catalogues else table.schema) or ""
    text = connection.dialect.text
    found = connection.fetch(sql.format(schema=text(schema), name=text(table.name)))
    rows, size = found[0] if found else (None, None)
    return (None if rows is None else int(rows)), (None if size is None else int(size))


def _not_found(table: str, place: str, name: str, found: list[_Found], same: list[_Found]) -> str:
    if same:
        where = ", ".join(sorted(f"{one.schema}.{one.name}" for one in same))
        return f"table {table!r} is in {place} several times: pass --table as one of {where}"
    names = {one.name.lower(): one.name for one in found}
    near = [names[one] for one in difflib.get_close_matches(name.lower(), names, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "correct --table"
    return f"table {table!r} is not in {place}: {hint}"


def type_in_catalogue(connection: Connection, table: Table | None, column: str) -> str | None:
    """Return the type of a column of MariaDB or MySQL, as their catalogue names it, or None."""
    if table is None or connection.dialect.product not in ("mariadb", "mysql"):
        return None
    schema, name, of = map(connection.dialect.text, (table.schema, table.name, column))
    found = connection.fetch(
        "SELECT data_type FROM information_schema.columns WHERE "
        f"table_schema = {schema} AND table_name = {name} AND column_name = {of}"
    )
    return str(found[0][0]) if found else None
