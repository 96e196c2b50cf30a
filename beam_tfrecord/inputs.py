"""Chooses the source (CSV, Parquet, SQL, NumPy, images) that can read the inputs of a user.

The choice depends on the suffix of a path, on the scheme of a URL, or on the names of the files in
a directory. It opens no data files.
"""

from __future__ import annotations

import dataclasses
import difflib
import glob
import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.options import flag_of
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import COMPRESSION_SUFFIXES, as_paths, remote_entries
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.sql.secrets import without_password
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.storage import is_hidden
from beam_tfrecord.tables import listed

_LOGGER = logging.getLogger(__name__)

SOURCES: dict[str, type[Source]] = {
    source.kind: source for source in (Csv, Parquet, Sql, Numpy, Images)
}

Inputs = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class SourceOptions(TypedDict, total=False):
    """The options of all kinds of sources; the table in `beam_tfrecord.options` explains them."""

    delimiter: str | None
    header: bool
    names: Sequence[str] | None
    null_words: Sequence[str]
    encoding: str
    types: Mapping[str, str] | None
    union: bool
    table: str | None
    query: str | None
    where: str | None
    partition_column: str | None
    partitions: int | None
    max_connections: int | None
    row_count: bool
    arrays: str
    username: str | None
    password_env: str | None
    password_file: str | None
    session_init: Sequence[str]
    statement_timeout_s: float | None
    fetch_rows: int | None
    driver: str | None
    jars: Sequence[str]
    properties: Mapping[str, str] | None
    layout: str | None
    labels: str | os.PathLike[str] | Sequence[str] | None
    base: str | None
    path_column: str | None
    label_column: str
    check: str
    resize: int | str | tuple[int, int] | None
    format: str | None
    quality: int
    orient: bool
    max_pixels: int
    max_bytes: int
    example: str | None
    store: str


_KINDS_BY_SUFFIX: dict[str, str] = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp"), "images"),
    **dict.fromkeys((".jpe", ".jfif", ".tif", ".tiff"), "images"),
    **dict.fromkeys((".npy", ".npz"), "numpy"),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), "sql"),
}
_SUFFIXES = ".csv, .parquet, .jpg or another known suffix"
_FILE_SCHEMES = ("file", "gs", "s3", "az", "hdfs", "azfs", "http", "https")

# A directory may contain ten million images, so only the first files decide its kind.
_FILES_LOOKED_AT = 1000


def detect_kind(inputs: Inputs, *, from_: str | None = None) -> str:
    """Return the kind of source of some inputs, a key of `SOURCES`.

    Args:
        inputs: Paths, globs, directories or URLs.
        from_: The kind if the user states it; None finds it from the names.

    Raises:
        UsageError: There is no input, the inputs have no known kind or several kinds, or `from_` is
            not a kind.
    """
    paths = as_paths(inputs)
    if not paths:
        raise UsageError("no input: give a file, a directory or a pattern")
    if from_ is not None:
        return _check_kind(from_)
    path_of: dict[str, str] = {}
    for path in paths:
        path_of.setdefault(_kind_of(path), without_password(path))
    if len(path_of) > 1:
        (first, one), (second, other), *_ = path_of.items()
        raise UsageError(
            f"{one!r} is {first} but {other!r} is {second}: give inputs of one kind, or pass --from"
        )
    return _check_kind(next(iter(path_of)))


def make_source(
    inputs: Inputs,
    *,
    from_: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Source:
    """Return the source that reads some inputs.

    Args:
        inputs: Paths, globs, directories or URLs.
        from_: Kind of the source; None finds it from the names of the inputs.
        columns: Columns to read; None means all.
        options: The options of the source, by keyword.

    Raises:
        UsageError: The kind is not known, or lacks one of the options.
    """
    paths = as_paths(inputs)
    kind = detect_kind(paths, from_=from_)
    # Any, because the base class lacks the fields: every source is a dataclass that begins with
    # `paths`.
    source: Any = SOURCES[kind]
    keywords = dict(options or {})
    if columns is not None:
        keywords["columns"] = tuple(columns)
    known = {field.name for field in dataclasses.fields(source) if field.init} - {"paths"}
    for keyword in keywords:
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, n=1)
            hint = f"did you mean {flag_of(near[0])}?" if near else "leave it out, or check --from"
            raise UsageError(f"{flag_of(keyword)} is not an option of {kind} input: {hint}")
    made: Source = source(paths=paths, **keywords)
    if twice := [repr(path) for path, times in Counter(paths).items() if times > 1]:
        _LOGGER.warning("input is named more than once, and read once: %s", listed(twice))
    return made


def _check_kind(kind: str) -> str:
    if kind not in SOURCES:
        hint = did_you_mean(kind, SOURCES, f"the kinds are {', '.join(SOURCES)}")
        raise UsageError(f"cannot read input of kind {kind!r}: {hint}")
    return kind


def _kind_of(path: str) -> str:
    scheme, colon, _ = path.partition("://")
    if path.startswith("jdbc:") or (colon and scheme not in _FILE_SCHEMES):
        return "sql"
    path = path.removeprefix("file://")
    if os.path.isdir(path):
        from beam_tfrecord.stage import format_at

        if (form := format_at(path)).startswith("beam_tfrecord-stage/"):
            return "parquet"
        if form.startswith("beam_tfrecord/"):
            raise UsageError(
                f"{path!r} is a dataset, not an input: give the files that it was written "
                "from; the output comes last"
            )
        return _kind_of_files(path, _visible_files(path))
    if kind := _KINDS_BY_SUFFIX.get(_suffix(path)):
        return kind
    if colon and scheme != "file":
        return _kind_of_files(path, (entry.path for entry in remote_entries(path)))
    if os.path.exists(path) or colon:
        raise UsageError(
            f"cannot tell what {path!r} holds: its name does not end in {_SUFFIXES}: "
            f"pass --from {'|'.join(SOURCES)}"
        )
    matches = itertools.islice(glob.iglob(path, recursive=True), _FILES_LOOKED_AT)
    return _kind_of_files(path, (file for match in matches for file in _files_at(match)))


def _files_at(path: str) -> Iterator[str]:
    return _visible_files(path) if os.path.isdir(path) else iter([path])


def _kind_of_files(where: str, files: Iterable[str]) -> str:
    """Return the kind of the first files of a directory or glob, ignoring files of unknown kinds.

    Raises:
        UsageError: No file has a known kind, or there are files of several kinds.
    """
    looked_at = list(itertools.islice(files, _FILES_LOOKED_AT))
    if not looked_at:
        is_empty = os.path.isdir(where)
        what = (
            "it holds no file (names that begin with . or _ do not count)"
            if is_empty
            else "no such file"
        )
        raise UsageError(f"cannot read {where!r}: {what}: check the path")
    counts = Counter(kind for file in looked_at if (kind := _KINDS_BY_SUFFIX.get(_suffix(file))))
    if len(counts) == 1:
        return next(iter(counts))
    if not counts:
        raise UsageError(
            f"cannot tell what {where!r} holds: no file in it ends in {_SUFFIXES}: "
            f"pass --from {'|'.join(SOURCES)}"
        )
    found = " and ".join(
        f"{kind} ({counted(count, 'file')})" for kind, count in sorted(counts.items())
    )
    raise UsageError(f"{where!r} holds {found}: pass --from to choose one")


def _visible_files(directory: str) -> Iterator[str]:
    for parent, children, names in os.walk(directory, followlinks=True):
        children[:] = sorted(filter(_is_visible, children))
        yield from (os.path.join(parent, name) for name in sorted(names) if _is_visible(name))


def _is_visible(name: str) -> bool:
    return not (name.startswith("_") or is_hidden(name))


def _suffix(path: str) -> str:
    stem, last = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if last in COMPRESSION_SUFFIXES else last
