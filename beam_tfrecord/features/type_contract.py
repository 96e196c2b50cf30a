"""Which TFRecord features a column becomes: the type contract, as names and kinds.

A column of plain values is one feature. A nested column is several, named after the way to them:
``point/lat`` for a field, ``tags/key`` and ``tags/value`` for a map, ``grid/row_lengths_1`` for the
lengths of the lists inside the outermost list (the partitions of `tf.io.RaggedFeature`), and
``pixels/shape`` for a tensor stored as bytes, with ``pixels/dtype`` where it is an array of NumPy.
Such a feature is called a *leaf* of its column.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import (
    bare_type,
    is_binary,
    is_extension,
    is_list,
    is_numpy_tensor,
    is_temporal,
    is_tensor,
    is_text,
    is_uuid,
)
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import item_type

# Field numbers of the kinds in `tf.train.Feature`.
BYTES, FLOAT, INT64 = 1, 2, 3

# The largest precision whose every value lies within int64.
INT64_DIGITS = 18

VALUES, ROW_LENGTHS, SHAPE, DTYPE = "values", "row_lengths", "shape", "dtype"


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One TFRecord feature that a column gives.

    Attributes:
        name: Name of the feature.
        kind: `BYTES`, `FLOAT` or `INT64`.
        type: Arrow type of one value before it is stored.
        column: Name of the column.
        role: ``values``; ``row_lengths``: lengths of nested lists; ``shape`` and ``dtype``: those
            of a tensor.
        depth: Number of lists around a value; 0 for a scalar.
        shape: The fixed shape of the values of one example; None where their number varies.
        nullable: Whether an example may lack the feature.
        store: How the value is stored: ``auto``, ``text`` or ``bytes``.
    """

    name: str
    kind: int
    type: pa.DataType
    column: str
    role: str = VALUES
    depth: int = 0
    shape: tuple[int, ...] | None = None
    nullable: bool = True
    store: str = "auto"

    def row_lengths(self, separator: str) -> tuple[str, ...]:
        """Return the names of the features that partition the values, outermost first."""
        if self.role != VALUES or self.shape is not None:
            return ()
        levels = range(1, self.depth)
        return tuple(f"{self.name}{separator}row_lengths_{level}" for level in levels)


def leaves(feature: Feature, *, separator: str = "/") -> tuple[Leaf, ...]:
    """Return the features that the column `feature` becomes, parents' order kept.

    Raises:
        UsageError: The type has no place in an Example, or `store` does not apply to it.
    """
    walk = _Walk(feature, separator)
    found = tuple(walk.leaves(feature.type, feature.name, (), feature.nullable))
    if not found:
        raise UsageError(
            f"column {feature.name!r} of type {feature.type} holds no values: "
            "give it a type in the schema or leave it out"
        )
    if feature.store != "auto" and not walk.store_used:
        raise UsageError(
            f"column {feature.name!r} of type {feature.type} cannot be stored as "
            f"{feature.store!r}: {_STORE_CURES[feature.store]}"
        )
    return found


def schema_leaves(schema: Schema) -> tuple[tuple[Leaf, ...], ...]:
    """Return the leaves of every feature of `schema`, in order.

    Raises:
        UsageError: As `leaves`, or two columns give one feature name.
    """
    found = tuple(leaves(feature, separator=schema.separator) for feature in schema.features)
    owners: dict[str, str] = {}
    for leaf in (leaf for column in found for leaf in column):
        if leaf.name in owners:
            raise UsageError(
                f"columns {owners[leaf.name]!r} and {leaf.column!r} both give the feature "
                f"{leaf.name!r}: rename one, or choose another separator in the schema"
            )
        owners[leaf.name] = leaf.column
    return found


def decimal_is_integer(arrow: pa.DataType) -> bool:
    """Tell whether every value of a decimal type is an integer within int64."""
    return bool(arrow.scale <= 0 and arrow.precision - arrow.scale <= INT64_DIGITS)


def tensor_shape(arrow: pa.DataType, column: str) -> tuple[int, ...]:
    """Return the shape of a tensor type.

    Raises:
        UsageError: Its memory order is permuted, or its values are no numbers.
    """
    shape = tuple(arrow.shape)
    if arrow.permutation not in (None, list(range(len(shape)))):
        raise UsageError(
            f"column {column!r} holds tensors in the memory order {arrow.permutation}: "
            "bring them into C order first"
        )
    item = arrow.value_type
    if not (pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_boolean(item)):
        raise UsageError(f"column {column!r} holds tensors of {item}: cast them to numbers first")
    return shape


_STORE_CURES = {
    "text": "only numbers, booleans and times can become text",
    "bytes": "only float64 values can be kept as their 8 bytes",
    "values": "only tensors of numbers can become a flat list",
}


def _auto_kind(arrow: pa.DataType) -> int | None:
    """Return the kind that scalars of `arrow` have by default; None where they have none."""
    types = pa.types
    if types.is_boolean(arrow) or types.is_integer(arrow) or is_temporal(arrow):
        return INT64
    if types.is_floating(arrow):
        return FLOAT
    if types.is_decimal(arrow):
        return INT64 if decimal_is_integer(arrow) else FLOAT
    if is_text(arrow) or is_binary(arrow) or is_uuid(arrow):
        return BYTES
    return None


class _Walk:
    """The walk through the type of one column."""

    def __init__(self, feature: Feature, separator: str) -> None:
        self._column = feature.name
        self._store = feature.store
        self._separator = separator
        self.store_used = False

    def leaves(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[Leaf]:
        """Yield the leaves of `arrow`; `sizes` are those of the lists around it (None: any)."""
        arrow = bare_type(arrow)
        if is_tensor(arrow):
            yield from self._tensor(arrow, name, sizes, nullable)
        elif is_numpy_tensor(arrow):
            yield from self._numpy_tensor(arrow, name, sizes, nullable)
        elif is_extension(arrow) and not is_uuid(arrow):
            yield from self.leaves(arrow.storage_type, name, sizes, nullable)
        elif pa.types.is_struct(arrow):
            for field in arrow:
                below = f"{name}{self._separator}{field.name}"
                yield from self.leaves(field.type, below, sizes, nullable or field.nullable)
        elif pa.types.is_map(arrow):
            for part, item in (("key", arrow.key_type), ("value", arrow.item_type)):
                below = f"{name}{self._separator}{part}"
                yield from self.leaves(item, below, (*sizes, None), nullable)
        elif is_list(arrow):
            size = arrow.list_size if pa.types.is_fixed_size_list(arrow) else None
            yield from self.leaves(arrow.value_type, name, (*sizes, size), nullable)
        elif pa.types.is_null(arrow) and not sizes and name != self._column:
            return
        else:
            yield from self._values(arrow, name, sizes, nullable)

    def _values(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[Leaf]:
        kind, store = self._kind_and_store(arrow)
        fixed = tuple(size for size in sizes if size is not None)
        shape = fixed if len(fixed) == len(sizes) else None
        leaf = Leaf(
            name=name,
            kind=kind,
            type=arrow,
            column=self._column,
            depth=len(sizes),
            shape=shape,
            nullable=nullable,
            store=store,
        )
        yield leaf
        for depth, lengths in enumerate(leaf.row_lengths(self._separator), start=1):
            yield Leaf(
                name=lengths,
                kind=INT64,
                type=pa.int64(),
                column=self._column,
                role=ROW_LENGTHS,
                depth=depth,
                nullable=nullable,
            )

    def _tensor(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[Leaf]:
        shape = tensor_shape(arrow, self._column)
        self._refuse_lists(sizes)
        part = Leaf(name, BYTES, arrow, self._column, shape=(), nullable=nullable)
        if self._store == "values":
            self.store_used = True
            kind, _ = self._kind_and_store(arrow.value_type)
            rank = len(shape)
            yield dataclasses.replace(
                part, kind=kind, type=arrow.value_type, depth=rank, shape=shape
            )
            return
        yield part
        below = f"{name}{self._separator}shape"
        yield dataclasses.replace(
            part, name=below, kind=INT64, type=pa.int64(), role=SHAPE, depth=1, shape=(len(shape),)
        )

    def _numpy_tensor(
        self, arrow: pa.DataType, name: str, sizes: tuple[int | None, ...], nullable: bool
    ) -> Iterator[Leaf]:
        self._refuse_lists(sizes)
        shape, part = arrow.fixed_shape, Leaf(name, BYTES, arrow, self._column, nullable=nullable)
        if self._store == "values" and arrow.is_number:
            self.store_used = True
            kind = FLOAT if arrow.dtype.kind not in "biu" else INT64
            depth, item = 1 if shape is None else len(shape), item_type(arrow.dtype)
            yield dataclasses.replace(part, kind=kind, type=item, depth=depth, shape=shape)
            if shape is not None:
                return
        else:
            yield dataclasses.replace(part, shape=())
        below = f"{name}{self._separator}"
        rank = None if arrow.shape is None else (len(arrow.shape),)
        of_shape = dataclasses.replace(part, kind=INT64, type=pa.int64(), role=SHAPE, depth=1)
        yield dataclasses.replace(of_shape, name=f"{below}shape", shape=rank)
        if not self.store_used:
            name = f"{below}dtype"
            yield dataclasses.replace(part, name=name, type=pa.string(), role=DTYPE, shape=())

    def _refuse_lists(self, sizes: tuple[int | None, ...]) -> None:
        if sizes:
            raise UsageError(
                f"column {self._column!r} has tensors inside lists: "
                "use one tensor a row, or nested lists"
            )

    def _kind_and_store(self, arrow: pa.DataType) -> tuple[int, str]:
        kind = _auto_kind(arrow)
        if kind is None:
            raise UsageError(
                f"column {self._column!r} has values of type {arrow}, which no Example can hold: "
                f"{_cure(arrow)}"
            )
        as_text = self._store == "text" and kind != BYTES
        as_bytes = self._store == "bytes" and pa.types.is_float64(arrow)
        if as_text or as_bytes or (self._store == "text" and is_text(arrow)):
            self.store_used = True
        return (BYTES, self._store) if as_text or as_bytes else (kind, "auto")


def _cure(arrow: pa.DataType) -> str:
    if pa.types.is_null(arrow):
        return "give it a type in the schema or leave it out"
    if pa.types.is_interval(arrow):
        return "cast it to a duration, or to its parts as integers, first"
    if pa.types.is_union(arrow):
        return "make one column of each of its types first"
    return "cast it to another type first"


def value_count(shape: tuple[int, ...]) -> int:
    """Return the number of values of a fixed shape."""
    return math.prod(shape)
