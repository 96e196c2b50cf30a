"""`Dataset.stats`: exact where it says so, else near the truth; equal for any order and shards."""

import collections
import datetime
import decimal
import io
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.format import tally
from beam_tfrecord.jobs.statistics_job import write_statistics
from beam_tfrecord.stats.statistics import Statistics
from beam_tfrecord.stats.summary import Summary
from tests.helpers.made_datasets import make_dataset


def feature(column, *, parts=()):
    """Return the JSON of a column's statistics, which is summarized in parts."""
    batch = pa.record_batch([pa.array(column)], ["x"])
    ends = [0, *sorted(parts), len(column)]
    pieces = [batch.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    summary = Summary.of(pieces[0])
    for piece in pieces[1:]:
        summary = summary.add(piece)
    found = Statistics({"data": summary}).to_json()["splits"]["data"]
    json.dumps(found, allow_nan=False)
    assert found["examples"] == len(column)
    return found["features"]["x"]


def merged(values, random, *, kind=None):
    """Return the JSON of values that are shuffled, cut, and merged in a random tree."""
    values = [values[at] for at in random.sample(range(len(values)), len(values))]
    column = pa.array(values, kind)
    cuts = sorted(random.randrange(len(values) + 1) for _ in range(random.randrange(9)))
    ends = [0, *cuts, len(values)]
    parts = [
        Summary.of(pa.record_batch([column.slice(a, b - a)], ["x"]))
        for a, b in itertools.pairwise(ends)
    ]
    while len(parts) > 1:
        at = random.randrange(len(parts) - 1)
        parts[at : at + 2] = [parts[at].merge(parts[at + 1])]
    return json.dumps(Statistics({"data": parts[0]}).to_json())


numbers = st.one_of(
    st.lists(st.floats() | st.none(), max_size=60),
    st.lists(st.floats(width=32), max_size=60),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60),
    st.lists(st.integers(0, 5) | st.none(), max_size=60),
)


@settings(deadline=None)
@given(values=numbers, parts=st.sets(st.integers(0, 60)))
def test_numbers_are_those_of_exact_arithmetic(values, parts):
    kind = pa.float64() if any(isinstance(value, float) for value in values) else pa.int64()
    found = feature(pa.array(values, kind), parts={part for part in parts if part <= len(values)})
    present = [value for value in values if value is not None]
    finite = [value for value in present if math.isfinite(value)]
    assert found["nulls"] == len(values) - len(present)
    if kind == pa.float64():
        assert found["nan"] == sum(value != value for value in present)
        assert found["inf"] == sum(map(math.isinf, present))
    assert found["zeros"] == finite.count(0)
    assert (found["distinct"], found["distinct_is_exact"]) == (len(set(finite)), True)
    if not finite:
        assert "min" not in found
        return
    exact = [Fraction(value) for value in finite]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    assert (found["min"], found["max"]) == (min(finite), max(finite))
    assert found["mean"] == float(mean)
    assert abs(Fraction(found["std"]) ** 2 - variance) <= variance / 2**50 + Fraction(2) ** -2000
    assert dict(map(tuple, found["top"])) == collections.Counter(value + 0 for value in finite)
    if max(map(abs, finite)) < 2**52:
        quartiles = np.quantile(np.array(finite, np.float64) + 0.0, [0.25, 0.5, 0.75])
        assert found["quartiles"] == quartiles.tolist()
    if "histogram" in found:
        assert sum(found["histogram"]["counts"]) == len(finite)


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 20_000])
@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        (lambda random: random.gauss(0, 9), pa.float64()),
        (lambda random: random.lognormvariate(0, 3), pa.float32()),
        (lambda random: random.choice([-1e308, 1e308]) * random.random(), pa.float64()),
        (lambda random: random.randrange(-(2**63), 2**63), pa.int64()),
        (lambda random: random.randrange(2**64), pa.uint64()),
        (lambda random: random.randrange(9), pa.int32()),
        (lambda random: f"{random.randrange(10**9)}" * random.randrange(9), pa.string()),
        (lambda random: [random.random() for _ in range(random.randrange(4))], None),
    ],
)
@pytest.mark.slow_after(10)
def test_no_order_of_merging_changes_a_byte(draw, kind, size):
    import random

    source = random.Random(size)
    values = [draw(source) for _ in range(size)]
    assert len({merged(values, source, kind=kind) for _ in range(4)}) == 1


def test_estimates_are_near_and_say_so():
    values = np.random.default_rng(1).lognormal(0, 1, 50_000)
    found = feature(values, parts=range(0, 50_000, 7_000))
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    assert not found["distinct_is_exact"]
    assert not found["quartiles_are_exact"]
    assert "top" not in found
    assert 45_000 < found["distinct"] <= 50_000
    lengths = [feature(np.arange(n, n + 4_000))["distinct"] for n in range(0, 80_000, 4_000)]
    assert 3_600 < min(lengths) < max(lengths) == 4_000
    error = np.abs(np.array(found["quartiles"]) - quartiles) / (quartiles[2] - quartiles[0])
    assert error.max() < 0.01
    assert found["mean"] == float(sum(map(Fraction, values.tolist())) / 50_000)
    assert sum(found["histogram"]["counts"]) == 50_000


@pytest.mark.parametrize(
    "values",
    [
        1 + np.arange(5_002) * 2.0**-52,
        (1 + np.arange(5_002) * 2.0**-23).astype(np.float32),
        np.arange(-3_000, 3_000) * 5e-324,
        np.linspace(-1, 1, 5_000) ** 51 * 1e300,
        np.append(np.tile([-0.0, 0.0], 5_000), np.linspace(-1, 1, 5_000, dtype=np.float32)),
    ],
    ids=["float64", "float32", "subnormal", "far apart", "zeros"],
)
def test_the_deviation_of_many_numbers_is_exact(values):
    found = feature(values)
    exact = [Fraction(value) for value in values.tolist()]
    mean = sum(exact) / len(exact)
    variance = sum(value * value for value in exact) / len(exact) - mean**2
    assert found["mean"] == float(mean)
    with decimal.localcontext(prec=60):
        std = (decimal.Decimal(variance.numerator) / variance.denominator).sqrt()
    assert found["std"] == float(std)
    assert found["zeros"] == np.count_nonzero(values == 0)


@given(
    values=st.lists(st.text(max_size=9) | st.none(), max_size=60),
    kind=st.sampled_from([pa.string(), pa.string_view(), pa.binary_view()]),
    in_lists=st.booleans(),
)
def test_texts_are_counted_and_measured(values, kind, in_lists):
    rows, kind_of_rows = ([None, values], pa.list_(kind)) if in_lists else (values, kind)
    found = feature(pa.array(rows, kind_of_rows))
    present = [value for value in values if value is not None]
    assert found["nulls"] == (1 if in_lists else len(values) - len(present))
    assert found["distinct"] == len(set(present))
    if present:
        assert dict(found["top"]) == collections.Counter(present)
        sizes = [len(value if "string" in str(kind) else value.encode()) for value in present]
        assert (found["length"]["min"], found["length"]["max"]) == (min(sizes), max(sizes))


def test_long_texts_that_differ_late_are_different():
    found = feature(["a" * 1000 + end for end in "xyz"])
    assert found["distinct"] == 3
    assert [value for value, _ in found["top"]] == ["a" * 200] * 3


def test_other_types_are_shown_as_what_they_are():
    day = datetime.date(2024, 2, 29)
    assert feature([day, day])["top"] == [["2024-02-29", 2]]
    moment = datetime.datetime(2024, 2, 29, 12, 30, 0, 500)
    assert feature([moment])["min"] == "2024-02-29T12:30:00.000500"
    assert feature([datetime.timedelta(seconds=90)])["max"] == "PT90S"
    digits = feature([decimal.Decimal("12345678901234567.01"), decimal.Decimal("0.02")])
    assert (digits["distinct_is_exact"], digits["quartiles_are_exact"]) == (False, False)
    assert feature([True, False, True])["top"] == [[True, 2], [False, 1]]
    lists = feature([[1, 2, 2], [], None, [7]])
    assert (lists["nulls"], lists["list_length"]["max"]) == (1, 3)
    assert lists["top"] == [[2, 2], [1, 1], [7, 1]]
    assert feature(pa.array([b"\xff\xfe"]))["top"] == [[{"b64": "//4="}, 1]]
    assert set(feature(pa.array([{"a": 1}]))) == {"type", "nulls"}
    assert feature(pa.array([None, None], pa.float32()))["nulls"] == 2


MOST = 2**63 - 1
TIMES = st.integers(-MOST, MOST) | st.sampled_from([-MOST, MOST])


@given(
    counts=st.lists(TIMES, min_size=1, max_size=9),
    arrow=st.sampled_from(
        [pa.timestamp("s"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns")]
    ),
)
def test_any_time_has_a_text(counts, arrow):
    found = feature(pa.array(counts, pa.int64()).cast(arrow))
    ends = [np.datetime64(found[end].removesuffix("Z"), arrow.unit) for end in ("min", "max")]
    assert [int(end.astype(np.int64)) for end in ends] == [min(counts), max(counts)]
    feature(pa.array(counts, pa.int64()).cast(pa.duration("ns")))
    clock = feature(pa.array([abs(count) % 86_400 for count in counts] + [86_399], pa.time32("s")))
    texts = [clock["max"], clock["mean"], *clock.get("histogram", {}).get("edges", ())]
    assert all(text == "24:00:00" or datetime.time.fromisoformat(text) for text in texts)


VALUES = [
    (pa.int64(), [0, 1, -1, None]),
    (pa.float64(), [0.0, -0.0, math.nan, -math.nan, 1 + 2**-50, 1.0, None]),
    (pa.string_view(), ["", "a", "ab", None]),
    (pa.list_(pa.int8()), [[], [0], [0, 0], [1, 0], [0, 1], [None], None]),
    (pa.list_(pa.int16(), 2), [[0, 1], [1, 0], None]),
    (pa.list_(pa.list_(pa.int8())), [[[0], []], [[], [0]], [[0]], [[0, 0]], [None], []]),
    (pa.struct({"a": pa.int8(), "b": pa.binary()}), [{"a": 0}, {"b": b""}, {}, None]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], [("a", 1), ("b", 1)], [("b", 1)], [], None]),
    (pa.decimal128(30, 2), [decimal.Decimal(f"{10**20}.0{digit}") for digit in range(3)]),
]


@given(
    kinds=st.lists(st.sampled_from(VALUES), min_size=1, max_size=3),
    picks=st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3)),
)
def test_copies_are_rows_that_are_equal_in_all_columns(kinds, picks):
    arrays = [
        pa.array([values[row[at] % len(values)] for row in picks], kind)
        for at, (kind, values) in enumerate(kinds)
    ]
    batch = pa.record_batch(arrays, [f"c{at}" for at in range(len(kinds))])
    found = Statistics({"data": Summary.of(batch.slice(0, 5)).add(batch.slice(5))}).to_json()
    different = {repr(row).replace("-0.0", "0.0") for row in batch.to_pylist()}
    assert found["splits"]["data"]["copies"] == len(batch) - len(different)


def test_copies_in_each_split_are_those_that_pandas_counts(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    columns = {"x": random.integers(0, 9, 3000) / 8, "y": random.choice(["a", "b", None], 3000)}
    splits = {"train": range(2000), "test": range(2000, 2990), "few": range(2990, 2991)}
    make_dataset(tmp_path, pa.table(columns), splits=splits)
    stats = bt.load(tmp_path).stats()
    for split, of in stats.to_json()["splits"].items():
        copies = bt.load(tmp_path, split=split).to_pandas().duplicated().sum()
        assert (of["copies"], of["copies_are_exact"]) == (copies, True)
        shown = f"{copies:,} rows are duplicates of others in all columns"
        assert (shown in str(stats)) == (copies > 0)
    monkeypatch.setattr(tally, "MAX_HASHES", 1000)
    batch = pa.record_batch([np.arange(40_000) % 20_000], ["x"])
    found = Summary.of(batch.slice(0, 500))
    for start in range(500, 40_000, 500):
        found = found.add(batch.slice(start, 500))
    assert found.copies == Summary.of(batch).copies
    assert 17_000 < found.copies.number < 23_000


@pytest.mark.parametrize("dtype", ["int64", "uint8", "int16", "float32", "bool"])
def test_arrays_of_several_sizes_have_the_numbers_of_numpy(tmp_path, dtype):
    draw = np.random.default_rng(0)
    rows = [{"a": draw.integers(0, 200, (size, 2)).astype(dtype)} for size in (1, 4, 2)]
    bt.write(iter(rows), tmp_path)
    found = bt.load(tmp_path).stats().to_json()["splits"]["data"]["features"]["a"]
    values = np.concatenate([np.ravel(row["a"]) for row in rows])
    assert (found["min"], found["max"]) == (values.min(), values.max())
    assert found["mean"] == pytest.approx(values.mean(dtype=float))


def test_images_are_described():
    from PIL import Image

    stored = []
    for format, size in [("PNG", (3, 5)), ("JPEG", (8, 4)), ("JPEG", (16, 2))]:
        Image.new("RGB", size).save(file := io.BytesIO(), format)
        stored.append(file.getvalue())
    image = feature(pa.array([*stored, b"\xff\xd8\xff broken", b"no image"]))["image"]
    assert image["format"] == {"jpeg": 2, "png": 1, "unreadable": 1}
    assert (image["width"]["max"], image["height"]["min"]) == (16, 2)


TABLE = pa.table(
    {
        "x": pa.array(np.random.default_rng(0).normal(size=5_000), pa.float32()),
        "name": [f"n{row % 3}" for row in range(5_000)],
    }
)


def test_shards_jobs_and_splits_change_nothing(tmp_path):
    splits = {"train": range(4_000), "test": range(4_000, 5_000)}
    make_dataset(tmp_path / "a", TABLE, splits=splits, shards=2)
    splits["train"] = range(3_999, -1, -1)
    make_dataset(tmp_path / "b", TABLE, splits=splits, shards=7)
    found = bt.load(tmp_path / "a").stats()
    assert found.to_json() == bt.load(tmp_path / "b").stats().to_json()
    assert bt.load(tmp_path / "a").stats("test").to_json()["splits"].keys() == {"test"}
    write_statistics(tmp_path / "b", tmp_path / "stats.json")
    assert json.loads((tmp_path / "stats.json").read_text()) == found.to_json()
    parts = [of["features"]["x"]["histogram"] for of in found.to_json()["splits"].values()]
    assert parts[0]["edges"] == parts[1]["edges"]
    with pytest.raises(UsageError, match="split 'dev' does not exist"):
        bt.load(tmp_path / "a").stats("dev")


@pytest.mark.slow
def test_tfmd_has_the_same_numbers(tmp_path):
    pytest.importorskip("tensorflow_metadata")
    from beam_tfrecord.stats.tfmd import to_tfmd

    make_dataset(tmp_path / "a", TABLE)
    found = bt.load(tmp_path / "a").stats()
    (dataset,) = to_tfmd(found).datasets
    ours = found.to_json()["splits"]["data"]["features"]
    x, name = dataset.features
    assert x.num_stats.mean == ours["x"]["mean"]
    assert sum(of.sample_count for of in x.num_stats.histograms[0].buckets) == 5_000
    top = [[of.value, of.frequency] for of in name.string_stats.top_values]
    assert top == ours["name"]["top"]
    make_dataset(tmp_path / "b", TABLE, splits={"train": range(2_500), "test": range(2_500, 5_000)})
    every, *splits = to_tfmd(bt.load(tmp_path / "b").stats()).datasets
    assert every.name == "All Examples"  # which TFDV takes if there are several
    assert every.num_examples == sum(split.num_examples for split in splits) == 5_000


def test_the_table_fits_and_shows_what_is_odd(tmp_path):
    assert str(Statistics({})) == "no examples"
    column = [math.inf, math.nan, -math.inf]
    wide = pa.record_batch([column, [None] * 3, ["word " * 9] * 3], ["x", "null", "name" * 9])
    lines = str(Statistics({"data": Summary.of(wide)})).splitlines()
    assert lines[0] == "data: 3 examples"
    assert lines[2].endswith("1 NaN, 2 infinite")
    assert "100.0%" in lines[3]
    assert max(map(len, lines)) == 80
