import concurrent.futures

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.effort import examples
from tests.whole.type_families import FAMILIES


def round_trip(array, **options):
    schema = Schema((Feature("c", array.type, **options),))
    arena = Arena()
    data = pa.RecordBatch.from_arrays([array], names=["c"])
    result = Encoder(schema).encode(Batch(data), arena)
    assert result.rejects == []
    decoder = Decoder(schema)
    out = decoder.decode(arena.used_data(), arena.used_starts())
    out.validate(full=True)
    assert out.schema == decoder.arrow_schema
    return out.column(0)


@pytest.mark.parametrize("family", ["ints", "floats", "decimals", "dates and times"])
def test_text_is_exact(family):
    @settings(max_examples=examples(80), deadline=None)
    @given(FAMILIES[family])
    def check(column):
        array = column.array
        if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
            times = array.cast(pa.timestamp("s") if pa.types.is_date(array.type) else array.type)
            moments = times.drop_null().to_numpy(zero_copy_only=False)
            years = moments.astype("M8[Y]").astype(int) + 1970
            # 64 bits of nanoseconds begin in the second after this one.
            is_first = getattr(array.type, "unit", "") == "ns" and (
                moments < np.datetime64(-(2**63) + 10**9, "ns")
            )
            if ((years < 0) | (years > 9999) | is_first).any():
                with pytest.raises(DataError, match="outside of the years that text can have"):
                    round_trip(array, store="text")
                return
        found = round_trip(array, store="text")
        # NaN equals no NaN, and Python has no times as far as those of Arrow.
        if pa.types.is_temporal(array.type):
            assert found.equals(array)
        else:
            assert repr(found.to_pylist()) == repr(array.to_pylist())

    check()


def test_float64_bytes_keep_every_bit():
    bits = np.array([0x7FF8000000000001, 0x3FB999999999999A, 1], np.uint64)
    array = pa.array(bits.view(np.float64))
    assert round_trip(array, store="bytes").to_numpy().view(np.uint64).tolist() == bits.tolist()


@pytest.mark.parametrize("make", [pa.list_view, pa.large_list_view])
def test_list_views_are_refused(make):
    with pytest.raises(UsageError, match="cast it to numbers, text, bytes, or lists"):
        round_trip(pa.array([[1]], make(pa.int64())))


def test_views_inside_null_fixed_size_lists():
    arrow = pa.list_(pa.struct({"a": pa.string_view()}), 2)
    rows = [None, [{"a": "x"}, {"a": "y"}], None]
    assert round_trip(pa.array(rows, arrow)).to_pylist() == rows


def test_a_null_struct_and_one_of_nulls_are_the_same():
    array = pa.array([{"a": None}, None], pa.struct({"a": pa.int8()}))
    assert round_trip(array).to_pylist() == [None, None]


def test_one_decoder_serves_all_threads():
    arrow = pa.map_(pa.string(), pa.list_(pa.int64()))
    schema = Schema((Feature("c", arrow),))
    decoder = Decoder(schema)

    def one(rows):
        values = [[("key", [row] * (row % 3))] * (row % 2) for row in range(rows)]
        batch = pa.RecordBatch.from_arrays([pa.array(values, arrow)], names=["c"])
        arena = Arena()
        Encoder(schema).encode(Batch(batch), arena)
        return batch, arena

    blocks = [one(20), one(30)]

    def comes_back(turn):
        batch, arena = blocks[turn % 2]
        return bool(decoder.decode(arena.used_data(), arena.used_starts()).equals(batch))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(comes_back, range(2000)))
