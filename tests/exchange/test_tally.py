import itertools

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.tally import (
    Discovered,
    Tally,
    merge_tallies,
    schema_of_discovered,
)
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.schema import Schema

INT = Schema.from_arrow(pa.schema([("x", pa.int64())]))
TEXT = Schema.from_arrow(pa.schema([("x", pa.string())]))


PARTS = [
    Tally(rows=3, records=2, rejects=1, reject_files=("b",), schema=INT),
    Tally(rows=4, records=4, observed={"x": ColumnStats(missing=1, min=-1, max=7)}),
    Tally(
        rows=9,
        records=1,
        rejects=8,
        reject_files=("a",),
        observed={"x": ColumnStats(missing=2, min=0, max=99)},
        places_by_bytes=True,
    ),
]


def test_tallies_add_up_in_any_order():
    for order in itertools.permutations(PARTS):
        assert merge_tallies(order) == Tally(
            rows=16,
            records=7,
            rejects=9,
            reject_files=("a", "b"),
            schema=INT,
            observed={"x": ColumnStats(missing=3, min=-1, max=99)},
            places_by_bytes=True,
        )
    assert PARTS[0].merge(PARTS[1].merge(PARTS[2])) == PARTS[0].merge(PARTS[1]).merge(PARTS[2])


def test_nothing_is_an_empty_tally():
    assert merge_tallies([]) == Tally()


def test_different_schemas_are_refused():
    with pytest.raises(DataError) as caught:
        Tally(schema=INT).merge(Tally(schema=TEXT))
    assert str(caught.value) == (
        "batches of different schemas were given to one dataset: (x: int64) and (x: string): "
        "read both by one reader, such as ReadFromCsv(['a.csv', 'b.csv']), or pass schema="
    )


def test_whether_a_column_may_be_null_does_not_matter():
    never = Schema.from_arrow(pa.schema([pa.field("x", pa.int64(), nullable=False)]))
    merged = Tally(schema=never).merge(Tally(schema=INT, observed={"x": ColumnStats(missing=1)}))
    assert merged.final_schema()["x"].nullable
    assert not Tally(schema=INT, observed={"x": ColumnStats()}).final_schema()["x"].nullable


def test_discovered_features_add_up():
    one = Tally(records=5, discovered={"a": Discovered(3, 5, 1, 1), "b": Discovered(1, 2, 0, 4)})
    two = Tally(records=3, discovered={"a": Discovered(3, 1, 1, 1), "c": Discovered(2, 3, 1, 1)})
    merged = one.merge(two)
    assert merged == two.merge(one)
    assert merged.discovered == {
        "a": Discovered(3, 6, 1, 1),
        "b": Discovered(1, 2, 0, 4),
        "c": Discovered(2, 3, 1, 1),
    }
    schema = merged.final_schema()
    assert schema.to_arrow() == pa.schema(
        [("a", pa.int64()), ("b", pa.list_(pa.binary())), ("c", pa.float32())]
    )
    missing = [of.observed and of.observed.missing for of in schema.features]
    assert missing == [2, 6, 5]


def test_a_feature_of_two_kinds_is_refused():
    with pytest.raises(DataError, match=r"feature 'a' has values of two kinds .*: bytes, int64"):
        Tally(discovered={"a": Discovered(3, 1, 1, 1)}).merge(
            Tally(discovered={"a": Discovered(1, 1, 1, 1)})
        )


def test_discovered_features_are_in_byte_order_of_names():
    found = {name: Discovered(3, 1, 1, 1) for name in ("é", "b", "B", "\U0001f600", "\uffee")}
    assert schema_of_discovered(found).names == ("B", "b", "é", "\uffee", "\U0001f600")
