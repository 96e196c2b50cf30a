"""A database behind a JDBC driver, for tests: statements run, columns read back."""

from __future__ import annotations

import dataclasses

from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.database import Relation
from beam_tfrecord.sources.sql.jdbc import Jdbc
from tests.helpers.databases.jdbc_drivers import execute


@dataclasses.dataclass(frozen=True)
class Database:
    """A database under test."""

    url: str
    jars: tuple[str, ...]
    username: str | None = None
    properties: tuple[tuple[str, str], ...] = ()

    def engine(self, **options):
        known = DatabaseOptions(jars=self.jars, username=self.username, properties=self.properties)
        return Jdbc(self.url, dataclasses.replace(known, **options))

    def run(self, *statements):
        user = {"user": self.username} if self.username else {}
        execute(self.jars, self.url, *statements, **user, **dict(self.properties))

    def read(self, declared, *literals, wanted=None, null="", **options):
        """Return the column of a table of some literals and a NULL, its values, its misfits."""
        rows = ", ".join(f"({number}, {value})" for number, value in enumerate((*literals, "NULL")))
        self.run("DROP TABLE IF EXISTS one", f"CREATE TABLE one (pk int, v {declared}{null})")
        self.run(f"INSERT INTO one VALUES {rows}")
        types = {} if wanted is None else {"v": wanted, "V": wanted}
        with self.engine(types=types, **options).connect() as connection:
            relation = Relation("one")
            column = connection.describe(relation)[1]
            if column.arrow is None:
                return column, None, ()
            sql = relation.select(column.select, order_by="pk")
            (found,) = connection.read(sql, [column], batch_rows=100)
        return column, *_checked(found, column)


def _checked(rows, column):
    rows.data.validate(full=True)
    assert rows.data.schema.types == [column.arrow]
    return rows.data.column(0), tuple(misfit.message for misfit in rows.misfits)
