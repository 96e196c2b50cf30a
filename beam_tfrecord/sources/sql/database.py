"""The interface between the SQL source and a database: engines, connections and passwords.

An `Engine` is built from a URL and options, without connecting. It is pickled to workers and
holds no secret. A `Connection` belongs to one process and, if the database can do that, reads
one snapshot as long as it is open. A partition is a range of rows that one connection reads. Its
bounds are SQL literals that the database itself writes, so the database's own types and collations
apply to them.

A password in a URL or an argument is removed at once and stored in this process only, under the
URL without the password. Runners inside this process find it there. Workers elsewhere need an
environment variable or a file of their own. Messages, files and pickled jobs never have it.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import decimal
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, UsageError, did_you_mean
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql.values import SqlColumn, SqlRows

_HIDDEN = "***"
_SCHEME = r"^((?:jdbc:)?[a-z0-9+.:_-]*?//[^/?#;@:]*):"
_USERINFO = re.compile(_SCHEME + r"([^/?#;]*)@", re.I)
# Finds a password that should have been percent-encoded: hides too much rather than too little.
_RAW_USERINFO = re.compile(_SCHEME + r"(.*)@(?=[^@]*$)", re.I)
_ORACLE = re.compile(r"^(jdbc:oracle:[a-z]+:[^/@]+)/([^@]*)@", re.I)
_PARAMETER = re.compile(
    r"([?&;])(password|pwd|passwd|passphrase|sslpassword|token|secret|accesskey)=([^&;]*)", re.I
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|jdbc:\S+", re.I)

# Passwords of this process, by URL without the password.
_stored: dict[str, str] = {}


def split_password(url: str) -> tuple[str, str | None]:
    """Split a URL into the URL without its password, and the password.

    Recognizes ``//user:password@host``, ``jdbc:oracle:thin:user/password@…`` and parameters such
    as ``?password=`` or ``;pwd=``. An empty password counts as none.
    """
    found: list[str] = []
    for pattern in (_USERINFO, _RAW_USERINFO, _ORACLE):
        if match := pattern.search(url):
            found.append(match[2] if pattern is _ORACLE else unquote(match[2]))
            url = f"{match[1]}@{url[match.end() :]}"
    for match in _PARAMETER.finditer(url):
        found.append(unquote(match[3]))
    url = _PARAMETER.sub(lambda match: match[1], url)
    url = re.sub(r"[?&;]+$", "", re.sub(r"([?&;])[&;]+", r"\1", url))
    return url, next((password for password in found if password), None)


def store_password(url: str, password: str) -> None:
    """Store the password of a URL in this process."""
    _stored[url] = password


def stored_password(url: str) -> str | None:
    """Return the password that this process stores for a URL, or None if it stores none."""
    return _stored.get(url)


def without_password(text: str, password: str | None = None) -> str:
    """Remove passwords from a text, such as a driver's message."""
    for secret in (password, quote(password, safe="") if password else None):
        if secret:
            text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: split_password(match[0])[0], text)


class ConnectionLost(Exception):
    """A connection broke; the same statement may succeed over a new one."""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table or view, as the database's catalog describes it."""

    sql: str
    name: str
    key: tuple[str, ...] = ()
    rows: int | None = None
    bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Relation:
    """The rows that a job reads: a table or a query, and a condition."""

    sql: str
    where: str = ""
    table: Table | None = None

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.table.name if self.table else "the query"

    def select(self, expressions: str, *conditions: str, order_by: str = "") -> str:
        """Return a SELECT of `expressions` from the rows that meet `where` and `conditions`."""
        # The line end closes a comment at the end of the user's condition.
        own = f"{self.where}\n" if self.where else ""
        required = [f"({one})" for one in (own, *conditions) if one]
        where = f" WHERE {' AND '.join(required)}" if required else ""
        order = f" ORDER BY {order_by}" if order_by else ""
        return f"SELECT {expressions} FROM {self.sql}{where}{order}"


# Matches a final semicolon that only blanks, comments and more semicolons follow. A comment with a
# character that may end a quoted text or another comment does not match: it may be no comment.
_END = re.compile(r""";(?:[;\s]|--[^\r\n'"`$\]*]*(?![^\r\n])|/\*[^'"`$\]*]*\*/)*\Z""")


def trimmed(query: str) -> str:
    """Return a query without its final semicolon and the comments after the semicolon.

    >>> trimmed("SELECT 1; -- done"), trimmed("SELECT '; -- done'")
    ('SELECT 1', "SELECT '; -- done'")
    """
    return _END.sub("", query.strip())


def _plain(number: int | decimal.Decimal) -> str:
    return f"{number:f}" if isinstance(number, decimal.Decimal) else str(number)


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The quoting rules of one database."""

    text_type: str = ""
    quote: str = '"'

    def name(self, name: str) -> str:
        """Quote a name."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        """Quote a text."""
        return "'" + value.replace("'", "''") + "'"

    def as_text(self, expression: str) -> str:
        """Return an expression as text, where this package knows the database's name for text."""
        return f"CAST({expression} AS {self.text_type})" if self.text_type else expression

    def subquery(self, query: str) -> str:
        """Return a query in the form that can follow FROM."""
        # The line end closes a comment at the end of the query.
        return f"({trimmed(query)}\n) AS {self.name('q')}"


class Connection(contextlib.AbstractContextManager["Connection"]):
    """An open read-only connection, which reads one snapshot if the database can do that.

    A broken connection raises `ConnectionLost`. A wrong statement, name or password raises
    `UsageError` with the first line of the database's own message. An unreadable value raises
    `DataError`. No message contains the password.
    """

    dialect: Dialect
    # Whether one connection reads all rows, whatever the number of partitions that the user wants.
    reads_alone: ClassVar[bool] = False

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def find_table(self, table: str) -> Table:
        """Look up a table or view by the name that the user wrote, such as ``public.trips``."""

    def check_text(self, text: str, option: str) -> None:
        """Check a query or condition of the user before it becomes part of statements."""
        return

    @abc.abstractmethod
    def describe(self, relation: Relation) -> tuple[SqlColumn, ...]:
        """Return the columns of a relation, of the types that the options ask for."""

    @abc.abstractmethod
    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result as Python values."""

    @abc.abstractmethod
    def read(self, sql: str, columns: Sequence[SqlColumn], *, batch_rows: int) -> Iterator[SqlRows]:
        """Stream a result whose columns are `columns`, in batches of at most `batch_rows` rows.

        The same statement returns its rows in the same order again in the same snapshot.
        """

    def literal_of(self, column: SqlColumn) -> Callable[[Any], str] | None:
        """Return the function that writes values of a column as literals.

        Returns None if the literals may not compare as the column sorts. Numbers, dates and
        timestamps do in any database.
        """
        of = column.arrow
        if of is not None and (pa.types.is_integer(of) or pa.types.is_decimal(of)):
            return _plain
        is_moment = of is not None and (pa.types.is_date(of) or pa.types.is_timestamp(of))
        return self.dialect.text if is_moment and self.dialect.text_type else None

    def cut_points(
        self, relation: Relation, name: str, literal: Callable[[Any], str], partitions: int
    ) -> list[str]:
        """Return ascending literals that split a relation into about equal ranges of a column.

        There are at most ``partitions - 1`` distinct literals, and none if the relation is empty.
        """
        known = f"{name} IS NOT NULL"
        ((rows,),) = self.fetch(relation.select("COUNT(*)", known))
        first = [1, *(1 + cut for cut in even_cuts(int(rows), partitions))]
        numbered = f"{name} AS k, ROW_NUMBER() OVER (ORDER BY {name}) AS ordinal"
        found = self.fetch(
            f"SELECT {self.dialect.as_text('k')} FROM ({relation.select(numbered, known)}) t "
            f"WHERE ordinal IN ({', '.join(map(str, first))}) ORDER BY ordinal"
        )
        distinct = list(dict.fromkeys(value for (value,) in found))
        # The first partition begins with the lowest value.
        return [literal(value) for value in distinct[1:]]

    def row_cuts(self, relation: Relation, partitions: int) -> tuple[str, list[str]] | None:
        """Return an expression for a row's position, and ascending literals that split a table.

        Returns None if rows have no position, or if the database cannot compare positions.
        """
        return None

    def export_snapshot(self) -> str:
        """Return a token by which other connections join this snapshot, or an empty string.

        The token is valid as long as this connection is open. An empty string means that the
        database cannot share snapshots.
        """
        return ""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection or return it to its pool; may be called twice."""


@dataclasses.dataclass(frozen=True)
class Engine(abc.ABC):
    """The reader of one database, named by a URL without a password; picklable."""

    url: str
    options: DatabaseOptions = DatabaseOptions()

    # The consistency guarantee that the manifest records: ``one snapshot`` if `export_snapshot`
    # works, else ``one snapshot per partition``.
    guarantee: ClassVar[str] = "one snapshot per partition"

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """Name of the database for messages, such as ``postgresql://db.example/shop``."""

    @property
    def path(self) -> str | None:
        """Path of the database file, or None for a server."""
        return None

    def table_names(self) -> list[str]:
        """Return the tables of a local file, for a message; empty if they are not known."""
        return []

    def password(self) -> str | None:
        """Return the password to connect with, or None if there is none."""
        options = self.options
        if options.password_env is not None:
            password = os.environ.get(options.password_env)
            if password is None:
                raise UsageError(
                    f"no password: environment variable {options.password_env!r} is not set where "
                    "the database is read: set it on the workers"
                )
            return password
        if options.password_file is not None:
            try:
                with open(options.password_file, encoding="utf-8") as file:
                    return file.read().rstrip("\r\n")
            except OSError as error:
                raise UsageError(
                    f"cannot read password file {options.password_file!r} ({error.strerror}): "
                    "put it where the database is read"
                ) from None
        return stored_password(self.url)

    @contextlib.contextmanager
    def errors(self, password: str | None = None) -> Iterator[None]:
        """Raise a driver's exceptions as errors of this package, in one line without `password`."""
        try:
            yield
        except (BeamTFRecordError, ConnectionLost):
            raise
        except Exception as error:
            found = self.translate(error, lambda text: without_password(text, password))
            if found is None:
                raise
            # The driver's exception may hold the password, so it is not chained.
            raise type(found)(str(found).splitlines()[0]) from None

    def translate(self, error: Exception, hide: Callable[[str], str]) -> Exception | None:
        """Return the error to raise for an exception; None if the driver did not raise it."""
        return None

    @abc.abstractmethod
    def connect(self, *, snapshot: str = "") -> Connection:
        """Open a connection, in the snapshot of an `export_snapshot` token or in a new one."""


@dataclasses.dataclass(frozen=True)
class FileEngine(Engine):
    """An engine for database files, named by a path or a URL such as ``sqlite:///relative.db``."""

    guarantee = "one snapshot"
    scheme: ClassVar[str]

    @property
    def path(self) -> str:
        """Path of the database file: the URL itself unless it begins with `scheme`."""
        if not self.url.lower().startswith(f"{self.scheme}:"):
            return self.url
        path = unquote(self.url[len(self.scheme) + 1 :].partition("?")[0])
        return path.removeprefix("///") if path.startswith("///") else path.removeprefix("//")

    @property
    def address(self) -> str:
        """Name of the file."""
        return os.path.basename(self.path)

    def check_file(self) -> None:
        """Check that the file exists."""
        if not os.path.isfile(self.path):
            raise UsageError(f"cannot read {self.path!r}: no such file: check the path")


@contextlib.contextmanager
def closed_on_error(opened: Any) -> Iterator[None]:
    """Close what was opened if what follows fails."""
    try:
        yield
    except BaseException:
        opened.close()
        raise


def even_cuts(count: int, parts: int) -> list[int]:
    """Return the positions that cut the range from 0 to `count` into about equal parts.

    >>> even_cuts(10, 4), even_cuts(2, 4)
    ([2, 5, 7], [1])
    """
    return sorted({count * index // parts for index in range(1, parts)} - {0})


_QUOTED_NAME = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`')


def find_named(
    written: str, known: Collection[tuple[str, str]], here: Sequence[str], address: str
) -> tuple[str, str]:
    """Return schema and name of a table or view that the user named, such as ``public.trips``.

    A name without a schema is in one of the schemas `here`, of which the first counts. If no name
    is the same, one without quotes may differ in case.

    >>> find_named('Trips', [("s", "trips"), ("t", "trips")], ["t", "s"], "shop.db")
    ('t', 'trips')
    """
    by_name = {f"{schema}.{name}": (schema, name) for schema, name in known}
    for first in reversed(here):
        by_name |= {name: (schema, name) for schema, name in known if schema == first}
    plain = _QUOTED_NAME.sub(lambda match: (match[1] or match[2]).replace('""', '"'), written)
    for name in (written, plain):
        if name in by_name:
            return by_name[name]
    same = {by_name[name] for name in by_name if name.lower() == plain.lower()}
    if len(same) == 1 and plain == written:
        return same.pop()
    near = [f"{schema}.{name}" for schema, name in known if name.lower() == plain.lower()]
    similar = did_you_mean(plain.lower(), map(str.lower, by_name), "correct --table")
    hint = f"did you mean {near[0]!r}?" if near else similar
    raise UsageError(f"table {written!r} is not in {address}: {hint}")
