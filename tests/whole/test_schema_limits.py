"""A schema with limits (`allowed`) holds for whatever writes rows, and may come from a dataset."""

import datetime as dt
import json

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import DataError, RejectedRows, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import schema_pbtxt
from tests.helpers.effort import examples

AGES = bt.Schema((Feature("age", "int64", allowed={"min": 0, "max": 150}), Feature("name")))
ROWS = [{"age": 3, "name": "a"}, {"age": -1, "name": "b"}, {"age": None, "name": "c"}]
REASON = r"value -1 of column 'age' is not allowed \(min: 0\)"


def names_in(out):
    return sorted(row["name"] for row in bt.load(out).rows())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.slow_after(1)
def test_write_rejects_rows_of_tables_and_of_text(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        path.write_text("age,name\n3,a\n-1,b\n,c\n")
    else:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    with pytest.raises(RejectedRows, match=REASON):
        bt.write(path, tmp_path / "out", schema=AGES)
    bt.write(path, tmp_path / "out", schema=AGES, max_rejects=1)
    assert names_in(tmp_path / "out") == ["a", "c"]
    assert bt.load(tmp_path / "out").schema["age"].allowed == {"min": 0, "max": 150}


def test_the_result_of_a_map_function_is_checked(tmp_path):
    with pytest.raises(RejectedRows, match=r"\(max: 150\)"):
        bt.write(
            pa.Table.from_pylist(ROWS[:1]),
            tmp_path / "out",
            schema=AGES,
            map=lambda row: {**row, "age": row["age"] * 100},
        )


@pytest.mark.slow
@pytest.mark.parametrize("as_batches", [False, True])
def test_a_pipeline_rejects_the_same_rows(tmp_path, as_batches):
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create(ROWS)
        if as_batches:
            rows = rows | bt.BatchRows(AGES)
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/", schema=AGES, max_rejects=1)
    assert names_in(tmp_path / "out") == ["a", "c"]


@pytest.mark.slow
def test_serialized_examples_are_not_taken_unchecked(tmp_path):
    pipeline = beam.Pipeline()
    made = pipeline | beam.Create([b""]).with_output_types(bytes)
    made | bt.WriteToTFRecord(f"{tmp_path}/out/", schema=AGES)
    with pytest.raises(Exception, match="serialized examples cannot be checked"):
        pipeline.run().wait_until_finish()


@pytest.mark.slow
def test_preprocessing_does_not_take_limits(tmp_path):
    with pytest.raises(UsageError, match="preprocessed rows cannot be checked"):
        bt.write(pa.Table.from_pylist(ROWS), tmp_path, schema=AGES, step=["zscore=age"])


@pytest.mark.parametrize(("nulls", "rows", "share"), [(29, 100, 0.29), (2, 3, 0.67), (0, 2, 0)])
@pytest.mark.slow_after(1)
def test_a_larger_share_of_nulls_than_the_schema_says_stops_the_job(tmp_path, nulls, rows, share):
    table, more = (pa.table({"x": [None] * n + ["a"] * (rows - n)}) for n in (nulls, nulls + 1))
    schema = bt.Schema((Feature("x", allowed={"max_null_share": share}),))
    with pytest.raises(DataError, match=f"nothing was published: .* in {nulls + 1} of {rows} row"):
        bt.write(more, tmp_path / "out", schema=schema)
    assert not (tmp_path / "out" / "manifest.json").exists()
    bt.write(table, tmp_path / "out", schema=schema)
    assert bt.write(tmp_path / "out", tmp_path / "copy").examples == rows
    with pytest.raises(DataError, match="name all columns with --columns"):
        bt.write(tmp_path / "out", tmp_path / "part", limit=rows - 1)


@pytest.mark.slow
def test_a_dataset_keeps_its_limits(tmp_path):
    one, two, out = (str(tmp_path / name) for name in ("one", "two", "out"))
    bt.write(pa.Table.from_pylist(ROWS[:1]), one, schema=AGES)
    bt.write(one, out)
    assert bt.load(out).schema["age"].allowed == {"min": 0, "max": 150}
    bt.write(one, out, columns=["age"], overwrite=True)
    assert bt.load(out).schema["age"].allowed == {"min": 0, "max": 150}
    bt.write(pa.Table.from_pylist(ROWS[1:]), two)
    bt.write([one, two], out, overwrite=True)
    assert bt.load(out).schema["age"].allowed == {}


def test_schema_pbtxt_has_limits_as_domains_and_presence():
    many = bt.Schema(
        (
            Feature("n", "int64", allowed={"min": -1, "max": 2**63 - 1}),
            Feature("u", "uint64", allowed={"min": 1, "max": 2**64 - 1}),
            Feature("x", "float64", allowed={"max": 0.1}),
            Feature("day", "date32", allowed={"min": "1970-01-03"}),
            Feature("c", allowed={"values": ['a"', "é"], "pattern": ".*"}),
            Feature("tags", pa.list_(pa.string()), allowed={"max_null_share": 0.7}),
            Feature("b", "float64", store="bytes", allowed={"max": 0.1}),
            Feature("t", allowed={"min": "a", "max": "b"}),
            Feature("i", "int64", store="text", allowed={"min": 1, "values": [1]}),
            Feature("bool", "bool", allowed={"min": 1}),
        )
    )
    text = schema_pbtxt(many)
    for line in (
        "int_domain { min: -1 max: 9223372036854775807 }",
        "float_domain { max: 0.10000000149011612 disallow_nan: true }",
        'int_domain { min: 1 }\n}\nfeature {\n  name: "x"',
        "int_domain { min: 2 }",
        'string_domain { value: "a\\"" value: "é" }',
        "presence { min_fraction: 0.3 }",
    ):
        assert text.count(f"  {line}\n") == 1
    assert text.count("domain") == 6


@pytest.mark.parametrize(
    "arrow",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.struct({"a": pa.int64()}),
        pa.list_(pa.struct({"a": pa.int64()})),
        pa.fixed_shape_tensor(pa.uint8(), [2, 2]),
        pa.uuid(),
        pa.bool_(),
    ],
)
def test_columns_of_any_type_have_a_share_of_nulls(arrow):
    schema = bt.Schema((Feature("c", arrow, fill=1, allowed={"max_null_share": 0.5}),))
    assert ("min_fraction: 0.5" in schema_pbtxt(schema)) == (not pa.types.is_struct(arrow))


@pytest.mark.slow
def test_tensorflow_metadata_reads_limits():
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = bt.Schema(
        (
            Feature("x", "float64", allowed={"min": -1e-7, "max": 1e30, "max_null_share": 1e-5}),
            Feature("c", allowed={"values": ["a"]}),
        )
    )
    x, c = text_format.Parse(schema_pbtxt(schema), schema_pb2.Schema()).feature
    assert (x.float_domain.min, x.float_domain.max) == (pytest.approx(-1e-7), pytest.approx(1e30))
    assert x.float_domain.disallow_nan
    assert x.presence.min_fraction == 1 - 1e-5
    assert list(c.string_domain.value) == ["a"]


FLOATS = st.floats(width=32) | st.sampled_from([0.1, -0.0])
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1))
TYPES = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.decimal128(9, 2), st.decimals(-10, 10, places=2)),
    (pa.string(), st.text(max_size=3) | st.just("ab" * 30)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.date32(), st.dates(dt.date(1800, 1, 1))),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC))),
    (pa.timestamp("ms", "Europe/Berlin"), MOMENTS.map(lambda of: of.replace(microsecond=0))),
    (pa.time64("us"), st.times()),
    (pa.duration("s"), st.integers(-100, 100)),
]


@st.composite
def tables(draw):
    columns = {}
    rows = draw(st.integers(1, 5))
    for number in range(draw(st.integers(1, 5))):
        arrow, values = draw(st.sampled_from(TYPES))
        if draw(st.booleans()):
            arrow, values = pa.list_(arrow), st.lists(values, max_size=3)
        of_rows = st.lists(st.none() | values, min_size=rows, max_size=rows)
        columns[f"c{number}"] = pa.array(draw(of_rows), arrow)
    return pa.table(columns)


@pytest.mark.slow
@given(tables())
@settings(max_examples=examples(16), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_dataset_keeps_to_the_limits_that_are_proposed_for_it(tmp_path_factory, table):
    place = tmp_path_factory.mktemp("place")
    bt.write(table, place / "out")
    proposed = bt.schema(place / "out", observed=True)
    assert bt.Schema.loads(proposed.dumps()) == proposed
    assert bt.write(table, place / "again", schema=proposed).examples == table.num_rows


@pytest.mark.slow
def test_limits_are_proposed(tmp_path, capsys):
    table = pa.table({"n": [3, 1, None], "c": ["b", "a", "b"], "x": [1.5, float("nan"), 2]})
    out = str(tmp_path / "out")
    bt.write(table, out)
    cli.main(["schema", out, "--observed"], standalone_mode=False)
    n, c, x = json.loads(capsys.readouterr().out)["features"]
    assert n["allowed"] == {"min": 1, "max": 3, "max_null_share": 0.334}
    assert c["allowed"] == {"values": ["a", "b"]}
    assert "allowed" not in x
    bt.write(
        table, out, schema=bt.Schema((Feature("c", allowed={"pattern": "."}),)), overwrite=True
    )
    proposed = bt.schema(out, observed=True)
    assert proposed["c"].allowed == {"pattern": ".", "values": ["a", "b"]}
    with pytest.raises(UsageError, match="for one dataset"):
        bt.schema([out, out], observed=True)
