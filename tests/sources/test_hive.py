"""Partition columns: what directory names mean, and the columns they make."""

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.merge_schemas import hive_partitions, partition_fields, with_partitions


def _file(name):
    return InputFile(f"/in/{name}", name, 1, partitions=hive_partitions(name))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("year=2024/month=05/a.csv", (("year", "2024"), ("month", "05"))),
        ("city=S%C3%A3o%20Paulo/a.csv", (("city", "São Paulo"),)),
        ("rate=a=b/a.csv", (("rate", "a=b"),)),
        ("day=__HIVE_DEFAULT_PARTITION__/a.csv", (("day", None),)),
        ("day=/a.csv", (("day", ""),)),
        ("=1/a.csv", ()),
        ("plain/year=2024.csv", ()),
    ],
)
def test_directories_become_pairs(name, expected):
    assert hive_partitions(name) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "20", "-3", "0"], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["1", "02"], pa.string()),
        (["-0"], pa.string()),
        (["٣"], pa.string()),
        ([""], pa.string()),
        (["1", "__HIVE_DEFAULT_PARTITION__"], pa.int64()),
        (["__HIVE_DEFAULT_PARTITION__"], pa.null()),
    ],
)
def test_type_follows_from_all_values(values, expected):
    files = [_file(f"k={value}/a") for value in values]
    assert [field.type for field in partition_fields(files)] == [expected]
    assert [field.type for field in partition_fields(reversed(files))] == [expected]


def test_missing_directory_is_refused_or_null():
    files = [_file("a=1/x.csv"), _file("b/y.csv")]
    with pytest.raises(SchemaConflict) as caught:
        partition_fields(files)
    assert str(caught.value) == (
        "column 'a' is in a=1/x.csv but not in b/y.csv: pass --union to fill it with nulls"
    )
    assert partition_fields(files, union=True) == [pa.field("a", pa.int64(), nullable=True)]


def test_column_twice_in_a_path_is_refused():
    with pytest.raises(SchemaConflict, match="column 'a' is twice in the path a=1/a=2/x"):
        partition_fields([_file("a=1/a=2/x")])


def test_value_that_does_not_fit_is_refused():
    data = pa.record_batch({"id": [1]})
    with pytest.raises(DataError) as caught:
        with_partitions(data, _file("a=x/f"), pa.schema([("a", pa.int64())]))
    assert str(caught.value) == (
        "a=x in the path a=x/f is not int64: "
        "rename the directory, or type the column as text in --schema"
    )
