"""Reads the class labels of images: the names of all classes, and the class of each table row."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import SchemaConflict, UsageError
from beam_tfrecord.features import arrow_types
from beam_tfrecord.features.feature import LABELS_FILE, labels_of
from beam_tfrecord.images import ImageError

_KIND_KEY = b"beam_tfrecord.label_kind"
_KINDS = {str(kind).encode(): kind for kind in (pa.string(), pa.bool_(), pa.int64())}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_TRUTH = {"false": 0, "true": 1}


def classes_of_option(
    labels: str | os.PathLike[str] | Sequence[str] | None,
) -> tuple[str, ...] | None:
    """Return the names of the classes from the option ``labels``; None if it is not set."""
    if labels is None:
        return None
    where = "labels"
    if isinstance(labels, str | os.PathLike):
        where = repr(os.fspath(labels))
        try:
            with open(labels, encoding="utf-8-sig") as file:
                labels = [line.rstrip("\r\n") for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read labels {where}: {error}") from error
    names = tuple(name for name in labels if name)
    if not any(map(str.strip, names)):
        raise UsageError(f"no class is named in {where}: write one per line, or leave out --labels")
    if broken := [name for name in names if not is_line(name)]:
        raise UsageError(
            f"{broken[0]!r} in {where} cannot be one line of {LABELS_FILE}: correct it"
        )
    if len(set(names)) < len(names):
        raise UsageError(f"{max(names, key=names.count)!r} appears twice in {where}: remove one")
    return names


def is_line(name: str) -> bool:
    """Return whether a name can be a line of a labels file, from which it is read unchanged."""
    return bool(name) and "\n" not in name and "\r" not in name and name[0] != "\ufeff"


def classes_in(columns: Iterable[pa.Array]) -> frozenset[str]:
    """Return the class names in columns of text, if a labels file can contain them."""
    names: set[str] = set()
    for column in columns:
        names.update(pc.unique(column).drop_null().to_pylist())
    return frozenset(filter(is_line, names))


def read_as(column: pa.Field) -> pa.DataType:
    """Return the type (text, bool or int64) as which to read a table's column of classes."""
    if arrow_types.is_text(arrow_types.bare_type(column.type)):
        return pa.string()
    if pa.types.is_boolean(column.type):
        return pa.bool_()
    if pa.types.is_integer(column.type):
        return pa.int64()
    raise SchemaConflict(
        f"column {column.name!r} is {column.type}, which cannot be a class: name one of text or of "
        "whole numbers with --label-column"
    )


def label_field(kind: pa.DataType) -> pa.Field:
    """Return the column ``label``, whose metadata states the type of the table's column."""
    return pa.field("label", pa.int64(), metadata={_KIND_KEY: str(kind)})


def kind_of(label: pa.Field) -> pa.DataType | None:
    """Return the type in the metadata of `label_field`; None if it is absent."""
    return _KINDS.get((label.metadata or {}).get(_KIND_KEY, b""))


def _numbers_by_value(names: Sequence[str], kind: pa.DataType) -> dict[Any, int]:
    """Return the number of every class by its value in a table column that is read as `kind`.

    If all class names are numbers, the numbers in a table are class names. Otherwise they are the
    numbers of classes.
    """
    if kind == pa.string():
        return {name: number for number, name in enumerate(names)}
    if pa.types.is_boolean(kind) and all(name.lower() in _TRUTH for name in names):
        return {_TRUTH[name.lower()]: number for number, name in enumerate(names)}
    if not all(map(_WHOLE_NUMBER.fullmatch, names)):
        return {number: number for number in range(len(names))}
    # If both `1` and `01` are classes, the number 1 means the class `1`.
    by_form = sorted(enumerate(names), key=lambda pair: str(int(pair[1])) == pair[1])
    return {int(name): number for number, name in by_form}


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of some rows of a table."""

    names: list[str | None]
    numbers: list[int | None]

    @classmethod
    def of(cls, data: pa.RecordBatch, column: str, schema: pa.Schema) -> Labels | None:
        """Return the classes in `column`, numbered as in `schema`; None without such a column."""
        if column not in data.schema.names:
            return None
        values, kind = data.column(column), data.schema.field(column).type
        if pa.types.is_boolean(kind):
            values = values.cast(pa.int64())
        values = values.to_pylist()
        known = labels_of(schema.field("label")) if "label" in schema.names else ()
        if not known:
            return cls(values, [0] * len(values) if kind == pa.string() else values)
        by_value = _numbers_by_value(known, kind)
        numbers = [by_value.get(value) for value in values]
        names = [
            value if number is None else known[number]
            for value, number in zip(values, numbers, strict=True)
        ]
        return cls([None if name is None else str(name) for name in names], numbers)

    def faults(self, no_class: str) -> dict[int, ImageError]:
        """Return the faults of rows whose class is unknown, or missing for the given reason."""
        pairs = zip(self.names, self.numbers, strict=True)
        faults = enumerate(_fault(name, number, no_class) for name, number in pairs)
        return {row: fault for row, fault in faults if fault}

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns ``label`` and ``label_name``."""
        names = [value if isinstance(value, str) else None for value in self.names]
        return {
            "label": pa.array(self.numbers, pa.int64()),
            "label_name": pa.array(names, pa.string()),
        }


def _fault(name: Any, number: int | None, no_class: str) -> ImageError | None:
    """Return the fault of a class; None if it is sound."""
    if name in (None, ""):
        return ImageError("no-label", no_class)
    if isinstance(name, str) and not is_line(name):
        reason = f"is of class {name!r}, which cannot be one line of {LABELS_FILE}: rename it"
        return ImageError("bad-label", reason)
    if number is None:
        return ImageError("unknown-label", f"is of class {name!r}, which is not among the labels")
    return None
