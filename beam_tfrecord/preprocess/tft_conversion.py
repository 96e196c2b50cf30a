"""Converts columns to the inputs of tensorflow-transform (TFT), and its outputs to columns.

TFT takes only list columns, of int64, floats or bytes, in which a missing list is a missing value.
Floats and decimals become float64; integers, booleans and times become int64. Columns of other
types are not inputs of the preprocessing function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.preprocess.steps import EMPTY, FLOAT, INTEGER, OTHER, TEXT, kind_of
from beam_tfrecord.rows.batch import Batch

if TYPE_CHECKING:
    import tensorflow as tf
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapter, TensorAdapterConfig

INT64, FLOAT32, FLOAT64, STRING = "int64", "float32", "float64", "string"
_DTYPES = {INTEGER: INT64, FLOAT: FLOAT64, TEXT: STRING, EMPTY: FLOAT64}
_ARROW = {
    INT64: pa.int64(),
    FLOAT32: pa.float32(),
    FLOAT64: pa.float64(),
    STRING: pa.large_binary(),
}
# Numbers of `tensorflow.metadata.v0.FeatureType`.
_FEATURE_TYPES = {STRING: 1, INT64: 2, FLOAT32: 3, FLOAT64: 3}


@dataclasses.dataclass(frozen=True)
class TensorColumn:
    """A column as an input of the preprocessing function."""

    name: str
    dtype: str
    is_dense: bool = False
    is_list: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type of the values in record batches for TFT."""
        return _ARROW[self.dtype]

    def values(self, array: pa.Array) -> pa.Array:
        """Return a column, or the values of its lists, converted to the type `arrow`."""
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        arrow = array.type
        if pa.types.is_null(arrow):
            return pa.nulls(len(array), self.arrow)
        if pa.types.is_temporal(arrow):
            array = array.view(pa.int64() if arrow.bit_width == 64 else pa.int32())
        elif self.dtype == STRING and is_text(arrow):
            array = pc.cast(array, pa.large_string())
        # Arrow's checks are off: encoding the raw row has rejected what int64 cannot hold.
        return array if array.type == self.arrow else pc.cast(array, self.arrow, safe=False)


def tensor_columns(schema: pa.Schema, *, text: Collection[str] = ()) -> tuple[TensorColumn, ...]:
    """Return the columns of a schema that can be inputs of the preprocessing function."""
    columns = []
    for field in schema:
        kind, is_list = kind_of(field.type)
        if kind == OTHER or (is_list and kind == EMPTY):
            continue
        dtype = STRING if kind == EMPTY and field.name in text else _DTYPES[kind]
        is_dense = not field.nullable and not is_list and kind != EMPTY
        columns.append(TensorColumn(field.name, dtype, is_dense, is_list))
    return tuple(columns)


def adapter_config(columns: Sequence[TensorColumn]) -> TensorAdapterConfig:
    """Return TFT's configuration for converting `tft_batch` results to tensors."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    representations = {column.name: schema_pb2.TensorRepresentation() for column in columns}
    for column in columns:
        _represent(column, representations[column.name])
    fields = [pa.field(column.name, pa.large_list(column.arrow)) for column in columns]
    return TensorAdapterConfig(pa.schema(fields), representations)


def raw_schema_pbtxt(columns: Sequence[TensorColumn]) -> str:
    """Return a `tensorflow.metadata.v0.Schema` of the inputs in examples, as text."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema: Any = schema_pb2.Schema()
    representations = schema.tensor_representation_group[""].tensor_representation
    for column in columns:
        feature = schema.feature.add(name=column.name, type=_FEATURE_TYPES[column.dtype])
        if column.is_dense:
            feature.presence.min_fraction = feature.presence.min_count = 1
        _represent(column, representations[column.name])
    return str(text_format.MessageToString(schema))


def _represent(column: TensorColumn, representation: Any) -> None:
    """Fill in a TensorRepresentation: how TFT makes a tensor of a column."""
    if column.is_dense:
        representation.dense_tensor.column_name = column.name
        representation.dense_tensor.shape.SetInParent()
    else:
        representation.varlen_sparse_tensor.column_name = column.name


def without_missing(batch: Batch, columns: Sequence[str]) -> Batch:
    """Return the rows of a batch that are neither null nor NaN in any of `columns`."""
    present = np.ones(batch.num_rows, np.bool_)
    for name in columns:
        column = batch.data.column(name)
        present &= column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(column.type):
            present &= ~pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
    if present.all():
        return batch
    rest = batch.take(np.flatnonzero(present))
    return rest.replace(rejects=batch.rejects, rows_read=batch.rows_counted, refused=batch.refused)


def tft_batch(
    data: pa.RecordBatch, columns: Sequence[TensorColumn], used: Collection[str]
) -> pa.RecordBatch:
    """Return a record batch for TFT: list columns in which a missing list is a missing value."""
    arrays = [
        _as_lists(data.column(column.name), column)
        if column.name in used or column.is_dense
        else pa.nulls(data.num_rows, pa.large_list(column.arrow))
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _as_lists(array: pa.Array, column: TensorColumn) -> pa.LargeListArray:
    """Return a list column of the values of each row, without nulls in lists.

    A missing value, or a missing list, becomes a missing list.
    """
    if column.is_list:
        counts = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int64)
        values = column.values(array.flatten())
        if values.null_count:
            owners = pa.array(np.repeat(np.arange(len(array)), counts))
            present = owners.filter(values.is_valid()).to_numpy()
            counts = np.bincount(present, minlength=len(array)).astype(np.int64)
            values = values.drop_null()
    else:
        counts = array.is_valid().cast(pa.int64()).to_numpy()
        values = column.values(array.drop_null())
    return _lists(counts, values, array.is_null())


def _lists(counts: Int64Array, values: pa.Array, missing: pa.BooleanArray) -> pa.LargeListArray:
    """Return the lists of values with lengths `counts`; a list is null if `missing` is True."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return pa.LargeListArray.from_arrays(offsets, values, mask=missing)


def tensors(
    data: pa.RecordBatch, columns: Sequence[TensorColumn], adapter: TensorAdapter
) -> dict[str, tf.Tensor | tf.SparseTensor]:
    """Return columns of raw rows as tensors by name, the inputs of the fitted function."""
    import tensorflow as tf

    batch = tft_batch(data, columns, {column.name for column in columns})
    found: dict[str, Any] = adapter.ToBatchTensors(batch, produce_eager_tensors=True)
    for column in columns:
        if not column.is_dense and not column.is_list:
            # The adapter returns shape [rows, 0] for a batch without values.
            sparse, shape = found[column.name], [data.num_rows, 1]
            found[column.name] = tf.SparseTensor(sparse.indices, sparse.values, shape)
    return found


def arrow_column(tensor: Any, *, is_scalar: bool) -> pa.Array:
    """Return an output of the fitted function as an Arrow column."""
    if hasattr(tensor, "dense_shape"):
        return _sparse_column(tensor, is_scalar)
    if hasattr(tensor, "row_splits"):
        values = arrow_column(tensor.values, is_scalar=True)
        return pa.LargeListArray.from_arrays(pa.array(tensor.row_splits.numpy()), values)
    values = tensor.numpy()
    out = _flat(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        out = pa.FixedSizeListArray.from_arrays(out, size)
    return out


def _sparse_column(tensor: Any, is_scalar: bool) -> pa.Array:
    rows = int(tensor.dense_shape[0])
    owners = tensor.indices.numpy()[:, 0]
    values = _flat(tensor.values.numpy())
    if not is_scalar:
        counts = np.bincount(owners, minlength=rows).astype(np.int64)
        return _lists(counts, values, pa.array(counts == 0))
    if len(values) == rows:
        return values
    indices = np.full(rows, -1, np.int64)
    indices[owners] = np.arange(len(owners))
    return values.take(pa.array(indices, mask=indices < 0))


def _flat(values: npt.NDArray[Any]) -> pa.Array:
    if values.dtype == object:
        return pa.array(values.tolist(), pa.large_binary())
    return pa.array(values)
