"""`Decoder`: framed records back into Arrow, the inverse of `beam_tfrecord.records.encoding`.

The kernel gives each feature as flat values with the counts of every record. Columns are built
from those as a whole, following the walk through their types that encoding took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.leaves import Leaf, leaves, tensor_shape, value_count
from beam_tfrecord.features.lowering_lists import BoolArray, Int64Array, Layer, take_values
from beam_tfrecord.features.lowering_tensors import raise_tensors
from beam_tfrecord.features.raising import list_of, raise_values, tensor_storage
from beam_tfrecord.features.schema import Feature, Schema
from beam_tfrecord.features.type_kinds import (
    bare_type,
    is_extension,
    is_list,
    is_numpy_tensor,
    is_tensor,
    is_uuid,
)


class Decoder:
    """Decodes records under one schema; one object serves all threads.

    Null and empty lists, zero and missing values come back as they were. Three things do not: a
    struct whose fields are all null is a null struct, float64 and decimals stored as float_list
    are rounded to float32, and a dictionary is its values.

    Args:
        schema: The features of the records.
        columns: Names of the columns wanted, in order; None for all.

    Raises:
        UsageError: A column does not exist.
    """

    def __init__(self, schema: Schema, columns: Iterable[str] | None = None) -> None:
        self.schema = schema if columns is None else schema.select(columns)
        self._leaves = [
            {leaf.name: leaf for leaf in leaves(feature, separator=schema.separator)}
            for feature in self.schema.features
        ]
        every = [leaf for of_feature in self._leaves for leaf in of_feature.values()]
        self._features = [(leaf.name.encode(), leaf.kind) for leaf in every]
        self._names = [leaf.name for leaf in every]
        self.arrow_schema = pa.schema(
            [
                pa.field(feature.name, decoded_type(feature.type), feature.nullable)
                for feature in self.schema.features
            ]
        )

    def decode(self, data: npt.NDArray[np.uint8], starts: Int64Array) -> pa.RecordBatch:
        """Return the rows of the records at `starts` in `data`, in the Arrow types of the schema.

        Raises:
            DataError: A record is no Example, or a feature does not fit the schema.
        """
        try:
            found = native.decode(data, starts, self._features)
        except ValueError as error:
            raise DataError(str(error)) from error
        columns = dict(zip(self._names, found, strict=True))
        separator = self.schema.separator
        arrays = [
            _Builder(feature, separator, of_feature, columns, len(starts)).build()
            for feature, of_feature in zip(self.schema.features, self._leaves, strict=True)
        ]
        fields = [
            # Foreign records may lack what the schema requires.
            field.with_nullable(True) if array.null_count else field
            for field, array in zip(self.arrow_schema, arrays, strict=True)
        ]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(starts), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def decoded_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type in which values of `arrow` come back: without dictionaries."""
    arrow = bare_type(arrow)
    if is_extension(arrow):
        return arrow
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(decoded_type(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        key = arrow.key_field.with_type(decoded_type(arrow.key_type))
        return pa.map_(key, arrow.item_field.with_type(decoded_type(arrow.item_type)))
    if not is_list(arrow):
        return arrow
    item = arrow.value_field.with_type(decoded_type(arrow.value_type))
    types = pa.types
    if types.is_fixed_size_list(arrow):
        return pa.list_(item, arrow.list_size)
    if types.is_large_list(arrow):
        return pa.large_list(item)
    if types.is_list_view(arrow):
        return pa.list_view(item)
    return pa.large_list_view(item) if types.is_large_list_view(arrow) else pa.list_(item)


class _Built(NamedTuple):
    """Values and the lists around them, outermost first; only those of rows can be null."""

    values: pa.Array
    layers: tuple[Layer, ...]


class _Builder:
    """Builds one column of one block from its leaves.

    Args:
        feature: The column.
        separator: Of the names of its leaves.
        leaves: By name.
        columns: What the kernel decoded, by the name of the leaf.
        rows: Records of the block.
    """

    def __init__(
        self,
        feature: Feature,
        separator: str,
        leaves: Mapping[str, Leaf],
        columns: Mapping[str, Any],
        rows: int,
    ) -> None:
        self._feature = feature
        self._separator = separator
        self._leaves = leaves
        self._columns = columns
        self._rows = rows

    def build(self) -> pa.Array:
        """Return the column as an array of one value a row."""
        feature = self._feature
        try:
            return self._built(feature.type, feature.name, 0, feature.nullable).values
        except pa.ArrowInvalid as error:
            raise DataError(
                f"column {feature.name!r} cannot be read as {feature.type}: {error}"
            ) from error

    def _built(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        """Return the values of `arrow` that lie in `depth` lists."""
        arrow = bare_type(arrow)
        if is_tensor(arrow):
            return _Built(self._tensor(arrow, name), ())
        if is_numpy_tensor(arrow):
            parts = (name, f"{name}{self._separator}shape", f"{name}{self._separator}dtype")
            own = {part: self._leaves[part] for part in parts if part in self._leaves}
            return _Built(raise_tensors(arrow, own, self._columns, self._rows), ())
        if is_extension(arrow) and not is_uuid(arrow):
            storage, layers = self._built(arrow.storage_type, name, depth, nullable)
            return _Built(pa.ExtensionArray.from_storage(arrow, storage), layers)
        if pa.types.is_struct(arrow):
            return self._struct(arrow, name, depth, nullable)
        if pa.types.is_map(arrow):
            return self._map(arrow, name, depth)
        if is_list(arrow):
            inner = self._built(arrow.value_type, name, depth + 1, True)
            layer = inner.layers[depth]
            return _Built(list_of(decoded_type(arrow), layer, inner.values), inner.layers[:depth])
        if pa.types.is_null(arrow):
            return _Built(pa.nulls(self._rows), ())
        return self._values(self._leaves[name], arrow)

    def _struct(self, arrow: pa.DataType, name: str, depth: int, nullable: bool) -> _Built:
        built = [
            self._built(field.type, f"{name}{self._separator}{field.name}", depth, True)
            for field in arrow
        ]
        layers = built[0].layers
        for other in built[1:]:
            self._check_same(layers, other.layers, name)
        arrays = [part.values for part in built]
        mask = None
        if nullable and depth == 0:
            missing = np.ones(self._rows, bool)
            for array in arrays:
                missing &= pc.is_null(array).to_numpy(zero_copy_only=False)
            mask = pa.array(missing) if missing.any() else None
        fields = [field.with_type(decoded_type(field.type)) for field in arrow]
        made = pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
        return _Built(made, layers)

    def _map(self, arrow: pa.DataType, name: str, depth: int) -> _Built:
        keys = self._built(arrow.key_type, f"{name}{self._separator}key", depth + 1, True)
        items = self._built(arrow.item_type, f"{name}{self._separator}value", depth + 1, True)
        self._check_same(keys.layers, items.layers, name)
        layer = keys.layers[depth]
        mask = None if layer.missing is None else pa.array(layer.missing)
        offsets = pc.cast(pa.array(layer.offsets), pa.int32())
        made = pa.MapArray.from_arrays(
            offsets, keys.values, items.values, type=decoded_type(arrow), mask=mask
        )
        return _Built(made, keys.layers[:depth])

    def _check_same(self, layers: tuple[Layer, ...], others: tuple[Layer, ...], name: str) -> None:
        for layer, other in zip(layers, others, strict=True):
            if not np.array_equal(layer.offsets, other.offsets):
                raise DataError(f"the features under {name!r} differ in their number of values")

    def _values(self, leaf: Leaf, arrow: pa.DataType) -> _Built:
        column = self._columns[leaf.name]
        if not leaf.depth:
            return _Built(self._scalars(leaf, arrow, column), ())
        values = raise_values(column, arrow, leaf)
        missing = _missing(column)
        if leaf.shape is not None:
            self._check_counts(leaf, column, missing, value_count(leaf.shape))
            return _Built(values, self._dense_layers(leaf.shape, missing))
        layers = [Layer(column.row_offsets, missing)]
        starts = column.row_offsets
        for level, name in enumerate(leaf.row_lengths(self._separator)):
            lengths = self._columns[name]
            if level == 0:
                layers[0] = Layer(lengths.row_offsets, missing)
                starts = lengths.row_offsets
            elif not np.array_equal(starts, lengths.row_offsets):
                raise DataError(f"feature {name!r} has not one length for each list")
            if len(lengths.values) and lengths.values.min() < 0:
                raise DataError(f"feature {name!r} has a negative length")
            offsets = np.concatenate([[0], np.cumsum(lengths.values)])
            layers.append(Layer(offsets, None))
            starts = offsets[starts]
        if not np.array_equal(starts, column.row_offsets):
            raise DataError(f"feature {leaf.name!r} has not as many values as its row lengths say")
        return _Built(values, tuple(layers))

    def _dense_layers(self, shape: tuple[int, ...], missing: BoolArray | None) -> tuple[Layer, ...]:
        present = np.ones(self._rows, np.int64) if missing is None else (~missing).astype(np.int64)
        layers = [Layer(np.concatenate([[0], np.cumsum(present * shape[0])]), missing)]
        for size in shape[1:]:
            above = int(layers[-1].offsets[-1])
            layers.append(Layer(np.arange(above + 1, dtype=np.int64) * size, None))
        return tuple(layers)

    def _scalars(self, leaf: Leaf, arrow: pa.DataType, column: Any) -> pa.Array:
        counts = np.diff(column.row_offsets)
        if len(counts) and counts.max() > 1:
            record = int(np.argmax(counts > 1))
            raise DataError(
                f"record {record}: feature {leaf.name!r} has {counts[record]} values, not one: "
                "make it a list in the schema"
            )
        values = raise_values(column, arrow, leaf)
        if len(values) == len(counts):
            return values
        places = np.where(counts > 0, column.row_offsets[:-1], 0)
        return take_values(values, pa.array(places, mask=counts == 0))

    def _tensor(self, arrow: pa.DataType, name: str) -> pa.Array:
        shape = tensor_shape(arrow, self._feature.name)
        leaf = self._leaves[name]
        column = self._columns[name]
        missing = _missing(column)
        if leaf.shape:
            self._check_counts(leaf, column, missing, value_count(shape))
            values = raise_values(column, arrow.value_type, leaf)
        elif self._feature.store == "values":
            self._check_counts(leaf, column, missing, 1)
            values = raise_values(column, arrow.value_type, leaf)
        else:
            self._check_counts(leaf, column, missing, 1)
            values = tensor_storage(column, arrow, leaf.name)
        present = np.ones(self._rows, np.int64) if missing is None else (~missing).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(present * value_count(shape))])
        storage = list_of(arrow.storage_type, Layer(offsets, missing), values)
        return pa.ExtensionArray.from_storage(arrow, storage)

    def _check_counts(self, leaf: Leaf, column: Any, missing: BoolArray | None, count: int) -> None:
        wrong = np.diff(column.row_offsets) != count
        if missing is not None:
            wrong &= ~missing
        if wrong.any():
            record = int(np.argmax(wrong))
            found = int(np.diff(column.row_offsets)[record])
            raise DataError(
                f"record {record}: feature {leaf.name!r} has {found} values, not {count}"
            )


def _missing(column: Any) -> BoolArray | None:
    """Return which records lack the feature; None where none does."""
    return None if column.present.all() else column.present == 0
