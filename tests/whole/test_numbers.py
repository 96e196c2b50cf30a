"""Numbers as text and decimals: rounded once, to nearest even, and every loss reported."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.jobs.api import extract
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import BatchCoder
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.transforms.rows import batch_of_rows
from tests.helpers.records import read_records
from tests.helpers.tf_example import Example
from tests.whole.number_texts import random_texts, to_float32
from tests.whole.number_ways import WAYS, check_bytes, check_text, check_way, encoded, write_csv

COLUMNS = 400
ROWS = 3


def columns_of(seed):
    """Return columns of random numbers; the fewer the rows, the sharper the look at losses."""
    rng = random.Random(seed)
    return {f"c{index}": random_texts(rng, ROWS) for index in range(COLUMNS)}


QUICK = ("csv_inferred", "parquet_decimals")


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way not in QUICK)) for way in WAYS]
)
def test_numbers_are_rounded_once(way, tmp_path):
    assert check_way(WAYS[way], columns_of(seed=len(way)), tmp_path) > COLUMNS // 4


def test_numbers_as_bytes_are_the_nearest_float64(tmp_path):
    assert check_bytes(columns_of(seed=1), tmp_path)


def test_numbers_as_text_are_the_text(tmp_path):
    assert check_text(columns_of(seed=2), tmp_path)


LOST = ["9007199254740993.0", "1e-400", "0.50000000000000000000000001", "16777217.0000000000001"]


@pytest.mark.parametrize(
    ("types", "store", "reports_lost", "reports_tenth"),
    [
        ({}, "auto", True, True),
        ({"a": "float32"}, "auto", True, True),
        ({}, "bytes", True, False),
        ({}, "text", False, False),
    ],
)
def test_what_write_reports(tmp_path, types, store, reports_lost, reports_tenth):
    options = {"source_options": {"types": types}}
    if store != "auto":
        columns = (Feature("a", pa.float64(), store=store), Feature("b", pa.float64(), store=store))
        options["schema"] = Schema(columns)
    path = write_csv({"a": LOST, "b": ["0.1", "12.34000000000000000000", "1e22", "-0.0"]}, tmp_path)
    manifest = bt.write(path, tmp_path / "out", shuffle=False, **options)
    losses = [feature.observed.max_relative_error for feature in manifest.schema.features]
    assert [error > 0 for error in losses] == [reports_lost, reports_tenth]
    found = [row["a"] for row in bt.load(tmp_path / "out").rows()]
    stored = [to_float32(Fraction(text)) for text in LOST]
    if not types:
        stored = [float(str(np.float32(value))) for value in stored]
    assert found == (stored if store == "auto" else [float(text) for text in LOST])


def same_row(row):
    return dict(row)


def same_batch(batch: pa.RecordBatch):
    return pa.RecordBatch.from_pydict(batch.to_pydict(), schema=batch.schema)


def written(path, output, arrow, store, **options):
    schema = Schema((Feature("a", arrow, store=store), Feature("b", arrow, store=store)))
    manifest = bt.write(path, output, schema=schema, shuffle=False, **options)
    losses = [feature.observed.max_relative_error for feature in manifest.schema.features]
    return [shard.xxh64 for shard in manifest.shards], losses


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("function", [same_row, same_batch])
@pytest.mark.parametrize("store", ["auto", "bytes", "text", "text of float32", "float32"])
def test_a_map_that_gives_back_what_it_was_given_changes_nothing(tmp_path, function, store):
    store, _, arrow = store.partition(" of ")
    arrow = pa.float32() if "float32" in (store, arrow) else pa.float64()
    store = store if store != "float32" else "auto"
    path = write_csv({"a": LOST, "b": ["nan", "1.50", "-0.0", ""]}, tmp_path)
    plain = written(path, tmp_path / "plain", arrow, store)
    assert written(path, tmp_path / "mapped", arrow, store, map=function) == plain


def test_text_of_what_a_map_changes(tmp_path):
    path = write_csv({"a": ["1.50", "2.50", "3.50"]}, tmp_path)
    schema = Schema((Feature("a", pa.float64(), store="text"),))

    def change(row):
        return {"a": 1 / 3 if row["a"] == 2.5 else row["a"]}

    bt.write(path, tmp_path / "out", schema=schema, map=change, shuffle=False)
    assert texts_in(tmp_path / "out") == [b"1.50", b"0.3333333333333333", b"3.50"]


def test_a_function_of_batches_that_gives_other_rows_takes_no_numbers_of_others(tmp_path):
    path = write_csv({"a": ["1.50", "2.50", "1.5"], "b": ["1", "2", "3"]}, tmp_path)
    schema = Schema((Feature("a", pa.float64(), store="text"), Feature("b", pa.int64())))

    def turn(batch: pa.RecordBatch):
        return batch.take(pa.array([2, 0, 1]))

    bt.write(path, tmp_path / "out", schema=schema, map=turn, shuffle=False)
    assert texts_in(tmp_path / "out") == [b"1.5", b"1.5", b"2.5"]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("step", [None, bt.MapRows(same_row), bt.MapBatches(same_batch)])
def test_a_pipeline_reports_the_digits_that_text_lacks(tmp_path, step):
    path = write_csv({"a": LOST, "b": ["1.50", "0.1", "1e22", "-0.0"]}, tmp_path)
    columns = (Feature("a", pa.float64(), store="text"), Feature("b", pa.float64(), store="text"))
    with bt.pipeline() as root:
        rows = root | bt.ReadFromCsv(path)
        rows = rows if step is None else rows | step
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/", schema=Schema(columns), shuffle=False)
    features = bt.Manifest.load(tmp_path / "out").schema.features
    assert [feature.observed.max_relative_error for feature in features] == [1, 0]


@pytest.mark.slow
def test_a_pipeline_keeps_the_text_of_what_is_read_as_text(tmp_path):
    path = write_csv({"a": LOST}, tmp_path)
    schema = Schema((Feature("a", pa.float64(), store="text"),))
    with bt.pipeline() as root:
        rows = root | bt.ReadFromCsv(path, types={"a": "string"}) | bt.MapRows(same_row)
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/", schema=schema, shuffle=False)
    assert texts_in(tmp_path / "out") == [text.encode() for text in LOST]


def texts_in(output):
    """Return what is stored in column a."""
    (shard,) = bt.Manifest.load(output).shards
    records = map(Example.FromString, read_records(output / shard.path))
    features = [record.features.feature["a"] for record in records]
    return [getattr(one, one.WhichOneof("kind")).value[0] for one in features]


@pytest.mark.slow
def test_extract_tells_of_digits_that_it_drops(tmp_path, recwarn):
    path = write_csv({"a": LOST, "b": ["1.50", "0.1", "1e22", "-0.0"]}, tmp_path)
    extract(path, tmp_path / "stage")
    (line,) = [str(one.message) for one in recwarn if "digits" in str(one.message)]
    assert line.startswith("numbers of 'a' have more digits than double holds")
    recwarn.clear()
    extract(path, tmp_path / "text", source_options={"types": {"a": "string"}})
    assert not [one for one in recwarn if "digits" in str(one.message)]


def test_a_float32_printed_as_float64_is_no_loss(tmp_path):
    texts = [repr(float(np.float32(number))) for number in (0.1, 0.3, 1e-30, 12345.678)]
    path = write_csv({"a": texts}, tmp_path)
    assert encoded(Csv(path).batches())["a"].reported == 0


@pytest.mark.parametrize("text", ["1e39", "3.4028235677973367e38", "-1e400"])
def test_text_beyond_float32_is_a_reject(text):
    data = pa.RecordBatch.from_pydict({"a": ["1.5", text]})
    result = Encoder(Schema((Feature("a", pa.float64()),))).encode(Batch(data), Arena())
    assert (len(result.rejects), result.rows.tolist()) == (1, [0])


def test_a_decimal_much_finer_than_its_type_is_a_reject(tmp_path):
    arrow = pa.decimal128(38, 19)
    path = write_csv({"a": ["1e-58", "1.5"]}, tmp_path)
    source = Csv(path, types={"a": arrow})
    (unit,) = source.all_units(source.all_scans())
    (batch,) = source.read(unit, source.schema())
    assert [reject.row for reject in batch.rejects] == [0]
    data = pa.RecordBatch.from_pydict({"a": ["1e-58", "1.5"]})
    result = Encoder(Schema((Feature("a", arrow),))).encode(Batch(data), Arena())
    assert (len(result.rejects), result.rows.tolist()) == (1, [1])
    rows = [{"a": Decimal("1e-58")}, {"a": Decimal("1.5")}, {"a": Decimal("0e-58")}]
    batch = batch_of_rows(rows, pa.schema([("a", arrow)]))
    assert (batch.num_rows, len(batch.rejects)) == (2, 1)


def test_the_coder_keeps_the_numbers(tmp_path):
    (batch,) = Csv(write_csv({"a": LOST}, tmp_path)).batches()
    coder = BatchCoder()
    assert encoded([coder.decode(coder.encode(batch.slice(1, 3)))]) == encoded([batch.slice(1, 3)])
