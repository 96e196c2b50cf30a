"""Ports: the columns that TensorFlow sees, and as what.

TFT takes list columns only, with int64, floats or bytes inside, and a missing value as a missing
list. Numbers with a fraction go in as float64, exactly; whole numbers, booleans and times as int64.
Columns of any other type are not seen: they pass beside the function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.batch import Batch
from beam_tfrecord.features.type_kinds import is_text
from beam_tfrecord.preprocess.steps import EMPTY, FLOAT, INTEGER, OTHER, TEXT, kind_of

if TYPE_CHECKING:
    import tensorflow as tf
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

INT64, FLOAT32, FLOAT64, STRING = "int64", "float32", "float64", "string"
_DTYPES = {INTEGER: INT64, FLOAT: FLOAT64, TEXT: STRING, EMPTY: FLOAT64}
_ARROW = {
    INT64: pa.int64(),
    FLOAT32: pa.float32(),
    FLOAT64: pa.float64(),
    STRING: pa.large_binary(),
}
# Of `tensorflow.metadata.v0.FeatureType`.
_FEATURE_TYPES = {STRING: 1, INT64: 2, FLOAT32: 3, FLOAT64: 3}


@dataclasses.dataclass(frozen=True)
class Port:
    """One column as an input of the function.

    Attributes:
        name: Of the column.
        dtype: ``int64``, ``float64``, ``float32`` or ``string``.
        is_dense: One value in every row, shape `[rows]`; else a sparse tensor, `[rows, values]`.
        is_list: The column holds lists.
    """

    name: str
    dtype: str
    is_dense: bool = False
    is_list: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """Type of the values in the record batches that TFT is given."""
        return _ARROW[self.dtype]

    def values(self, column: pa.Array) -> pa.Array:
        """Return a column, or the values of its lists, in the type of the port."""
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        arrow = column.type
        if pa.types.is_null(arrow):
            return pa.nulls(len(column), self.arrow)
        if pa.types.is_temporal(arrow):
            column = column.view(pa.int64() if arrow.bit_width == 64 else pa.int32())
        elif self.dtype == STRING and is_text(arrow):
            column = pc.cast(column, pa.large_string())
        # What int64 cannot hold was rejected when the raw row was encoded.
        return column if column.type == self.arrow else pc.cast(column, self.arrow, safe=False)


def ports_of(schema: pa.Schema, *, text: Collection[str] = ()) -> tuple[Port, ...]:
    """Return the ports of all columns that TensorFlow can see.

    Args:
        schema: Of the raw rows.
        text: Columns that are text where no row has a value to tell.
    """
    ports = []
    for field in schema:
        kind, is_list = kind_of(field.type)
        if kind == OTHER or (is_list and kind == EMPTY):
            continue
        dtype = STRING if kind == EMPTY and field.name in text else _DTYPES[kind]
        is_dense = not field.nullable and not is_list and kind != EMPTY
        ports.append(Port(field.name, dtype, is_dense, is_list))
    return tuple(ports)


def adapter_config(ports: Sequence[Port]) -> TensorAdapterConfig:
    """Return how TFT turns the record batches of `analysis_batch` into tensors."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    fields, representations = [], {}
    for port in ports:
        fields.append(pa.field(port.name, pa.large_list(port.arrow)))
        representations[port.name] = schema_pb2.TensorRepresentation()
        _represent(port, representations[port.name])
    return TensorAdapterConfig(pa.schema(fields), representations)


def raw_schema_pbtxt(ports: Sequence[Port]) -> str:
    """Return the inputs as the text of a `tensorflow.metadata.v0.Schema`, as examples hold them."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema: Any = schema_pb2.Schema()
    representations = schema.tensor_representation_group[""].tensor_representation
    for port in ports:
        feature = schema.feature.add(name=port.name, type=_FEATURE_TYPES[port.dtype])
        if port.is_dense:
            feature.presence.min_fraction = feature.presence.min_count = 1
        _represent(port, representations[port.name])
    return str(text_format.MessageToString(schema))


def _represent(port: Port, representation: Any) -> None:
    """Set how the values of a port become a tensor."""
    if port.is_dense:
        representation.dense_tensor.column_name = port.name
        representation.dense_tensor.shape.SetInParent()
    else:
        representation.varlen_sparse_tensor.column_name = port.name


Int64Array = npt.NDArray[np.int64]


def without_missing(batch: Batch, columns: Sequence[str]) -> Batch:
    """Return the rows of a batch that have a value, not NaN, in each of `columns`."""
    kept = np.ones(batch.num_rows, np.bool_)
    for name in columns:
        column = batch.data.column(name)
        kept &= column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(column.type):
            kept &= ~pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
    if kept.all():
        return batch
    rest = batch.take(np.flatnonzero(kept))
    return rest.replace(rejects=batch.rejects, rows_read=batch.rows_counted, refused=batch.refused)


def analysis_batch(
    data: pa.RecordBatch, ports: Sequence[Port], used: Collection[str]
) -> pa.RecordBatch:
    """Return a record batch for TFT: a list column a port, a missing value as a missing list.

    Args:
        data: Raw rows.
        ports: The inputs of the function.
        used: Columns that statistics are made of; others come without values, which costs nothing.
    """
    columns = []
    for port in ports:
        if port.name in used or port.is_dense:
            columns.append(_as_lists(data.column(port.name), port))
        else:
            columns.append(pa.nulls(data.num_rows, pa.large_list(port.arrow)))
    return pa.RecordBatch.from_arrays(columns, names=[port.name for port in ports])


def _as_lists(column: pa.Array, port: Port) -> pa.Array:
    offsets, values, missing = _parts(column, port)
    mask = None if missing is None else pa.array(missing)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _parts(
    column: pa.Array, port: Port
) -> tuple[Int64Array, pa.Array, npt.NDArray[np.bool_] | None]:
    """Return where each row's values begin, all values, and which rows have none.

    Nulls inside lists are left out.
    """
    rows = len(column)
    missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    if not port.is_list:
        values = port.values(column)
        if missing is None:
            return np.arange(rows + 1, dtype=np.int64), values, None
        counts = (~missing).astype(np.int64)
        return _offsets(counts), values.drop_null(), missing
    counts = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    values = port.values(column.flatten())
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        owners = np.repeat(np.arange(rows), counts)
        counts = np.bincount(owners[present], minlength=rows).astype(np.int64)
        values = values.drop_null()
    return _offsets(counts), values, missing


def _offsets(counts: Int64Array) -> Int64Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def tensors(data: pa.RecordBatch, ports: Sequence[Port]) -> dict[str, tf.Tensor | tf.SparseTensor]:
    """Return the columns of raw rows as the inputs of the saved function."""
    return {port.name: _tensor(data.column(port.name), port) for port in ports}


def _tensor(column: pa.Array, port: Port) -> tf.Tensor | tf.SparseTensor:
    import tensorflow as tf

    offsets, values, _ = _parts(column, port)
    numbers = tf.constant(_numpy(values, port), getattr(tf, port.dtype))
    if port.is_dense:
        return numbers
    counts = np.diff(offsets)
    width = int(counts.max(initial=0)) if port.is_list else 1
    owners = np.repeat(np.arange(len(column), dtype=np.int64), counts)
    inside = np.arange(len(owners), dtype=np.int64) - offsets[owners]
    return tf.SparseTensor(np.stack([owners, inside], axis=1), numbers, [len(column), width])


def _numpy(values: pa.Array, port: Port) -> npt.NDArray[Any]:
    if port.dtype == STRING:
        return np.array(values.to_pylist(), object)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def column_of(tensor: Any, *, is_scalar: bool) -> pa.Array:
    """Return an output of the saved function as a column.

    Args:
        tensor: Dense, shape `[rows, …]`, sparse, `[rows, values]`, or ragged.
        is_scalar: Whether a sparse tensor has at most one value a row.
    """
    if hasattr(tensor, "dense_shape"):
        return _sparse_column(tensor, is_scalar)
    if hasattr(tensor, "row_splits"):
        values = column_of(tensor.values, is_scalar=True)
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
        missing = pa.array(counts == 0)
        return pa.LargeListArray.from_arrays(pa.array(_offsets(counts)), values, mask=missing)
    if len(values) == rows:
        return values
    places = np.full(rows, -1, np.int64)
    places[owners] = np.arange(len(owners))
    return values.take(pa.array(places, mask=places < 0))


def _flat(values: npt.NDArray[Any]) -> pa.Array:
    if values.dtype == object:
        return pa.array(values.tolist(), pa.large_binary())
    return pa.array(values)
