"""What connections give and take: columns, rows, tables, and the text of statements."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class SqlColumn:
    """A column of a table or of a query's result.

    Attributes:
        name: Its name, as it will stand in the batches.
        declared: Its type as the database writes it.
        arrow: Type of its values in the batches; None where it is refused.
        nullable: False only where the database promises it.
        select: The expression that gives its values in a select list, a cast included where one
            is needed; it may refer to the columns of what is read by their quoted names.
        refusal: Where `arrow` is None: why, and the option that cures it.
    """

    name: str
    declared: str
    arrow: pa.DataType | None
    nullable: bool
    select: str
    refusal: str = ""


@dataclasses.dataclass(frozen=True)
class Misfit:
    """A value that is not of its column's type.

    Attributes:
        row: Row within its batch.
        column: Name of the column.
        message: What it is, such as ``is text 'abc' but the column is bigint``.
        value: The value as text, cut to 200 characters.
    """

    row: int
    column: str
    message: str
    value: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class SqlRows:
    """Some rows of a result.

    Attributes:
        data: The rows, under the types of the columns that were asked for; a misfit is null.
        misfits: The values that could not be taken.
    """

    data: pa.RecordBatch
    misfits: tuple[Misfit, ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, as the catalogue knows it.

    Attributes:
        sql: Its quoted name with its schema, as it goes into statements.
        name: The same for people and for names of units, such as ``public.trips``.
        key: Columns of the primary key, in order; empty where there is none.
        rows: Estimate of the number of rows; None where unknown.
        bytes: Estimate of its size; None where unknown.
        schema: Its schema, or what the database has instead; empty where it has none.
    """

    sql: str
    name: str
    key: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None
    schema: str = ""


@dataclasses.dataclass(frozen=True)
class Relation:
    """What a job reads, as text for statements.

    Attributes:
        sql: What follows FROM: a quoted table, or ``(query) AS q``.
        where: Condition that every row meets; empty: all.
        table: The table, where it is one.
    """

    sql: str
    where: str = ""
    table: Table | None = None

    def select(self, expressions: str, *conditions: str, order_by: str = "") -> str:
        """Return the statement that selects `expressions` of the rows that meet `conditions`."""
        # The line end closes a comment that a condition may end with.
        own = f"{self.where}\n" if self.where else ""
        all_of = [f"({one})" for one in (own, *conditions) if one]
        where = f" WHERE {' AND '.join(all_of)}" if all_of else ""
        order = f" ORDER BY {order_by}" if order_by else ""
        return f"SELECT {expressions} FROM {self.sql}{where}{order}"


# A semicolon with nothing but blanks, comments and more of it behind. A comment with a character
# that may end a quoted text or another comment is left: it may be no comment.
_END = re.compile(r""";(?:[;\s]|--[^\r\n'"`$\]*]*(?![^\r\n])|/\*[^'"`$\]*]*\*/)*\Z""")


def trimmed(query: str) -> str:
    """Return a query without the semicolon at its end, and the comments behind that.

    >>> trimmed("SELECT 1; -- done"), trimmed("SELECT '; -- done'")
    ('SELECT 1', "SELECT '; -- done'")
    """
    return _END.sub("", query.strip())


def _same(value: Any) -> str:
    return str(value)


@dataclasses.dataclass(frozen=True)
class Key:
    """How the values of a column cut a table into ranges.

    The database orders the rows by the expression and compares the same expression with the
    literals, so that both follow one comparison.

    Attributes:
        expression: What is ordered and compared; most often the quoted column.
        text: Expression that returns one value of it, ``{}``, exactly, as text.
        literal: Returns the literal of a value that `text` returned.
        null: Condition that holds where the expression, ``{}``, is null, and nowhere else.
    """

    expression: str
    text: str = "{}"
    literal: Callable[[Any], str] = _same
    null: str = "{} IS NULL"

    @property
    def is_null(self) -> str:
        """The condition that rows without a key meet."""
        return self.null.format(self.expression)

    def literals(self, values: Iterable[Any]) -> list[str]:
        """Return the literals of rising values; the least one has nothing below it to cut off."""
        found = list(values)
        inner = dict.fromkeys(value for value in found if value != found[0])
        return [self.literal(value) for value in inner]


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How one database writes SQL.

    Attributes:
        product: The database's name, for messages and for the names of types.
        quote: The character around quoted names.
        backslashes: True where a backslash inside a quoted text has a meaning of its own.
    """

    product: str
    quote: str = '"'
    backslashes: bool = False

    def name(self, name: str) -> str:
        """Quote a name."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        """Quote a text."""
        if self.backslashes:
            value = value.replace("\\", "\\\\")
        return "'" + value.replace("'", "''") + "'"

    def subquery(self, query: str) -> str:
        """Return a query as what can follow FROM."""
        # The line end closes a comment that the query may end with.
        return f"({trimmed(query)}\n) AS {self.name('q')}"
