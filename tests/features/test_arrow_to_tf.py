import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_to_tf import arrow_to_tf, is_encoded_as_is
from beam_tfrecord.features.feature import Feature


def tf_lists(array, **options):
    return [
        column.to_pylist()
        for column in arrow_to_tf(array, Feature("c", array.type, **options)).arrays
    ]


def test_times_are_views_of_the_same_memory():
    array = pa.array([1, None, 3], pa.timestamp("us"))
    (times,) = arrow_to_tf(array, Feature("c", array.type)).arrays
    assert times.type == pa.int64()
    assert times.to_pylist() == [1, None, 3]
    assert times.buffers()[1].address == array.buffers()[1].address


def test_fields_carry_the_nulls_of_their_struct():
    fields = [pa.array([1, 2]), pa.array(["x", "y"])]
    array = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array([False, True]))
    assert tf_lists(array) == [[1, None], ["x", None]]


def test_slices_of_nested_lists_keep_only_their_values():
    array = pa.array([[[9]], [[1, 2], []], None]).slice(1)
    (values, lengths) = arrow_to_tf(array, Feature("c", array.type)).arrays
    assert values.to_pylist() == [[1, 2], None]
    assert lengths.to_pylist() == [[2, 0], None]
    assert values.values.to_pylist() == [1, 2]


def test_null_inner_lists_are_named_by_row():
    array = pa.array([[[1]], [None, [2]], None, [[3], None]])
    converted = arrow_to_tf(array, Feature("c", array.type))
    assert converted.null_rows == [1, 3]


def test_plain_columns_need_no_conversion():
    assert is_encoded_as_is(Feature("c", pa.list_(pa.float32())))
    assert not is_encoded_as_is(Feature("c", pa.list_(pa.float32()), fill=0))
    assert not is_encoded_as_is(Feature("c", pa.date32()))
    assert not is_encoded_as_is(Feature("c", pa.float64(), store="bytes"))


def test_a_fill_of_another_type_is_refused():
    array = pa.array([[1, None]])
    with pytest.raises(UsageError, match=r"fill 2\.5 of column 'c' is not a value of type int64"):
        arrow_to_tf(array, Feature("c", pa.list_(pa.int64()), fill=2.5))
    with pytest.raises(UsageError, match="fill 'x' of column 'c' is not a value of type int64"):
        arrow_to_tf(array, Feature("c", array.type, fill="x"))
