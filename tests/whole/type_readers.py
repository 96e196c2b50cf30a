"""One column through the encoder, and what three readers make of its records.

Each `check_` function compares a reader with `type_oracle`, which knows nothing of the package.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.lazy import Lazy
from tests.helpers.tf_example import Example
from tests.whole.type_families import Column
from tests.whole.type_oracle import BYTES, FLOAT, INT, Features, features_of

tf = Lazy("tensorflow")

NAME = "c"
_KINDS = {"bytes_list": BYTES, "float_list": FLOAT, "int64_list": INT}


class Written(NamedTuple):
    """A column with its records."""

    column: Column
    schema: Schema
    payloads: list[bytes]
    expected: list[Features]
    arena: Arena


def write(column):
    """Encode a column of which every row can be written."""
    schema = Schema((Feature(NAME, column.array.type, store=column.store),))
    data = pa.RecordBatch.from_arrays([column.array], names=[NAME])
    arena = Arena()
    result = Encoder(schema).encode(Batch(data), arena)
    assert result.rejects == []
    frames, starts = arena.used_data().tobytes(), arena.used_starts().tolist()
    payloads = [
        frames[a + 12 : b - 4] for a, b in zip(starts, [*starts[1:], len(frames)], strict=True)
    ]
    expected = [features_of(one, column.array.type, NAME, column.store) for one in column.array]
    return Written(column, schema, payloads, expected, arena)


def check_wire(written):
    """Compare with protobuf's own parser: presence, kinds and every bit."""
    for payload, expected in zip(written.payloads, written.expected, strict=True):
        found = {}
        for name, feature in Example.FromString(payload).features.feature.items():
            kind = feature.WhichOneof("kind")
            values = list(getattr(feature, kind).value)
            if kind == "float_list":
                values = [np.float32(value).tobytes() for value in values]
            found[name] = (_KINDS[kind], values)
        assert _without_nan(found) == _without_nan(expected)


def _without_nan(features):
    """Python's floats, which protobuf gives, do not keep the bits of a NaN."""
    return {
        name: (kind, [_one_nan(value) if kind == FLOAT else value for value in values])
        for name, (kind, values) in features.items()
    }


def _one_nan(bits):
    return b"nan" if np.isnan(np.frombuffer(bits, np.float32)[0]) else bits


def check_tensorflow(written):
    """Compare with `tf.io.parse_example` under the schema's feature spec."""
    spec = written.schema.feature_spec()
    parsed = tf.io.parse_example(written.payloads, spec)
    for name, reading in spec.items():
        tensor = parsed[name]
        for row, expected in enumerate(written.expected):
            kind, values = expected.get(name, (INT, []))
            if isinstance(reading, tf.io.RaggedFeature):
                found = tensor[row]
                lengths = [expected.get(part.key, (INT, []))[1] for part in reading.partitions]
                nested = found.nested_row_lengths() if lengths else ()
                assert [part.numpy().tolist() for part in nested] == lengths
                found = found.flat_values if lengths else found
            elif isinstance(reading, tf.io.VarLenFeature):
                found = tensor.values[tensor.indices[:, 0] == row]
            else:
                found = tf.reshape(tensor[row], [-1])
            assert _plain(found.numpy(), kind) == values
    others = {name for expected in written.expected for name in expected} - set(spec)
    assert all("/row_lengths_" in name for name in others)


def _plain(array, kind):
    values = list(array)
    return [value.tobytes() for value in values] if kind == FLOAT else values


def check_ours(written):
    """Compare with our reader: what comes back gives the same features again."""
    array, store = written.column
    decoded = Decoder(written.schema).decode(written.arena.used_data(), written.arena.used_starts())
    decoded.validate(full=True)
    back = decoded.column(0)
    assert [features_of(one, back.type, NAME, store) for one in back] == written.expected
    if not _is_rounded(array.type, store):
        assert _values(back) == _values(_without_dictionary(array))


def _is_rounded(arrow, store):
    """Tell whether values, or which struct is null, are not kept, as the contract says."""
    is_decimal = pa.types.is_decimal(arrow)
    return bool(
        (pa.types.is_float64(arrow) and store == "auto")
        or (is_decimal and not (arrow.scale <= 0 and arrow.precision - arrow.scale <= 18))
        or "struct<" in str(arrow)
        # NaN is not equal to itself, at any depth; the features above are compared by bits.
        or any(word in str(arrow) for word in ("float", "double"))
    )


def _without_dictionary(array):
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _values(array):
    """Return comparable values; times as their integers, since Python has no nanoseconds."""
    if pa.types.is_temporal(array.type):
        storage = pa.int32() if array.type.bit_width == 32 else pa.int64()
        return array.view(storage).to_pylist()
    return array.to_pylist()


CHECKS = {"wire": check_wire, "tensorflow": check_tensorflow, "ours": check_ours}
