"""How tables of PostgreSQL are found by their names, whatever the driver."""

from __future__ import annotations

import difflib
import re

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import Connection, Table
from beam_tfrecord.sources.sql.postgres import catalogue

_NAME = r'(?:[^\W\d][\w$]*|"(?:[^"]|"")+")'


def find_table(connection: Connection, table: str, place: str) -> Table:
    """Look a table or view up, as SQL reads its name in this session; else letter for letter.

    Raises:
        UsageError: There is none.
    """
    name = connection.dialect.name
    exact = ".".join(name(part) for part in table.split("."))
    for written in (table, exact, name(table)):
        if found := _find(connection, written):
            return found
    names = [one for (one,) in connection.fetch(catalogue.TABLES)]
    near = difflib.get_close_matches(table, names, n=1, cutoff=0.5)
    known = f"did you mean {near[0]!r}?" if near else "correct --table"
    raise UsageError(f"table {table!r} is not in {place}: {known}")


def _find(connection: Connection, written: str) -> Table | None:
    # A name that is none, such as one with a blank, would end the transaction.
    if not re.fullmatch(rf"{_NAME}(?:\.{_NAME}){{0,2}}", written):
        return None
    found = connection.fetch(catalogue.TABLE.format(connection.dialect.text(written)))
    if not found:
        return None
    sql, name, oid, rows, size = found[0]
    keys = connection.fetch(catalogue.KEY.format(oid))
    return Table(
        sql=sql,
        name=name,
        key=tuple(key for (key,) in keys),
        rows=int(rows) if rows >= 0 else None,
        bytes=int(size),
    )
