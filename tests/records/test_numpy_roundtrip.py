"""NumPy arrays there and back, bit for bit, by this package and by TensorFlow alone."""

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.extra import numpy as hnp

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType, tensor_column
from beam_tfrecord.loading.values import arrays_of
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.sources.numpy import Numpy
from tests.helpers.effort import examples

FOREIGN = [
    np.dtype(name) for name in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
]
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(endianness="?", max_len=5),
    hnp.unicode_string_dtypes(endianness="?", max_len=5),
    st.sampled_from(FOREIGN),
)


@st.composite
def arrays(draw, *, rows=None):
    """An array of random bits (text: random characters), in whatever order of memory."""
    dtype = draw(DTYPES)
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4))
    shape = shape if rows is None else (rows, *shape[1:])
    if dtype.kind in "SUb":
        array = draw(hnp.arrays(dtype, shape))
    else:
        count = int(np.prod(shape)) * dtype.itemsize
        bits = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
        array = bits.copy().view(dtype).reshape(shape)
    layout = draw(st.sampled_from(["C", "F", "every other", "backwards"]))
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "every other":
        return np.repeat(array, 2, axis=0)[::2]
    return np.ascontiguousarray(array[::-1])[::-1] if layout == "backwards" else array


def little(array):
    """Return an array with its bytes in little-endian order, as it comes back."""
    return array.astype(array.dtype.newbyteorder("<")) if array.dtype.str[0] == ">" else array


def save(path, array):
    """Save an array; return the types that the file does not tell."""
    is_foreign = array.dtype in FOREIGN
    np.save(path, array.view(f"V{array.dtype.itemsize}") if is_foreign else array)
    return {"data": array.dtype.name} if is_foreign else {}


def through_records(source):
    """Encode and decode all rows."""
    schema = Schema.from_arrow(source.schema())
    decoder, tables = Decoder(schema), []
    for batch in source.batches(batch_rows=3):
        arena = Arena()
        encoded = Encoder(schema).encode(batch, arena)
        assert not encoded.rejects
        tables.append(decoder.decode(arena.data[: arena.size], arena.starts[: arena.records]))
    return pa.Table.from_batches(tables, schema=decoder.arrow_schema), schema


@settings(
    max_examples=examples(300, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(array=arrays(), as_row=st.booleans())
def test_every_array_comes_back_bit_for_bit(tmp_path, array, as_row):
    types = save(tmp_path / "x.npy", array)
    source = Numpy(tmp_path / "x.npy", types=types, example="array" if as_row else "row")
    table, schema = through_records(source)
    found = arrays_of(table, schema)["data"]
    expected = little(array)[None] if as_row else little(array)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


VALUE_DTYPES = ["bool", "int8", "uint16", "uint32", "int64", "float16", "float32", *FOREIGN]


@pytest.mark.parametrize("dtype", VALUE_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3,), (3, 2, 2), (3, 0), (0, 2)], ids=str)
def test_values_come_back_in_their_dtype(tmp_path, dtype, shape):
    array = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    types = save(tmp_path / "x.npy", array)
    table, schema = through_records(Numpy(tmp_path / "x.npy", types=types, store="values"))
    found = arrays_of(table, schema)["data"]
    assert found.dtype == array.dtype
    assert found.shape == shape
    assert found.tobytes() == array.tobytes()


def test_values_of_several_shapes_come_back(tmp_path):
    for number, shape in enumerate([(2, 3), (1, 3), (0, 3)]):
        np.save(tmp_path / f"{number}.npy", np.full(shape, number + 0.5, "f4"))
    table, schema = through_records(Numpy(tmp_path, example="array", store="values"))
    assert [array.tolist() for array in arrays_of(table, schema)["data"]] == [
        [[0.5] * 3] * 2,
        [[1.5] * 3],
        [],
    ]


def test_missing_arrays_come_back_as_missing(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(2), y=np.ones((2, 3), "u1"), z=np.ones((2, 0), "c8"))
    np.savez(tmp_path / "b.npz", x=np.arange(1))
    np.savez(tmp_path / "c.npz", x=np.arange(1), y=np.full((1, 2), 7, "u1"))
    for store in ("bytes", "values"):
        source = Numpy(tmp_path, example="row", union=True, store=store)
        table, schema = through_records(source)
        found = arrays_of(table, schema)
        lists = [None if y is None else y.tolist() for y in found["y"]]
        assert lists == [[1, 1, 1], [1, 1, 1], None, [7, 7]]
        assert [z is None for z in found["z"]] == [False, False, True, True]


def test_text_that_is_no_unicode_is_a_reject(tmp_path):
    np.save(tmp_path / "x.npy", np.array(["a", "\ud800", "b"]))
    (batch,) = Numpy(tmp_path / "x.npy").batches()
    encoded = Encoder(Schema.from_arrow(batch.data.schema)).encode(batch, Arena())
    assert [(reject.row, reject.column, reject.code) for reject in encoded.rejects] == [
        (1, "data", "invalid-utf8")
    ]


class TestDamagedRecords:
    """Records that another program wrote are checked before anything is made of them."""

    schema = Schema((bt.Feature("x", TensorType("int16", (None, 2)), nullable=False),))

    def decode(self, **changes):
        columns = {"x": b"\1\0\2\0", "x/shape": [1, 2], "x/dtype": "int16"} | changes
        data = pa.RecordBatch.from_pylist([columns])
        arena = Arena()
        Encoder(Schema.from_arrow(data.schema)).encode(Batch(data), arena)
        return Decoder(self.schema).decode(arena.data[: arena.size], arena.starts[:1])

    def test_whole(self):
        assert self.decode().column(0)[0].as_py().tolist() == [[1, 2]]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"x": b"\1\0\2"}, "feature 'x/shape' has not the size that its values have"),
            ({"x/shape": [2, 2]}, "feature 'x/shape' has not the size that its values have"),
            ({"x/shape": [2, 1]}, "feature 'x/shape' has not size 2 on axis 1"),
            ({"x/shape": [2]}, "feature 'x/shape' has not 2 sizes"),
            ({"x/shape": [-1, 2]}, "feature 'x/shape' has a negative size"),
            ({"x/shape": None}, "'x' and 'x/shape' are not in the same records"),
            ({"x/dtype": "int32"}, "feature 'x/dtype' has another value than 'int16'"),
            ({"x": [b"\1\0\2\0", b""]}, "feature 'x' has not one bytes value"),
        ],
    )
    def test_features_that_do_not_fit_together(self, changes, message):
        with pytest.raises(DataError, match=message):
            self.decode(**changes)


def test_text_beside_flat_numbers_in_a_struct_keeps_its_dtype():
    numbers, texts = TensorType("float32", (2,)), TensorType("<U3", (2,))
    columns = [
        tensor_column([np.array([1, 2], "f4"), np.array([0, 4], "f4")], numbers),
        tensor_column([np.array(["a", "b"]), np.array(["", "xyz"])], texts),
    ]
    struct = pa.StructArray.from_arrays(columns, ["numbers", "texts"])
    schema = Schema((Feature("c", struct.type, store="values"),))
    arena = Arena()
    Encoder(schema).encode(Batch(pa.RecordBatch.from_arrays([struct], ["c"])), arena)
    back = Decoder(schema).decode(arena.used_data(), arena.used_starts()).column("c")
    assert back.field("texts")[1].as_py().tolist() == ["", "xyz"]
    assert back.field("numbers")[1].as_py().tolist() == [0, 4]
