"""Ports: the columns that TensorFlow sees, and as what.

TFT takes list columns only, with int64, floats or bytes inside, and a missing value as a missing
list. Numbers with a fraction go in as float64, exactly; whole numbers, booleans and times as int64.
Columns of any other type are not seen: they pass beside the function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.preprocess.step_checks import kind_of
from beam_tfrecord.preprocess.steps import EMPTY, FLOAT, INTEGER, OTHER, TEXT

if TYPE_CHECKING:
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
