"""Which engine reads a database: chosen by its URL, imported when it is first used."""

from __future__ import annotations

import importlib
import os
import re
from urllib.parse import quote

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.engine import Engine, SqlOptions

# By scheme: module and class.
_ENGINES = {
    "sqlite": ("sqlite.engine", "Sqlite"),
    "duckdb": ("duckdb", "DuckDb"),
    "postgresql": ("postgres.engine", "Postgres"),
    "postgres": ("postgres.engine", "Postgres"),
    "jdbc": ("jdbc.engine", "Jdbc"),
}
_SCHEME = re.compile(r"([a-z][a-z0-9]*)(?:\+[a-z0-9_]+)?:", re.I)
_FILES = {".duckdb": "duckdb", ".ddb": "duckdb"}


def engine_of(url: str, options: SqlOptions | None = None) -> Engine:
    """Return the engine of a database, without connecting to it.

    Args:
        url: ``sqlite:///file.db``, ``duckdb:///file``, ``postgresql://host/db``, ``jdbc:…``, or
            the path of a SQLite or DuckDB file; without a password.
        options: What connections are opened with.

    Raises:
        UsageError: No engine reads such a URL.
    """
    module, name = _ENGINES[_scheme_of(url)]
    engine: type[Engine] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return engine(url, options or SqlOptions())


def url_from_anywhere(url: str, path: str | None) -> str:
    """Return a database's URL such that its file is found from any directory.

    Args:
        url: As given.
        path: Of its file; None: it is no file.
    """
    if path is None:
        return url
    match = _SCHEME.match(url)
    absolute = os.path.abspath(path)
    if match is None or len(match[1]) == 1:
        return absolute
    _, mark, options = url.partition("?")
    return f"{match[1]}:///{quote(absolute)}{mark}{options}"


def _scheme_of(url: str) -> str:
    match = _SCHEME.match(url)
    # A single letter is a drive.
    if match is None or len(match[1]) == 1:
        return _FILES.get(os.path.splitext(url.lower())[1], "sqlite")
    scheme = match[1].lower()
    if scheme not in _ENGINES:
        raise UsageError(
            f"cannot read a database by {scheme!r}: give sqlite:///file.db, duckdb:///file, "
            "postgresql://host/database, or the URL of a jdbc: driver"
        )
    return scheme
