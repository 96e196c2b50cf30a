"""Maps columns of any Arrow type to keys of `tf.train.Example`.

A *TF column* is one key of `tf.train.Example`, with one list of int64, float32 or bytes values. A
column of plain values becomes one TF column. A nested column becomes several, named by the path to
them: ``point/lat`` for a field of a struct, ``tags/key`` and ``tags/value`` for a map,
``grid/row_lengths_1`` for the lengths of the lists inside the outermost list (the partitions of
`tf.io.RaggedFeature`), ``pixels/shape`` for a tensor stored as bytes, and ``pixels/dtype`` too if
it is a NumPy array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import bare_type, is_binary, is_list, is_temporal, is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.tensors import TensorType, item_type

# Field numbers of the kinds in `tf.train.Feature`.
BYTES, FLOAT, INT64 = 1, 2, 3

# Every integer of up to this many decimal digits is within int64.
INT64_DIGITS = 18

VALUES, ROW_LENGTHS, SHAPE, DTYPE = "values", "row_lengths", "shape", "dtype"


class SchemaLike(Protocol):
    """The part of `Schema` that this module needs; `Schema` itself imports this module."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features, with distinct names."""


@dataclasses.dataclass(frozen=True)
class TFColumn:
    """One key of the Examples, which stores a column or a part of a column."""

    name: str
    kind: int
    type: pa.DataType
    column: str
    role: str = VALUES
    depth: int = 0
    shape: tuple[int, ...] | None = None
    nullable: bool = True
    store: str = "auto"

    @property
    def row_lengths(self) -> tuple[str, ...]:
        """Return the names of the TF columns with the lengths of inner lists, outermost first."""
        if self.role != VALUES or self.shape is not None:
            return ()
        levels = range(1, self.depth)
        return tuple(f"{self.name}/row_lengths_{level}" for level in levels)


def tf_columns(feature: Feature) -> tuple[TFColumn, ...]:
    """Return the TF columns that store a column, in the order of the parts of its type."""
    walk = _Walk(feature.name, feature.store)
    found = tuple(walk.columns(feature.type, feature.name, (), feature.nullable))
    if not found:
        raise UsageError(
            f"column {feature.name!r} of type {feature.type} holds no values: "
            "give it a type in the schema or leave it out"
        )
    if feature.store != "auto" and all(column.store == "auto" for column in found):
        raise UsageError(
            f"column {feature.name!r} of type {feature.type} cannot be stored as "
            f"{feature.store!r}: {_STORE_HINTS[feature.store]}"
        )
    return found


def schema_tf_columns(schema: SchemaLike) -> tuple[tuple[TFColumn, ...], ...]:
    """Return the TF columns of each feature of a schema, in order.

    Every schema passes through here before a dataset is written with it.
    """
    for feature in schema.features:
        feature.check()
    found = tuple(map(tf_columns, schema.features))
    owners: dict[str, str] = {}
    for part in (part for column in found for part in column):
        if part.name in owners:
            raise UsageError(
                f"columns {owners[part.name]!r} and {part.column!r} both map to the example key "
                f"{part.name!r}: rename one of them"
            )
        owners[part.name] = part.column
    return found


def scalar_kind(arrow: pa.DataType) -> int | None:
    """Return the kind of value that scalars of type `arrow` are stored as by default."""
    types = pa.types
    if types.is_boolean(arrow) or types.is_integer(arrow) or is_temporal(arrow):
        return INT64
    if types.is_floating(arrow):
        return FLOAT
    if types.is_decimal(arrow):
        return INT64 if decimal_is_integer(arrow) else FLOAT
    if is_text(arrow) or is_binary(arrow) or isinstance(arrow, pa.UuidType):
        return BYTES
    return None


def decimal_is_integer(arrow: pa.DataType) -> bool:
    """Return whether every value of a decimal type is an integer within int64."""
    return bool(arrow.scale <= 0 and arrow.precision - arrow.scale <= INT64_DIGITS)


def is_flat_tensor(tensor: TensorType, store: str) -> bool:
    """Return whether tensors are stored as lists of numbers, not as bytes."""
    return store == "values" and tensor.is_number


_STORE_HINTS = {
    "text": "only numbers, booleans and times can become text",
    "bytes": "only float64 values can be kept as their 8 bytes",
    "values": "only tensors of numbers can become a flat list",
}


class _Walk(NamedTuple):
    """Finds the TF columns of one column, by recursion over its Arrow type."""

    column: str
    store: str

    def columns(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[TFColumn]:
        """Yield the TF columns for a type."""
        arrow = bare_type(arrow)
        if isinstance(arrow, TensorType):
            if sizes:
                raise UsageError(
                    f"column {self.column!r} has tensors inside lists: "
                    "use one tensor per row, or nested lists"
                )
            yield from self._tensor(arrow, name, nullable)
        elif isinstance(arrow, pa.FixedShapeTensorType) and arrow.shape and None not in sizes:
            yield from self.columns(arrow.value_type, name, (*sizes, *arrow.shape), nullable)
        elif isinstance(arrow, pa.BaseExtensionType) and not isinstance(arrow, pa.UuidType):
            yield from self.columns(arrow.storage_type, name, sizes, nullable)
        elif pa.types.is_struct(arrow):
            for field in arrow:
                below = f"{name}/{field.name}"
                yield from self.columns(field.type, below, sizes, nullable or field.nullable)
        elif pa.types.is_map(arrow):
            for part, item in (("key", arrow.key_type), ("value", arrow.item_type)):
                below = f"{name}/{part}"
                yield from self.columns(item, below, (*sizes, None), nullable)
        elif is_list(arrow):
            size = arrow.list_size if pa.types.is_fixed_size_list(arrow) else None
            yield from self.columns(arrow.value_type, name, (*sizes, size), nullable)
        elif not pa.types.is_null(arrow) or sizes or name == self.column:
            yield from self._values(arrow, name, sizes, nullable)

    def _values(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[TFColumn]:
        kind = scalar_kind(arrow)
        if kind is None:
            raise UsageError(
                f"column {self.column!r} has values of type {arrow}, which no Example can hold: "
                f"{_hint(arrow)}"
            )
        is_own_text = self.store == "text" and (kind != BYTES or is_text(arrow))
        store = "auto"
        if is_own_text or (self.store == "bytes" and pa.types.is_float64(arrow)):
            kind, store = BYTES, self.store
        fixed = tuple(size for size in sizes if size is not None)
        shape = fixed if len(fixed) == len(sizes) else None
        depth = len(sizes)
        values = TFColumn(name, kind, arrow, self.column, VALUES, depth, shape, nullable, store)
        yield values
        for level, below in enumerate(values.row_lengths, start=1):
            yield TFColumn(
                below, INT64, pa.int64(), self.column, ROW_LENGTHS, level, nullable=nullable
            )

    def _tensor(self, tensor: TensorType, name: str, nullable: bool) -> Iterator[TFColumn]:
        column = self.column
        shape, is_flat = tensor.fixed_shape, is_flat_tensor(tensor, self.store)
        if is_flat:
            kind = INT64 if tensor.dtype.kind in "biu" else FLOAT
            depth = 1 if shape is None else len(shape)
            item = item_type(tensor.dtype)
            yield TFColumn(name, kind, item, column, VALUES, depth, shape, nullable, self.store)
            if shape is not None:
                return
        else:
            yield TFColumn(name, BYTES, tensor, column, shape=(), nullable=nullable)
        sizes = None if tensor.shape is None else (len(tensor.shape),)
        yield TFColumn(f"{name}/shape", INT64, pa.int64(), column, SHAPE, 1, sizes, nullable)
        if not is_flat:
            yield TFColumn(f"{name}/dtype", BYTES, pa.string(), column, DTYPE, 0, (), nullable)


def _hint(arrow: pa.DataType) -> str:
    if pa.types.is_null(arrow):
        return "give it a type in the schema or leave it out"
    return "cast it to numbers, text, bytes, or lists or structs of these first"
