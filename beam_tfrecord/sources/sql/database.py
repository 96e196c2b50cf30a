"""What every database looks like to the SQL source: engines, connections, tables and columns.

An `Engine` is made from a URL and options without a connection, and travels to workers; it holds
no secret. A `Connection` lives in one process and sees one moment of the database for as long as
it is open, where the database can give that. All statements are SQL text: bounds of partitions
are literals that the database itself wrote, so that collations and types stay its own affair.
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.errors import DataError


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


class ConnectionLost(Exception):
    """A connection broke: what was asked may be asked again over a new one."""


class SnapshotLost(DataError):
    """The moment that a job reads can no longer be seen; the job has to start again."""


@dataclasses.dataclass(frozen=True)
class SqlOptions:
    """What a connection is opened with; nothing of it is secret.

    Attributes:
        username: User; None: that of the URL, or the driver's own default.
        password_env: Name of the environment variable that holds the password, on each worker.
        password_file: Path of the file that holds it, on each worker.
        session_init: Statements that every new connection runs first.
        fetch_rows: Rows that the driver fetches at a time; None: the engine's choice.
        statement_timeout_s: Seconds after which the database gives a statement up.
        arrays: ``refuse``, ``text`` or ``list``: what becomes of array columns.
        driver: Class or module of the driver, where the URL does not tell.
        jars: Where the driver is: paths, URLs or Maven coordinates.
        properties: Further properties of the connection, by name.
    """

    username: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    session_init: tuple[str, ...] = ()
    fetch_rows: int | None = None
    statement_timeout_s: float | None = None
    arrays: str = "refuse"
    driver: str | None = None
    jars: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


class Connection(abc.ABC):
    """An open connection: read-only, and of one moment where the database can.

    Errors: a broken connection is `ConnectionLost`; a statement, name or password that is wrong
    is `UsageError` with the database's own first line; a value that cannot be read `DataError`.
    No text of any of them contains the password.
    """

    dialect: Dialect

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def find_table(self, table: str) -> Table:
        """Look a table or view up, as the user wrote it: ``trips``, ``public.trips``, ``"A b"``.

        Raises:
            UsageError: There is none; the message tells near names where it can.
        """

    def check_text(self, text: str, option: str) -> None:
        """Look at a text of the user that is to be a part of statements.

        Args:
            text: A query or a condition.
            option: What it was given by, for the message.

        Raises:
            UsageError: It could be more than one statement, and nothing later would see it.
        """
        return

    @abc.abstractmethod
    def describe(
        self, relation: Relation, *, types: Mapping[str, pa.DataType] | None = None
    ) -> tuple[SqlColumn, ...]:
        """Return the columns of what is read, without reading rows.

        Args:
            relation: What is read.
            types: Types that the user wants instead of the database's, by column; text always
                works, whatever the column holds.

        Raises:
            UsageError: The statement is wrong, or is no SELECT.
        """

    @abc.abstractmethod
    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""

    @abc.abstractmethod
    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result that was selected in the order of `columns`.

        Never holds the result whole. Batches may have any size up to `batch_rows`; rows come in
        the same order when the same statement is asked again at the same moment.
        """

    @abc.abstractmethod
    def key_of(self, relation: Relation, column: SqlColumn) -> Key | None:
        """Return how a column cuts what is read; None: it cannot cut it exactly."""

    def cut_points(
        self, relation: Relation, column: SqlColumn, key: Key, partitions: int
    ) -> list[str]:
        """Return literals, in rising order, that cut a column into about equal parts.

        At most ``partitions - 1`` of them, each different; none where the column is empty. Every
        literal can stand in ``key < literal`` and means what it meant here.
        """
        known = f"NOT ({key.is_null})"
        ((rows,),) = self.fetch(relation.select("COUNT(*)", known))
        first = sorted({1 + int(rows) * index // partitions for index in range(partitions)})
        numbered = relation.select(
            f"{key.expression} AS k, ROW_NUMBER() OVER (ORDER BY {key.expression}) AS place", known
        )
        found = self.fetch(
            f"SELECT {key.text.format('k')} FROM ({numbered}) t "
            f"WHERE place IN ({', '.join(map(str, first))}) ORDER BY place"
        )
        return key.literals(value for (value,) in found)

    def row_ranges(self, relation: Relation, partitions: int) -> list[str] | None:
        """Return conditions that cut a table without a key by where its rows lie, or None.

        Together they hold for every row, and no row meets two.
        """
        return None

    def locator(self, relation: Relation) -> SqlColumn | None:
        """Return a column of integers that names the rows of a table without a key, or None."""
        return None

    def export_snapshot(self) -> str:
        """Return a token by which other connections see this one's moment; empty: impossible.

        The moment can be joined for as long as this connection is open.
        """
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection, or give it back; may be called twice."""


@dataclasses.dataclass(frozen=True)
class Engine(abc.ABC):
    """A database to read, by its URL without any password; picklable, and never connected.

    Attributes:
        url: The URL, without a password.
        options: What connections are opened with.
    """

    url: str
    options: SqlOptions = SqlOptions()

    # What holds for all partitions of a job together, for the manifest: ``one snapshot`` where
    # `export_snapshot` works, ``one snapshot per partition`` or ``none`` elsewhere.
    guarantee: ClassVar[str] = "one snapshot per partition"

    @property
    @abc.abstractmethod
    def place(self) -> str:
        """The database for messages and names, such as ``postgresql://db.example/shop``."""

    @property
    def path(self) -> str | None:
        """The database's file, where it is one on this machine."""
        return None

    def load(self) -> None:
        """Load the driver into this process, and connect to nothing.

        Raises:
            UsageError: It is not installed.
        """
        return

    @abc.abstractmethod
    def connect(self, *, snapshot: str = "") -> Connection:
        """Open a connection, at the moment of a token of `Connection.export_snapshot`.

        Without a token the connection's own moment begins here.

        Raises:
            UsageError: The driver is missing, or host, database, user or password is wrong: in
                one line, within ten seconds.
            ConnectionLost: The database cannot be reached now, but may be again.
            SnapshotLost: The moment is gone.
        """
