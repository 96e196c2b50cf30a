import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.tally import Discovered, Tally, schema_of_discovered

INT = Schema.from_arrow(pa.schema([("x", pa.int64())]))
TEXT = Schema.from_arrow(pa.schema([("x", pa.string())]))


def test_different_schemas_are_refused():
    with pytest.raises(DataError) as caught:
        Tally(schema=INT).merge(Tally(schema=TEXT))
    assert str(caught.value) == (
        "batches of different schemas were given to one dataset: (x: int64) and (x: string): "
        "read both by one reader, such as ReadFromCsv(['a.csv', 'b.csv']), or pass "
        "schema= to WriteToTFRecord"
    )


def test_whether_a_column_may_be_null_does_not_matter():
    never = Schema.from_arrow(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    merged = Tally(schema=never).merge(Tally(schema=INT, observed={"x": ColumnStats(missing=1)}))
    assert merged.final_schema()["x"].nullable
    assert not Tally(schema=INT, observed={"x": ColumnStats()}).final_schema()["x"].nullable


def test_discovered_features_are_in_byte_order_of_names():
    found = {name: Discovered(3, 1, 1, 1) for name in ("é", "b", "B", "\U0001f600", "\uffee")}
    assert schema_of_discovered(found).names == ("B", "b", "é", "\uffee", "\U0001f600")
