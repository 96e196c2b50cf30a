import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import item_and_shape, type_from_json, type_to_json
from beam_tfrecord.features.tensors import TensorType

TYPES = [
    (pa.int64(), "int64"),
    (pa.timestamp("us", "Europe/Paris"), "timestamp[us, tz=Europe/Paris]"),
    (pa.decimal128(10, -2), "decimal128(10, -2)"),
    (pa.binary(4), "fixed_size_binary[4]"),
    (pa.list_(pa.float32()), {"list": "float"}),
    (pa.list_(pa.int8(), 3), {"fixed_size_list": "int8", "size": 3}),
    (pa.struct({"lat": pa.float64()}), {"struct": {"lat": "double"}}),
    (pa.map_(pa.string(), pa.int8()), {"map": ["string", "int8"]}),
    (pa.dictionary(pa.int32(), pa.string()), {"dictionary": "string"}),
    (pa.run_end_encoded(pa.int32(), pa.int8()), {"run_end_encoded": "int8"}),
    (pa.uuid(), {"extension": "arrow.uuid", "storage": "fixed_size_binary[16]"}),
    (pa.opaque(pa.int32(), "geo.cell", ""), {"extension": "geo.cell", "storage": "int32"}),
    (
        pa.opaque(pa.int32(), "cell", "geo"),
        {"extension": "cell", "storage": "int32", "vendor": "geo"},
    ),
]


@pytest.mark.parametrize(("arrow", "json"), TYPES)
def test_types_as_json_and_back(arrow, json):
    assert type_to_json(arrow) == json
    assert type_from_json(json) == arrow


def test_hand_written_names():
    assert type_from_json("text") == pa.string()
    assert type_from_json("integer") == pa.int64()
    assert type_from_json(" timestamp ") == pa.timestamp("us")


@pytest.mark.parametrize("wrong", ["int65", {"lits": "int8"}, 3])
def test_unknown_types_are_refused(wrong):
    with pytest.raises(UsageError, match="is not a type"):
        type_from_json(wrong)


@pytest.mark.parametrize(
    ("arrow", "item", "shape"),
    [
        (pa.int64(), "int64", ()),
        (pa.dictionary(pa.int32(), pa.string()), "string", ()),
        (pa.list_(pa.list_(pa.uint8(), 28), 3), "uint8", (3, 28)),
        (pa.list_(pa.large_list(pa.string())), "string", (None, None)),
        (pa.fixed_shape_tensor(pa.float32(), (2, 3)), "float", (2, 3)),
        (TensorType("float16", (4, None)), "float16", (4, None)),
        (TensorType("float16", None), "float16", ()),
        (pa.struct({"a": pa.int64()}), "struct<a: int64>", ()),
    ],
    ids=str,
)
def test_the_type_of_one_value_and_the_shape_of_a_row(arrow, item, shape):
    assert item_and_shape(arrow) == (item, shape)
