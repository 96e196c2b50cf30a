"""The columns of a table of pictures that hold paths and classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import Scan
from beam_tfrecord.sources.csv.infer import CsvInference
from beam_tfrecord.sources.images.read import picture_fields

if TYPE_CHECKING:
    from beam_tfrecord.sources.images.source import Images

_LABEL_COLUMNS = frozenset({"label", "label_name"})


def made_columns(source: Images) -> frozenset[str]:
    """Return the names of what rows have besides the further columns of a table."""
    fields = picture_fields(resizes=source.resize is not None)
    return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *fields})


def path_column(source: Images) -> str:
    """Return the name of the column that holds the paths."""
    return source.path_column or "path"


def needs_paths(source: Images) -> bool:
    """Tell whether more is wanted than further columns of a table."""
    return source.columns is None or not made_columns(source).isdisjoint(source.columns)


def needs_labels(source: Images) -> bool:
    """Tell whether classes are wanted."""
    return source.columns is None or not _LABEL_COLUMNS.isdisjoint(source.columns)


def named_columns(source: Images) -> dict[str, str]:
    """Return the columns of a table that are wanted for paths and classes, by their options."""
    named = {"--path-column": path_column(source)} if needs_paths(source) else {}
    return named | ({"--label-column": source.label_column} if needs_labels(source) else {})


def check_named(source: Images) -> None:
    """Check what is said of the columns of paths and classes before a table is looked at.

    Raises:
        UsageError: Both are to be one column, or names of given classes are wanted alone.
    """
    wanted = source.columns or ("label", "label_name")
    if source.labels is not None and "label_name" in wanted and "label" not in wanted:
        raise UsageError("--labels numbers the classes: add label to --columns")
    named = named_columns(source)
    if len(set(named.values())) < len(named):
        raise UsageError(
            f"column {source.label_column!r} cannot hold both paths and classes: "
            "correct --path-column or --label-column"
        )


def check_columns(source: Images, inferences: Iterable[CsvInference | Scan]) -> None:
    """Check that a table has the columns that hold paths and classes.

    Raises:
        UsageError: It has not.
    """
    known = set().union(*map(names_in, inferences))
    if not known:
        raise UsageError("the tables are empty: give them a header that names their columns")
    named = named_columns(source)
    # A table may do without classes where nobody asks for them.
    if (source.label_column, source.labels, source.columns) == ("label", None, None):
        del named["--label-column"]
    for option, name in named.items():
        if name not in known:
            raise UsageError(
                f"column {name!r} is not in the input: "
                f"correct {option} to one of {', '.join(sorted(known))}"
            )


def names_in(inference: CsvInference | Scan) -> set[str]:
    """Return the names of all columns of one piece of a table."""
    if isinstance(inference, CsvInference):
        return {*inference.names, *dict(inference.file.partitions)}
    return {*inference.detail.names, *dict(inference.chunk.file.partitions)}
