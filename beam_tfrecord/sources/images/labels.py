"""The classes of pictures: their names, in order, and what class a row of a table is of."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import pyarrow as pa

from beam_tfrecord.contract.labels import labels_of
from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import Fault
from beam_tfrecord.sources.images.read import taken


def given_classes(
    labels: str | os.PathLike[str] | Sequence[str] | None,
) -> tuple[str, ...] | None:
    """Return the names of the classes where the user gives them.

    Raises:
        UsageError: The file cannot be read, or a name is there twice.
    """
    if labels is None:
        return None
    where = "labels"
    if isinstance(labels, str | os.PathLike):
        where = repr(os.fspath(labels))
        try:
            with open(labels, encoding="utf-8") as file:
                labels = [line.rstrip("\r\n") for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read labels {where}: {error}") from error
    names = tuple(name for name in labels if name)
    if len(set(names)) < len(names):
        raise UsageError(f"{max(names, key=names.count)!r} is twice in {where}: take one away")
    return names


def class_numbers(schema: pa.Schema) -> dict[str | None, int] | None:
    """Return the number of every class by its name; None where rows have no numbered classes."""
    if "label" not in schema.names:
        return None
    classes = labels_of(schema.field("label"))
    return {name: number for number, name in enumerate(classes)}


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is text, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of some rows.

    Attributes:
        names: Name of each row's class; None where it has none.
        numbers: Its number; None where it has none, or where that is not among the classes.
        is_labelled: False where rows have no classes at all.
    """

    names: list[str | None]
    numbers: list[int | None]
    is_labelled: bool

    @classmethod
    def of(cls, data: pa.RecordBatch, column: str, schema: pa.Schema) -> Labels:
        """Return the classes in `column` of a piece of a table, numbered as `schema` says."""
        if column not in data.schema.names:
            return cls([], [], False)
        values = data.column(column).to_pylist()
        known = labels_of(schema.field("label")) if "label" in schema.names else ()
        if data.schema.field(column).type == pa.string():
            by_name: dict[str | None, int] = {name: i for i, name in enumerate(known)}
            return cls(values, [by_name.get(value) if known else 0 for value in values], True)
        if not known:
            return cls(values, values, True)
        inside = [value is not None and 0 <= value < len(known) for value in values]
        pairs = list(zip(values, inside, strict=True))
        return cls(
            [known[value] if is_in else str(value) for value, is_in in pairs],
            [value if is_in else None for value, is_in in pairs],
            True,
        )

    def fault(self, index: int) -> Fault | None:
        """Return what is wrong with the class of a row."""
        if not self.is_labelled:
            return None
        if self.names[index] is None:
            return Fault("no-label", "has no class")
        if self.numbers[index] is None:
            return Fault(
                "unknown-label", f"is of class {self.names[index]!r}, which is not among the labels"
            )
        return None

    def columns(self, kept: list[int]) -> dict[str, pa.Array]:
        """Return the columns of the rows at `kept`."""
        if not self.is_labelled:
            return {}
        names = [value if isinstance(value, str) else None for value in taken(self.names, kept)]
        return {
            "label": pa.array(taken(self.numbers, kept), pa.int64()),
            "label_name": pa.array(names, pa.string()),
        }
